"""Permit: it names the very pod that was authorised."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from router.auth.authorizer import Permit
from router.auth.principal import Principal
from router.routing.endpoint import Endpoint, SandboxRef, State


def test_a_permit_tells_who_may_reach_which_pod() -> None:
    endpoint = Endpoint(SandboxRef("a", "b"), "uid-1", State.READY, ("192.0.2.1",))

    assert repr(Permit(Principal("alice", "jwt"), endpoint, 80)) == (
        "<Permit 'alice' -> a/b:80 uid=uid-1>"
    )


def test_nothing_can_be_added_to_a_permit() -> None:
    endpoint = Endpoint(SandboxRef("a", "b"), "uid-1", State.READY, ("192.0.2.1",))

    with pytest.raises(AttributeError):
        Permit(Principal("alice", "jwt"), endpoint, 80).host = "192.0.2.2"  # type: ignore[attr-defined]


def test_a_permit_knows_what_connections_to_its_pod_are_pooled_by() -> None:
    named = Endpoint(
        SandboxRef("a", "b"), "uid-1", State.READY, ("192.0.2.1",), ports=MappingProxyType({80: 8})
    )
    without_uid = Endpoint(SandboxRef("a", "b"), "", State.READY, ("b.a.svc.",))

    assert Permit(Principal("alice", "jwt"), named, 80).key == ("uid-1", ("192.0.2.1",), 8)
    assert Permit(Principal("alice", "jwt"), without_uid, 80).key == ("a/b", ("b.a.svc.",), 80)
