"""Policy: who a rule is about, and who hears of a change."""

from __future__ import annotations

import pytest

from router.auth.policy import KINDS, CurrentPolicy, Policy, PrincipalMatch, Rule
from router.auth.principal import Principal

ALICE = Principal("alice", "jwt", groups=("dev", "ops"), issuer="https://i.example")
ROBOT = "system:serviceaccount:ns:robot"


def _certificate(name: str, kind: str) -> Principal:
    return Principal(name, "mtls", kind=kind, identity=name)


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (PrincipalMatch(subject="alice"), True),
        (PrincipalMatch(subject="alic"), False),
        (PrincipalMatch(group="ops"), True),
        (PrincipalMatch(group="op"), False),
        (PrincipalMatch(issuer="https://i.example"), True),
        (PrincipalMatch(identity="alice", kind="cn"), False),
        (PrincipalMatch(mode="jwt"), True),
        (PrincipalMatch(mode="token-review"), False),
        (PrincipalMatch(subject="alice", mode="jwt"), True),
        (PrincipalMatch(subject="alice", mode="token-review"), False),
        (PrincipalMatch(subject="alice", group="ops", issuer="https://i.example"), True),
        (PrincipalMatch(subject="alice", group="admins"), False),
        (PrincipalMatch(subject="alice", issuer="https://other.example"), False),
    ],
)
def test_every_key_of_a_match_must_be_the_principals(match: PrincipalMatch, expected: bool) -> None:
    assert match.matches(ALICE) is expected


# --- kinds of names --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["alice", "alice@example.com", ROBOT, "build.example.com"])
def test_a_subject_is_never_a_certificates_name(name: str, kind: str) -> None:
    assert not PrincipalMatch(subject=name).matches(_certificate(name, kind))


@pytest.mark.parametrize("meant", KINDS)
@pytest.mark.parametrize("presented", KINDS)
def test_an_identity_is_met_by_its_own_kind_of_name_alone(meant: str, presented: str) -> None:
    name = "spiffe://prod/admin"

    matches = PrincipalMatch(identity=name, kind=meant).matches(_certificate(name, presented))

    assert matches is (meant == presented)


def test_an_identity_is_never_a_tokens_subject() -> None:
    match = PrincipalMatch(identity="alice", kind="cn")

    assert not match.matches(Principal("alice", "jwt"))
    assert not match.matches(Principal("alice", "token-review"))


@pytest.mark.parametrize(
    ("match", "mode", "expected"),
    [
        (PrincipalMatch(subject=ROBOT), "token-review", True),
        (PrincipalMatch(subject=ROBOT), "jwt", False),
        (PrincipalMatch(subject=ROBOT, mode="jwt"), "jwt", True),
        (PrincipalMatch(subject=ROBOT, issuer="https://kubernetes.default.svc"), "jwt", True),
        (PrincipalMatch(group="system:masters"), "token-review", True),
        (PrincipalMatch(group="system:masters"), "jwt", False),
        (PrincipalMatch(group="system:masters", mode="jwt"), "jwt", True),
        (PrincipalMatch(subject="alice"), "jwt", False),
        (PrincipalMatch(group="ops"), "jwt", True),
    ],
)
def test_kubernetes_own_names_are_met_by_its_own_tokens_unless_the_rule_says_whose(
    match: PrincipalMatch, mode: str, expected: bool
) -> None:
    caller = Principal(
        ROBOT, mode, groups=("system:masters", "ops"), issuer="https://kubernetes.default.svc"
    )

    assert match.matches(caller) is expected


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
