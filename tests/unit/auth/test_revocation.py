"""Revocation: when a right ends that was once proven."""

from __future__ import annotations

import math

import pytest

from router.auth.policy import CurrentPolicy, NotBefore, Policy
from router.auth.principal import Principal
from router.auth.revocation import Revocation, older_than_allowed
from router.routing.endpoint import Endpoint, SandboxRef, State


def _token(**facts: object) -> Principal:
    return Principal(**{"subject": "alice", "mode": "jwt", **facts})  # type: ignore[arg-type]


def _box(not_before: float = 0.0) -> Endpoint:
    return Endpoint(SandboxRef("a", "b"), "u", State.READY, tokens_not_before=not_before)


@pytest.mark.parametrize(
    ("issued_at", "is_older"), [(99.0, True), (100.0, False), (101.0, False), (None, True)]
)
def test_a_token_issued_before_the_time_or_at_no_known_time_is_too_old(
    issued_at: float | None, is_older: bool
) -> None:
    assert older_than_allowed(_token(issued_at=issued_at), 100.0) is is_older


@pytest.mark.parametrize("mode", ["none", "static", "mtls"])
def test_what_is_no_issued_token_has_no_age(mode: str) -> None:
    assert not older_than_allowed(_token(mode=mode), 100.0)


@pytest.mark.parametrize(
    ("grace_s", "expires_at", "ends_at"),
    [
        (60.0, 1000.0, 1060.0),
        (0.0, 1000.0, 1000.0),
        (math.inf, 1000.0, None),
        (60.0, None, None),
    ],
)
def test_a_stream_ends_the_grace_after_its_token(
    grace_s: float, expires_at: float | None, ends_at: float | None
) -> None:
    revocation = Revocation(policy=CurrentPolicy(), auth_grace_s=grace_s)

    assert revocation.end_of_right(_token(expires_at=expires_at)) == ends_at


@pytest.mark.parametrize(
    ("policy", "is_refused"),
    [
        (Policy(), False),
        (Policy(revoked=frozenset({"id-1"})), True),
        (Policy(revoked=frozenset({"id-2"})), False),
        (Policy(not_before=(NotBefore("https://i", "", 200.0),)), True),
        (Policy(not_before=(NotBefore("https://i", "", 50.0),)), False),
        (Policy(not_before=(NotBefore("https://j", "", 200.0),)), False),
        (Policy(not_before=(NotBefore("", "alice", 200.0),)), True),
        (Policy(not_before=(NotBefore("", "bob", 200.0),)), False),
        (Policy(not_before=(NotBefore("https://i", "bob", 200.0),)), False),
        (Policy(not_before=(NotBefore("https://i", "alice", 200.0),)), True),
    ],
)
def test_the_policy_revokes_by_id_and_by_age_of_issuer_and_subject(
    policy: Policy, is_refused: bool
) -> None:
    revocation = Revocation(policy=CurrentPolicy(policy), auth_grace_s=60)
    principal = _token(token_id="id-1", issuer="https://i", issued_at=100.0)

    assert revocation.is_refused(principal) is is_refused
    assert revocation.is_revoked(principal, _box()) is is_refused


def test_a_sandbox_revokes_older_tokens_as_soon_as_its_annotation_says_so() -> None:
    revocation = Revocation(policy=CurrentPolicy(), auth_grace_s=60)
    principal = _token(issued_at=100.0)

    assert not revocation.is_revoked(principal, _box(not_before=100.0))
    assert revocation.is_revoked(principal, _box(not_before=100.5))


def test_an_open_stream_is_held_to_the_sandbox_as_it_is_known_now() -> None:
    known = _box()
    revocation = Revocation(policy=CurrentPolicy(), auth_grace_s=60, current=lambda endpoint: known)
    authorised_for = _box()
    principal = _token(issued_at=100.0)
    assert not revocation.is_revoked(principal, authorised_for)

    known = _box(not_before=101.0)

    assert revocation.is_revoked(principal, authorised_for)


def test_a_policy_that_changes_later_counts_for_streams_that_are_open() -> None:
    current = CurrentPolicy()
    revocation = Revocation(policy=current, auth_grace_s=60)
    principal = _token(token_id="id-1")
    assert not revocation.is_revoked(principal, _box())

    current.replace(Policy(revoked=frozenset({"id-1"})))

    assert revocation.is_revoked(principal, _box())


def test_a_shared_token_is_not_revoked_by_an_id_it_does_not_have() -> None:
    current = CurrentPolicy(Policy(revoked=frozenset({""})))
    revocation = Revocation(policy=current, auth_grace_s=60)

    assert not revocation.is_revoked(_token(mode="static"), _box())
    assert not revocation.is_revoked(_token(), _box())
