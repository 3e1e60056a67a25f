"""What several tests of this room need."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from router.auth.claims import ClaimRules
from router.auth.jwt import JwtVerifier, RemoteKeys
from router.auth.keys import KeyRing, VerificationKey
from router.auth.policy import CurrentPolicy
from router.auth.revocation import Revocation
from tests.unit.auth.tokens import Clock, every_key


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def policy() -> CurrentPolicy:
    return CurrentPolicy()


@pytest.fixture
def make_verifier(clock: Clock, policy: CurrentPolicy) -> Callable[..., JwtVerifier]:
    """Returns a maker of verifiers with the given keys, by default those of every family and without names."""

    def make(
        *keys: VerificationKey,
        ring: KeyRing | None = None,
        issuer: str | None = None,
        audiences: tuple[str, ...] = (),
        leeway_s: float = 0.0,
        remote: RemoteKeys | None = None,
    ) -> JwtVerifier:
        if ring is None:
            ring = KeyRing()
            ring.replace("test", keys or every_key())
        verifier = JwtVerifier(
            keys=ring,
            rules=ClaimRules(issuer, audiences, leeway_s),
            is_refused=Revocation(policy=policy, auth_grace_s=60).is_refused,
            remote=remote,
            clock=clock,
        )
        policy.on_change(verifier.forget)
        return verifier

    return make
