"""Grant: the UID is the fence against whoever comes to live under a name."""

from __future__ import annotations

import pytest

from router.auth.principal import Grant
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
