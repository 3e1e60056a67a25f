"""Minting: the other side of mode `jwt`, for platforms and for trying things out."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from router.auth.algorithms import EC, EDDSA, HMAC, RSA, family_of, implementation
from router.auth.claims import BadClaimsError, ClaimRules
from router.auth.grants import parse_grants
from router.auth.home_tokens import home_link_principal
from router.auth.keys import parse_secrets
from router.auth.links import link_principal

_THUMBPRINT_MEMBERS = ("crv", "e", "kty", "n", "x", "y")
_DEFAULT_ALGORITHMS = {HMAC: "HS256", RSA: "RS256", EC: "ES256", EDDSA: "EdDSA"}


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key, or a secret, with the algorithm it signs by. `kid` "" leaves the header out."""

    algorithm: str
    kid: str
    material: Any = field(repr=False)

    @classmethod
    def from_secrets(cls, content: bytes, *, kid: str | None = None) -> SigningKey:
        """Returns the secret named `kid`, by default the first, of a file of secrets. Raises ValueError."""
        found = parse_secrets(content)
        for name, secret in found:
            if kid is None or name == kid:
                return cls("HS256", name, secret)
        raise ValueError("holds no secret of that name")

    @classmethod
    def from_pem(
        cls, content: bytes, *, algorithm: str | None = None, kid: str | None = None
    ) -> SigningKey:
        """Returns the private key in `content`; its `kid` is the RFC 7638 thumbprint unless given. Raises ValueError."""
        try:
            material: Any = load_pem_private_key(content, password=None)
        except TypeError:
            raise ValueError("is encrypted: decrypt it first") from None
        except (ValueError, UnsupportedAlgorithm):
            raise ValueError("holds no private key in PEM") from None
        family = family_of(material.public_key())
        chosen = algorithm or _DEFAULT_ALGORITHMS[family]
        if chosen not in family:
            raise ValueError(
                f"the key can't sign by {chosen}; it can by {', '.join(sorted(family))}"
            )
        named = kid if kid is not None else str(public_jwk(material, chosen)["kid"])
        return cls(chosen, named, material)

    @classmethod
    def generate(cls, algorithm: str) -> SigningKey:
        """Returns a new key for `algorithm`."""
        material: Any
        if algorithm in HMAC:
            return cls(algorithm, "", secrets.token_urlsafe(48).encode("ascii"))
        if algorithm in RSA:
            material = rsa.generate_private_key(public_exponent=65537, key_size=3072)
        elif algorithm in EC:
            material = ec.generate_private_key(ec.SECP256R1())
        else:
            material = ed25519.Ed25519PrivateKey.generate()
        return cls(algorithm, str(public_jwk(material, algorithm)["kid"]), material)

    def private_pem(self) -> bytes:
        """Returns the private key as unencrypted PKCS #8."""
        pem: bytes = self.material.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return pem


def public_jwk(private_key: Any, algorithm: str) -> dict[str, Any]:
    """Returns the public half as a JWK for `jwks-file`, with its thumbprint as `kid`."""
    members = implementation(algorithm).to_jwk(private_key.public_key(), as_dict=True)
    bare = {name: members[name] for name in _THUMBPRINT_MEMBERS if name in members}
    return {**bare, "alg": algorithm, "use": "sig", "kid": _thumbprint(bare)}


def grant_claim(
    *,
    namespace: str,
    name: str,
    uid: str,
    ports: Sequence[int],
    methods: Sequence[str],
    wake: bool = False,
) -> dict[str, Any]:
    """Returns one entry of the claim `sandboxes`; what is empty is left out. Raises ValueError for what the router would refuse."""
    entry: dict[str, Any] = {"namespace": namespace, "name": name}
    if uid:
        entry["uid"] = uid
    if ports:
        entry["ports"] = list(ports)
    if methods:
        entry["methods"] = list(methods)
    if wake:
        entry["wake"] = True
    parse_grants([entry])
    return entry


def mint(
    key: SigningKey,
    *,
    grants: Sequence[Mapping[str, Any]],
    ttl_s: float,
    subject: str = "",
    issuer: str = "",
    audiences: Sequence[str] = (),
    now: float | None = None,
) -> str:
    """Returns a signed token with these grants that ends after `ttl_s`, with a fresh id to revoke it by."""
    issued_at = int(time.time() if now is None else now)
    claims: dict[str, Any] = {
        "iat": issued_at,
        "exp": issued_at + max(1, int(ttl_s)),
        "jti": uuid.uuid4().hex,
        "sandboxes": list(grants),
    }
    claims |= _about(subject, issuer, audiences)
    headers = {"kid": key.kid} if key.kid else None
    return jwt.encode(claims, key.material, algorithm=key.algorithm, headers=headers)


def mint_link(
    key: SigningKey,
    *,
    namespace: str,
    name: str,
    port: int,
    ttl_s: float,
    uid: str = "",
    path: str = "/",
    session_ttl_s: float | None = None,
    wake: bool = False,
    subject: str = "",
    issuer: str = "",
    audiences: Sequence[str] = (),
    token_id: str = "",
    now: float | None = None,
) -> str:
    """Returns a link's token: whoever's browser brings it within `ttl_s` gets a session in this sandbox on this port.

    `token_id` is its `jti`, by default a fresh one. Raises ValueError for what the router would refuse.
    """
    issued_at = int(time.time() if now is None else now)
    grant = grant_claim(namespace=namespace, name=name, uid=uid, ports=(), methods=(), wake=wake)
    claims: dict[str, Any] = {
        "jti": token_id or uuid.uuid4().hex,
        "iat": issued_at,
        "exp": issued_at + max(1, int(ttl_s)),
        **grant,
        "port": port,
    }
    if path != "/":
        claims["path"] = path
    if session_ttl_s is not None:
        claims["session_ttl"] = int(session_ttl_s)
    claims |= _about(subject, issuer, audiences)
    try:
        link_principal(
            claims, ClaimRules(issuer or None, tuple(audiences), 0.0), issued_at, key_id=""
        )
    except BadClaimsError as error:
        raise ValueError(str(error)) from None
    headers = {"typ": "link+jwt", **({"kid": key.kid} if key.kid else {})}
    return jwt.encode(claims, key.material, algorithm=key.algorithm, headers=headers)


def mint_home_link(
    key: SigningKey,
    *,
    grants: Sequence[Mapping[str, Any]],
    ttl_s: float,
    session_ttl_s: float | None = None,
    subject: str = "",
    issuer: str = "",
    now: float | None = None,
) -> str:
    """Returns the token of a link to the home page: whoever's browser brings it within `ttl_s` sees the sandboxes of `grants` there.

    Raises ValueError for what the router would refuse.
    """
    issued_at = int(time.time() if now is None else now)
    claims: dict[str, Any] = {
        "jti": uuid.uuid4().hex,
        "iat": issued_at,
        "exp": issued_at + max(1, int(ttl_s)),
        "sandboxes": list(grants),
    }
    if session_ttl_s is not None:
        claims["session_ttl"] = int(session_ttl_s)
    claims |= _about(subject, issuer, ())
    try:
        home_link_principal(claims, ClaimRules(issuer or None, (), 0.0), issued_at, key_id="")
    except BadClaimsError as error:
        raise ValueError(str(error)) from None
    headers = {"typ": "home-link+jwt", **({"kid": key.kid} if key.kid else {})}
    return jwt.encode(claims, key.material, algorithm=key.algorithm, headers=headers)


def _about(subject: str, issuer: str, audiences: Sequence[str]) -> dict[str, Any]:
    """Returns the claims that say who a token is about, who says so, and for whom."""
    told: dict[str, Any] = {}
    if subject:
        told["sub"] = subject
    if issuer:
        told["iss"] = issuer
    if audiences:
        told["aud"] = audiences[0] if len(audiences) == 1 else list(audiences)
    return told


def _thumbprint(members: Mapping[str, Any]) -> str:
    """Returns the SHA-256 thumbprint of a JWK's required members (RFC 7638 §3)."""
    canonical = json.dumps(members, separators=(",", ":"), sort_keys=True).encode()
    return base64.urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()
