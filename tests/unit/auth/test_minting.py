"""Minting: what it signs, the router accepts, and nothing that the router would refuse is signed."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from router.auth.claims import ClaimRules
from router.auth.jwt import JwtVerifier
from router.auth.keys import KeyRing, parse_jwks, parse_key_file
from router.auth.minting import SigningKey, grant_claim, mint, public_jwk
from router.auth.principal import Grant, Principal
from router.auth.verifier import Refusal
from tests.unit.auth.tokens import EC_KEY, OTHER_SECRET, RSA_KEY, SECRET, public_pem

GRANT = {"namespace": "team-a", "name": "box"}


def _verify(token: str, keys: Any, issuer: str | None = None, *audiences: str) -> Any:
    ring = KeyRing()
    ring.replace("test", keys)
    verifier = JwtVerifier(
        keys=ring,
        rules=ClaimRules(issuer, audiences, 0.0),
        is_refused=lambda principal: False,
        remote=None,
    )
    return verifier.verify(token.encode())


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_a_generated_key_signs_tokens_that_its_published_half_verifies(algorithm: str) -> None:
    generated = SigningKey.generate(algorithm)
    key = SigningKey.from_pem(
        generated.private_pem(), algorithm=algorithm if algorithm == "PS256" else None
    )
    jwks = json.dumps({"keys": [public_jwk(generated.material, algorithm)]}).encode()

    verdict = _verify(mint(key, grants=[GRANT], ttl_s=60), parse_jwks(jwks, allow_secrets=False))

    assert isinstance(verdict, Principal)
    assert key.kid == generated.kid


@pytest.mark.parametrize("algorithm", ["HS256", "HS512"])
def test_a_generated_secret_is_long_enough_and_new_each_time(algorithm: str) -> None:
    first, second = SigningKey.generate(algorithm), SigningKey.generate(algorithm)

    assert len(first.material) == 64
    assert first.material != second.material


def test_a_token_says_who_what_and_how_long() -> None:
    key = SigningKey.from_secrets(SECRET)
    token = mint(
        key,
        grants=[grant_claim(namespace="a", name="b", uid="u", ports=[80], methods=["GET"])],
        ttl_s=60,
        subject="alice",
        issuer="https://platform.example",
        audiences=["router"],
        now=4_000_000_000.5,
    )

    verdict = _verify(token, parse_key_file(SECRET, allow_secrets=True))
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))

    assert isinstance(verdict, Refusal)  # issued in the future
    assert claims.pop("jti")
    assert claims == {
        "iat": 4_000_000_000,
        "exp": 4_000_000_060,
        "sub": "alice",
        "iss": "https://platform.example",
        "aud": "router",
        "sandboxes": [
            {"namespace": "a", "name": "b", "uid": "u", "ports": [80], "methods": ["GET"]}
        ],
    }


def test_every_token_has_its_own_id() -> None:
    key = SigningKey.from_secrets(SECRET)
    keys = parse_key_file(SECRET, allow_secrets=True)

    ids = {_verify(mint(key, grants=[GRANT], ttl_s=60), keys).token_id for _ in range(3)}

    assert len(ids) == 3


def test_several_audiences_and_grants_may_be_named() -> None:
    key = SigningKey.from_secrets(SECRET)
    token = mint(key, grants=[GRANT, GRANT], ttl_s=60, audiences=["a", "b"])

    verdict = _verify(token, parse_key_file(SECRET, allow_secrets=True), None, "b")

    assert verdict.grants == (Grant("team-a", "box"),) * 2


def test_the_first_secret_signs_unless_another_is_named() -> None:
    content = b"new " + SECRET + b"\nold " + OTHER_SECRET

    assert SigningKey.from_secrets(content).kid == "new"
    assert SigningKey.from_secrets(content, kid="old").material == OTHER_SECRET
    with pytest.raises(ValueError, match="of that name"):
        SigningKey.from_secrets(content, kid="older")


def test_the_key_id_is_the_thumbprint_that_everybody_computes() -> None:
    jwk = public_jwk(RSA_KEY, "RS256")

    canonical = f'{{"e":"{jwk["e"]}","kty":"RSA","n":"{jwk["n"]}"}}'.encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()

    assert jwk["kid"] == digest
    assert set(jwk) == {"kty", "n", "e", "alg", "use", "kid"}


@pytest.mark.parametrize(
    ("content", "algorithm", "message"),
    [
        (b"nothing", None, "no private key"),
        (public_pem(RSA_KEY), None, "no private key"),
        (
            RSA_KEY.private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pass")
            ),
            None,
            "is encrypted",
        ),
        (SigningKey("ES256", "", EC_KEY).private_pem(), "RS256", "can't sign by RS256"),
    ],
)
def test_what_can_not_sign_is_an_error(content: bytes, algorithm: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SigningKey.from_pem(content, algorithm=algorithm)


@pytest.mark.parametrize(
    "grant",
    [
        {"namespace": "A", "name": "b"},
        {"namespace": "a", "name": "b", "methods": ["get"]},
        {"namespace": "a", "name": "b", "ports": [0]},
    ],
)
def test_a_grant_that_the_router_would_refuse_is_not_made(grant: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        grant_claim(**{"uid": "", "ports": [], "methods": [], **grant})


def test_a_key_shows_nothing_of_itself() -> None:
    assert SECRET.decode() not in repr(SigningKey.from_secrets(SECRET))


def test_a_grant_says_that_it_wakes_only_where_it_does() -> None:
    plain = {"namespace": "a", "name": "b", "uid": "", "ports": [], "methods": []}
    assert "wake" not in grant_claim(**plain)
    assert grant_claim(**plain, wake=True)["wake"] is True
