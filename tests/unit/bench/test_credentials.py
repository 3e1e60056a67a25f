"""The credential of a run."""

from __future__ import annotations

from bench.credentials import new_credential
from router.auth.claims import ClaimRules
from router.auth.jwt import JwtVerifier
from router.auth.keys import KeyRing, parse_key_file
from router.auth.policy import CurrentPolicy
from router.auth.revocation import Revocation


def test_a_run_has_a_credential_of_its_own() -> None:
    first, second = new_credential(), new_credential()

    assert first.token != second.token
    assert first.secret not in repr(first)


def test_the_token_is_one_that_the_router_takes_for_the_secret() -> None:
    credential = new_credential()
    keys = KeyRing()
    keys.replace("file", parse_key_file(credential.secret.encode(), allow_secrets=True))
    revocation = Revocation(policy=CurrentPolicy(), auth_grace_s=60.0)
    verifier = JwtVerifier(
        keys=keys,
        rules=ClaimRules(issuer=None, audiences=(), leeway_s=0.0),
        is_refused=revocation.is_refused,
        remote=None,
    )

    assert verifier.verify(credential.token.encode()).subject == "session-8c1f"
