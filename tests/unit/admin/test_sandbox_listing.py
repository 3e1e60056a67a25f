import pytest

from router.admin.sandbox_listing import MAX_LIMIT, Filter, listing
from router.errors import BadRequest
from router.routing.endpoint import Endpoint, SandboxRef, State


def endpoint(namespace, name, state=State.READY, **facts):
    return Endpoint(ref=SandboxRef(namespace, name), uid=f"uid-{name}", state=state, **facts)


TABLE = [
    endpoint("team-b", "z"),
    endpoint("team-a", "b", State.STARTING, reason="DependenciesNotReady"),
    endpoint("team-a", "a", addresses=("192.0.2.1", "2001:db8::1"), ports={8888: 40001}),
    endpoint("team-b", "a", State.SUSPENDED),
]


def names(wanted):
    return [(entry["namespace"], entry["name"]) for entry in listing(TABLE, wanted)["sandboxes"]]


def test_everything_is_listed_in_order():
    assert names(Filter()) == [
        ("team-a", "a"),
        ("team-a", "b"),
        ("team-b", "a"),
        ("team-b", "z"),
    ]


def test_an_entry_tells_what_routing_knows():
    assert listing(TABLE, Filter(limit=2))["sandboxes"] == [
        {
            "namespace": "team-a",
            "name": "a",
            "state": "ready",
            "reason": "",
            "pod_uid": "uid-a",
            "sandbox_uid": "",
            "addresses": ["192.0.2.1", "2001:db8::1"],
            "ports": {"8888": 40001},
            "notes": [],
        },
        {
            "namespace": "team-a",
            "name": "b",
            "state": "starting",
            "reason": "DependenciesNotReady",
            "pod_uid": "uid-b",
            "sandbox_uid": "",
            "addresses": [],
            "ports": {},
            "notes": [],
        },
    ]


def test_what_stands_out_about_a_sandbox_is_on_its_line():
    found = listing(
        TABLE,
        Filter(namespace="team-b"),
        notes_about=lambda ref: ("its clock is wrong",) if ref.name == "z" else (),
    )

    assert [entry["notes"] for entry in found["sandboxes"]] == [[], ["its clock is wrong"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"namespace": "team-a"}, [("team-a", "a"), ("team-a", "b")]),
        ({"name": "a"}, [("team-a", "a"), ("team-b", "a")]),
        ({"state": "suspended"}, [("team-b", "a")]),
        ({"namespace": "team-a", "name": "a", "state": "starting"}, []),
        ({"namespace": "nowhere"}, []),
        ({"limit": "1"}, [("team-a", "a")]),
    ],
)
def test_filters_narrow_the_list(query, expected):
    assert names(Filter.of(query)) == expected


def test_the_total_counts_what_the_limit_left_out():
    assert listing(TABLE, Filter(limit=1))["total"] == 4
    assert listing(TABLE, Filter(namespace="team-a", limit=1))["total"] == 2


@pytest.mark.parametrize(
    "query",
    [
        {"ns": "team-a"},
        {"state": "READY"},
        {"state": ""},
        {"limit": "0"},
        {"limit": "-1"},
        {"limit": "1_0"},
        {"limit": "٣"},
        {"limit": str(MAX_LIMIT + 1)},
        {"limit": "9" * 5000},
    ],
)
def test_what_is_not_understood_is_refused(query):
    with pytest.raises(BadRequest):
        Filter.of(query)
