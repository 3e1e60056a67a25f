"""Grant: the UID is the fence against whoever comes to live under a name."""

from __future__ import annotations

import pytest

from router.auth.principal import CONNECT, Grant, Principal
from router.routing.endpoint import Endpoint, SandboxRef, State


@pytest.mark.parametrize(
    ("uid", "covers"), [("", True), ("pod-1", True), ("sandbox-1", True), ("pod-2", False)]
)
def test_a_grant_with_a_uid_covers_that_pod_or_its_sandbox_alone(uid: str, covers: bool) -> None:
    endpoint = Endpoint(
        SandboxRef("a", "b"), "pod-1", State.READY, ("192.0.2.1",), sandbox_uid="sandbox-1"
    )

    assert Grant("a", "b", uid).covers_endpoint(endpoint) is covers


def test_a_grant_with_a_uid_covers_no_endpoint_that_has_none() -> None:
    assert not Grant("a", "b", "x").covers_endpoint(Endpoint(SandboxRef("a", "b"), "", State.READY))


@pytest.mark.parametrize(
    ("caller", "share"),
    [
        (Principal("anonymous", "none"), None),
        (Principal("static-token", "static"), None),
        (Principal("alice", "jwt", issuer="https://i"), ("jwt", "", "https://i", "alice")),
        (Principal("", "jwt", token_id="j-1"), ("jwt", "token", "", "j-1")),
        (Principal("", "jwt"), None),
        (Principal("alice", "token-review"), ("token-review", "", "", "alice")),
        (Principal("alice", "mtls", kind="cn"), ("mtls", "cn", "", "alice")),
    ],
)
def test_a_share_belongs_to_whom_a_credential_tells_apart(
    caller: Principal, share: tuple[str, ...] | None
) -> None:
    assert caller.share() == share


@pytest.mark.parametrize(
    ("ports", "methods", "covers"),
    [
        (frozenset({22}), frozenset({b"CONNECT"}), True),
        (frozenset({22}), frozenset({b"CONNECT", b"GET"}), True),
        (frozenset({23}), frozenset({b"CONNECT"}), False),
        (frozenset({22}), frozenset({b"GET"}), False),
        (None, frozenset({b"CONNECT"}), False),
        (frozenset({22}), None, False),
        (None, None, False),
    ],
)
def test_a_raw_connection_is_covered_only_where_method_and_port_are_said(
    ports: frozenset[int] | None, methods: frozenset[bytes] | None, covers: bool
) -> None:
    grant = Grant("team-a", "box", ports=ports, methods=methods)
    assert grant.covers_call(22, CONNECT) is covers
