"""The compact form of a signed token (RFC 7515 §7.1), taken apart strictly before anything in it is believed."""

from __future__ import annotations

import base64
import re
from typing import Any, NamedTuple

import orjson

_COMPACT = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_TYPES = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})


class NotJwsError(ValueError):
    """The bytes are no compact JWS with JSON in it; the message says what is wrong without repeating any of it."""


class Jws(NamedTuple):
    """A signed token in its parts. Nothing in it is verified yet."""

    header: dict[str, Any]
    claims: dict[str, Any]
    signed: bytes
    signature: bytes


def parse_jws(token: bytes) -> Jws:
    """Returns the parts of `token`. Raises NotJwsError.

    Padding, line ends and other spellings of the same bytes are refused, so one token has one form.
    """
    if not _COMPACT.fullmatch(token):
        raise NotJwsError("The token is not a JSON Web Token.")
    signed, _, signature = token.rpartition(b".")
    header, _, payload = signed.partition(b".")
    return Jws(_object(header), _object(payload), signed, _decode(signature))


def header_fault(header: dict[str, Any]) -> str:
    """Returns what forbids a token with this header; "" for nothing. Keys that a header brings along (`jwk`, `jku`, `x5u`, `x5c`) are never used."""
    if "crit" in header:
        return "The token needs an extension that is not supported."
    if not isinstance(header.get("alg"), str):
        return "The token names no algorithm."
    if not isinstance(header.get("kid", ""), str):
        return "The token's key id is not a text."
    kind = header.get("typ", "JWT")
    # Another kind of token that the same keys sign must not pass for one of these (RFC 8725 §3.11).
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        return "The token is of another type."
    return ""


def _object(part: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(_decode(part))
    except orjson.JSONDecodeError:
        raise NotJwsError("The token is not a JSON Web Token.") from None
    if not isinstance(value, dict):
        raise NotJwsError("The token is not a JSON Web Token.")
    return value


def _decode(part: bytes) -> bytes:
    if len(part) % 4 == 1:
        raise NotJwsError("The token is not a JSON Web Token.")
    decoded = base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    if base64.urlsafe_b64encode(decoded).rstrip(b"=") != part:
        raise NotJwsError("The token is not a JSON Web Token.")
    return decoded
