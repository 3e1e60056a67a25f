"""What a caller's grants lack for a call: the nearest grant, in words."""

from __future__ import annotations

import pytest

from router.auth.policy import Policy, PrincipalMatch, Rule
from router.auth.principal import Grant, Principal
from router.auth.rights import Rights
from router.auth.shortfall import MAX_LOOKED_AT, missing_parts, shortfall
from router.routing.endpoint import Endpoint, SandboxRef, State

BOX = SandboxRef("team-a", "box")
ENDPOINT = Endpoint(BOX, "pod-1", State.READY, ("192.0.2.1",))


def _rights(*grants: Grant, policy: Policy | None = None) -> Rights:
    return Rights(Principal("alice", "jwt", grants=grants), policy or Policy())


@pytest.mark.parametrize(
    ("grant", "lacks"),
    [
        (Grant("team-b", "box"), "namespace team-a"),
        (Grant("team-a", "other"), "name box"),
        (Grant("*", "other"), "name box"),
        (Grant("team-a", "box", ports=frozenset({80})), "port 8888"),
        (Grant("team-a", "*", methods=frozenset({b"GET"})), "method POST"),
        (Grant("team-a", "box", uid="pod-0"), "uid pod-1"),
        (
            Grant("team-a", "box", "", frozenset({80}), frozenset({b"GET"})),
            "port 8888, method POST",
        ),
    ],
)
def test_the_part_that_is_missing_is_named(grant: Grant, lacks: str) -> None:
    said = shortfall(_rights(grant), (BOX,), ENDPOINT, 8888, b"POST")

    assert said == (
        f"no grant covers the call; the nearest, token claim sandboxes, entry 1, lacks {lacks}"
    )


def test_the_nearest_grant_is_named_with_where_it_stands() -> None:
    policy = Policy(
        rules=(
            Rule(
                PrincipalMatch(subject="alice"),
                (Grant("team-a", "box", ports=frozenset({80})),),
                number=2,
                line=7,
            ),
        )
    )

    said = shortfall(_rights(Grant("team-b", "*"), policy=policy), (BOX,), None, 8888, b"GET")

    assert said.endswith("the nearest, policy rule 2 at line 7, lacks port 8888")


def test_a_caller_without_any_grant_is_told_apart() -> None:
    said = shortfall(_rights(), (BOX,), ENDPOINT, 80, b"GET")

    assert said == (
        "the caller has no grant at all: none in its credential, and no policy rule matches it"
    )


def test_a_long_list_of_grants_is_not_walked_to_its_end() -> None:
    far = [Grant("team-b", f"box-{number}") for number in range(MAX_LOOKED_AT)]
    near = Grant("team-a", "box", ports=frozenset({80}))

    said = shortfall(_rights(*far, near), (BOX,), ENDPOINT, 8888, b"GET")

    assert "entry 1," in said


def test_a_grant_on_any_of_the_names_lacks_nothing() -> None:
    claim = SandboxRef("team-a", "claim")

    assert missing_parts(Grant("team-a", "claim"), (BOX, claim), ENDPOINT, 80, b"GET") == []
