import asyncio
import itertools

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


def listed(wanted, table=TABLE, **facts):
    return asyncio.run(listing(table, wanted, **facts))


def names(wanted, table=TABLE):
    return [(entry["namespace"], entry["name"]) for entry in listed(wanted, table)["sandboxes"]]


def test_everything_is_listed_in_order():
    assert names(Filter()) == [
        ("team-a", "a"),
        ("team-a", "b"),
        ("team-b", "a"),
        ("team-b", "z"),
    ]


def test_an_entry_tells_what_routing_knows():
    assert listed(Filter(limit=2))["sandboxes"] == [
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
    found = listed(
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
        ({"search": "a/"}, [("team-a", "a"), ("team-a", "b")]),
        ({"search": "/a"}, [("team-a", "a"), ("team-b", "a")]),
        ({"search": "A"}, []),
        ({"offset": "3"}, [("team-b", "z")]),
        ({"offset": "4"}, []),
        ({"offset": "1", "limit": "2"}, [("team-a", "b"), ("team-b", "a")]),
        ({"limit": "1"}, [("team-a", "a")]),
    ],
)
def test_filters_narrow_the_list(query, expected):
    assert names(Filter.of(query)) == expected


def test_the_total_counts_what_the_limit_left_out():
    assert listed(Filter(limit=1))["total"] == 4
    assert listed(Filter(namespace="team-a", limit=1))["total"] == 2


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
        {"offset": "-1"},
        {"offset": "1e3"},
    ],
)
def test_what_is_not_understood_is_refused(query):
    with pytest.raises(BadRequest):
        Filter.of(query)


def test_the_states_are_counted_of_all_that_the_name_lets_through():
    states = listed(Filter(namespace="team-a", state=State.STARTING))["states"]
    assert states == {state.value: 0 for state in State} | {"ready": 1, "starting": 1}


def test_pages_of_a_large_table_are_one_after_another_the_whole_in_order():
    table = [endpoint(f"team-{n % 7}", f"box-{n:05}") for n in range(2_300)]
    pages = [names(Filter(offset=at, limit=700), table) for at in range(0, 2_800, 700)]
    assert [len(page) for page in pages] == [700, 700, 700, 200]
    assert list(itertools.chain(*pages)) == sorted(
        (each.ref.namespace, each.ref.name) for each in table
    )


async def test_others_have_their_turn_while_a_large_table_is_gone_through():
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(other())
        await listing([endpoint("team", f"box-{n}") for n in range(10_000)], Filter(offset=9_000))
        task.cancel()
    assert turns > 20
