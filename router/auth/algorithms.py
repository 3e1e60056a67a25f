"""Signature algorithms that gateway tokens may use, and which kind of key each one takes."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import Algorithm, get_default_algorithms

HMAC = frozenset({"HS256", "HS384", "HS512"})
RSA = frozenset({"RS256", "PS256"})
EC = frozenset({"ES256"})
EDDSA = frozenset({"EdDSA"})

SUPPORTED = HMAC | RSA | EC | EDDSA
"""The closed set. `none` is not in it, and no key allows more than one of the four families (RFC 8725 §3.1)."""

MIN_SECRET_BYTES = 32
MIN_RSA_BITS = 2048

_IMPLEMENTATIONS: dict[str, Algorithm] = {
    name: algorithm for name, algorithm in get_default_algorithms().items() if name in SUPPORTED
}


def implementation(name: str) -> Algorithm:
    """Returns PyJWT's implementation of a supported algorithm."""
    return _IMPLEMENTATIONS[name]


def family_of(key: Any) -> frozenset[str]:
    """Returns the algorithms that a public key, or the bytes of a secret, may be used with.

    Raises ValueError for keys that are too weak or of a kind that is not supported.
    """
    if isinstance(key, bytes):
        if len(key) < MIN_SECRET_BYTES:
            raise ValueError(f"the secret is shorter than {MIN_SECRET_BYTES} bytes")
        return HMAC
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < MIN_RSA_BITS:
            raise ValueError(f"the RSA key is shorter than {MIN_RSA_BITS} bits")
        return RSA
    if isinstance(key, ec.EllipticCurvePublicKey):
        if not isinstance(key.curve, ec.SECP256R1):
            raise ValueError(f"the curve {key.curve.name} is not supported, only P-256 is")
        return EC
    if isinstance(key, ed25519.Ed25519PublicKey):
        return EDDSA
    raise ValueError("the kind of key is not supported: use RSA, EC P-256 or Ed25519")
