"""Policy: who a rule is about, and who hears of a change."""

from __future__ import annotations

import pytest

from router.auth.policy import CurrentPolicy, Policy, PrincipalMatch, Rule
from router.auth.principal import Principal

ALICE = Principal(
    "alice", "jwt", groups=("dev", "ops"), issuer="https://i.example", identity="spiffe://x/alice"
)


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (PrincipalMatch(subject="alice"), True),
        (PrincipalMatch(subject="alic"), False),
        (PrincipalMatch(group="ops"), True),
        (PrincipalMatch(group="op"), False),
        (PrincipalMatch(issuer="https://i.example"), True),
        (PrincipalMatch(identity="spiffe://x/alice"), True),
        (PrincipalMatch(identity="alice"), False),
        (PrincipalMatch(subject="alice", group="ops", issuer="https://i.example"), True),
        (PrincipalMatch(subject="alice", group="admins"), False),
        (PrincipalMatch(subject="alice", issuer="https://other.example"), False),
    ],
)
def test_every_key_of_a_match_must_be_the_principals(match: PrincipalMatch, expected: bool) -> None:
    assert match.matches(ALICE) is expected


def test_every_rule_that_matches_counts_in_the_files_order() -> None:
    rules = tuple(
        Rule(PrincipalMatch(subject=name), (), number, number)
        for number, name in enumerate(("alice", "bob", "alice"), 1)
    )

    assert [rule.number for rule in Policy(rules=rules).rules_for(ALICE)] == [1, 3]


def test_listeners_hear_of_a_policy_once_it_is_in_force() -> None:
    current = CurrentPolicy()
    seen: list[frozenset[str]] = []
    current.on_change(lambda: seen.append(current.policy.revoked))

    current.replace(Policy(revoked=frozenset({"a"})))

    assert seen == [frozenset({"a"})]
    assert repr(current) == "<CurrentPolicy rules=0 revoked=1 not_before=0>"
