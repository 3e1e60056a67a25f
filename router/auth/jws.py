"""The compact form of a signed token (RFC 7515 §7.1), taken apart strictly before anything in it is believed."""

from __future__ import annotations

import base64
import re
from typing import Any, NamedTuple

import orjson

_COMPACT = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
BEARER_TYPES = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})
LINK_TYPES = frozenset({"link+jwt", "application/link+jwt"})
SESSION_TYPES = frozenset({"session+jwt", "application/session+jwt"})
HOME_LINK_TYPES = frozenset({"home-link+jwt", "application/home-link+jwt"})
HOME_TYPES = frozenset({"home+jwt", "application/home+jwt"})
"""What `typ` says of the kinds of tokens, in lower case. None is good for what another is for (RFC 8725 §3.11)."""


class NotJwsError(ValueError):
    """The bytes are no compact JWS with JSON in it; the message says what is wrong without repeating any of it."""


_FOR_BROWSERS = LINK_TYPES | SESSION_TYPES | HOME_LINK_TYPES | HOME_TYPES


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


def header_fault(header: dict[str, Any], types: frozenset[str] = BEARER_TYPES) -> str:
    """Returns what forbids a token of these types to have this header; "" for nothing.

    Keys that a header brings along (`jwk`, `jku`, `x5u`, `x5c`) are never used.
    """
    if "crit" in header:
        return "The token needs an extension that is not supported."
    if not isinstance(header.get("alg"), str):
        return "The token names no algorithm."
    if not isinstance(header.get("kid", ""), str):
        return "The token's key id is not a text."
    return "" if _type_of(header) in types else "The token is of another type."


def is_for_browsers(header: dict[str, Any]) -> bool:
    """Returns True for a link's or a session's token: this router's business alone, whatever else is wrong with it."""
    return _type_of(header) in _FOR_BROWSERS


def _type_of(header: dict[str, Any]) -> str:
    kind = header.get("typ", "JWT")
    return kind.lower() if isinstance(kind, str) else "?"


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
