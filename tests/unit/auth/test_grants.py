"""Grants as they are written: nothing that isn't understood is passed over."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.auth.grants import MAX_GRANTS, GrantError, each_grant, parse_grants, spell
from router.auth.principal import Grant
from router.routing.endpoint import SandboxRef

LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
WRITTEN = st.fixed_dictionaries(
    {"namespace": LABELS | st.just("*"), "name": LABELS | st.just("*")},
    optional={
        "uid": st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=40),
        "ports": st.lists(st.integers(1, 65535), min_size=1, max_size=4),
        "methods": st.lists(st.sampled_from(["GET", "POST", "M-SEARCH"]), min_size=1, max_size=3),
    },
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_a_grant_is_read_with_all_it_says() -> None:
    [grant] = parse_grants(
        [
            {
                "namespace": "team-a",
                "name": "box",
                "uid": "3b0c",
                "ports": [8888, 80],
                "methods": ["GET"],
            }
        ]
    )

    assert grant == Grant("team-a", "box", "3b0c", frozenset({80, 8888}), frozenset({b"GET"}))


def test_what_is_left_out_allows_everything() -> None:
    assert parse_grants([{"namespace": "*", "name": "*"}]) == (Grant("*", "*"),)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("*", "must be a list"),
        ({}, "must be a list"),
        (None, "must be a list"),
        (["box"], "[0]: must be a mapping"),
        ([{"name": "b"}], "[0]: `namespace` is missing"),
        ([{"namespace": "a"}], "[0]: `name` is missing"),
        ([{"namespace": "a", "name": "b", "port": 1}], "[0]: has a key that is not one of"),
        ([{"namespace": "A", "name": "b"}], "[0].namespace: must be"),
        ([{"namespace": "a", "name": "b\n"}], "[0].name: must be"),
        ([{"namespace": "a", "name": "b*"}], "[0].name: must be"),
        ([{"namespace": "a", "name": ""}], "[0].name: must be"),
        ([{"namespace": "a", "name": None}], "[0].name: must be"),
        ([{"namespace": "a", "name": "b" * 64}], "[0].name: must be"),
        ([{"namespace": "a", "name": "b", "uid": ""}], "[0].uid: must be"),
        ([{"namespace": "a", "name": "b", "uid": None}], "[0].uid: must be"),
        ([{"namespace": "a", "name": "b", "ports": None}], "[0].ports: must be a list"),
        ([{"namespace": "a", "name": "b", "ports": []}], "[0].ports: must be a list"),
        ([{"namespace": "a", "name": "b", "ports": 80}], "[0].ports: must be a list"),
        ([{"namespace": "a", "name": "b", "ports": ["80"]}], "[0].ports: must hold"),
        ([{"namespace": "a", "name": "b", "ports": [True]}], "[0].ports: must hold"),
        ([{"namespace": "a", "name": "b", "ports": [80.0]}], "[0].ports: must hold"),
        ([{"namespace": "a", "name": "b", "ports": [0]}], "[0].ports: must hold"),
        ([{"namespace": "a", "name": "b", "ports": [65536]}], "[0].ports: must hold"),
        ([{"namespace": "a", "name": "b", "methods": []}], "[0].methods: must be a list"),
        ([{"namespace": "a", "name": "b", "methods": ["get"]}], "[0].methods: must hold"),
        ([{"namespace": "a", "name": "b", "methods": ["*\n"]}], "[0].methods: must hold"),
        ([{"namespace": "a", "name": "b"}, {"namespace": "a"}], "[1]: `name` is missing"),
        ([{"namespace": "a", "name": "b"}] * (MAX_GRANTS + 1), "more than 1000"),
    ],
)
def test_a_malformed_grant_is_an_error_that_says_where(value: Any, message: str) -> None:
    with pytest.raises(GrantError) as caught:
        parse_grants(value)

    assert message in str(caught.value)


def test_every_fault_of_a_list_can_be_collected() -> None:
    faults: list[GrantError] = []

    grants = list(
        each_grant(
            [{"namespace": "a"}, {"namespace": "a", "name": "b"}, 5],
            at=("rules", 0),
            on_error=faults.append,
        )
    )

    assert grants == [Grant("a", "b")]
    assert [spell(fault.path) for fault in faults] == ["rules[0][0]", "rules[0][2]"]


@given(st.lists(WRITTEN, max_size=5))
def test_what_is_well_formed_is_read_as_written(written: list[dict[str, Any]]) -> None:
    grants = parse_grants(json.loads(json.dumps(written)))

    for entry, grant in zip(written, grants, strict=True):
        assert (grant.namespace, grant.name) == (entry["namespace"], entry["name"])
        assert grant.uid == entry.get("uid", "")
        assert grant.ports == (frozenset(entry["ports"]) if "ports" in entry else None)
        assert (grant.methods is None) == ("methods" not in entry)


@given(JSON)
def test_whatever_a_token_holds_is_a_grant_list_or_an_error(value: Any) -> None:
    try:
        grants = parse_grants(value)
    except GrantError:
        return

    assert isinstance(value, list)
    assert len(grants) == len(value)


@given(WRITTEN, LABELS, LABELS, st.integers(1, 65535), st.sampled_from([b"GET", b"POST", b"PUT"]))
def test_a_grant_covers_what_each_of_its_words_covers(
    written: dict[str, Any], namespace: str, name: str, port: int, method: bytes
) -> None:
    [grant] = parse_grants([written])

    assert grant.covers_name(SandboxRef(namespace, name)) == (
        written["namespace"] in ("*", namespace) and written["name"] in ("*", name)
    )
    assert grant.covers_call(port, method) == (
        port in written.get("ports", [port])
        and method.decode() in written.get("methods", [method.decode()])
    )


def test_the_right_to_wake_is_said_and_nothing_but_true_says_it() -> None:
    written: dict[str, Any] = {"namespace": "team-a", "name": "box"}
    assert [grant.wake for grant in parse_grants([written])] == [False]
    assert [grant.wake for grant in parse_grants([{**written, "wake": True}])] == [True]
    assert [grant.wake for grant in parse_grants([{**written, "wake": False}])] == [False]


@pytest.mark.parametrize("value", ["yes", "true", 1, 0, None, [True], {}])
def test_a_right_to_wake_that_is_no_boolean_refuses_the_whole_list(value: Any) -> None:
    with pytest.raises(GrantError) as told:
        parse_grants([{"namespace": "team-a", "name": "box", "wake": value}])
    assert str(told.value) == "[0].wake: must be true or false"
