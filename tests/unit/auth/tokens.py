"""Keys of every family, and tokens signed with them."""

from __future__ import annotations

import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from router.auth.algorithms import family_of
from router.auth.keys import VerificationKey

SECRET = b"0123456789abcdef" * 4
OTHER_SECRET = b"fedcba9876543210" * 4
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()

SIGNING_KEYS: dict[str, Any] = {
    "HS256": SECRET,
    "HS384": SECRET,
    "HS512": SECRET,
    "RS256": RSA_KEY,
    "PS256": RSA_KEY,
    "ES256": EC_KEY,
    "EdDSA": ED_KEY,
}


def public_pem(private_key: Any) -> bytes:
    """Returns the public half as PEM."""
    pem: bytes = private_key.public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )
    return pem


def sign(
    claims: dict[str, Any],
    *,
    algorithm: str = "HS256",
    key: Any = None,
    headers: dict[str, Any] | None = None,
) -> bytes:
    """Returns a token with an `exp` an hour from now unless the claims say otherwise (None leaves it out)."""
    body = {"exp": int(time.time()) + 3600, **claims}
    body = {name: value for name, value in body.items() if value is not None}
    signing_key = SIGNING_KEYS[algorithm] if key is None else key
    return jwt.encode(body, signing_key, algorithm=algorithm, headers=headers).encode()


class Clock:
    """A time of day that tests move."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def every_key() -> tuple[VerificationKey, ...]:
    """Returns one verification key of each family, without names."""
    materials = [SECRET, RSA_KEY.public_key(), EC_KEY.public_key(), ED_KEY.public_key()]
    return tuple(VerificationKey("", family_of(material), material) for material in materials)
