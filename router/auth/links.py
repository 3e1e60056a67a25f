"""Links: tokens by which a person's browser begins a session in one sandbox, on one port; good for nothing else."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from router.auth.claims import BadClaimsError, ClaimRules, checked, text_claim
from router.auth.grants import GrantError, parse_grants
from router.auth.jws import LINK_TYPES
from router.auth.jwt import TokenKind
from router.auth.principal import ANY, Grant, Principal
from router.auth.verifier import Reason

MAX_LIFE_S: Final = 600
"""A link goes through chats and logs: it is no longer good than this after it was minted."""
MAX_PATH: Final = 2048

_PRINTABLE = re.compile(r"/[!-\[\]-~]*", re.ASCII)
_AUTHORITY: Final = ("//", "/\\")
_DECODINGS: Final = 5
_NOT_ONE_SANDBOX: Final = "The token does not name one sandbox: namespace, name and port."


class LinkClaims(NamedTuple):
    """What a verified link asks for beside the sandbox: where to go, and how long the session may last (None: as usual)."""

    path: str
    session_ttl_s: float | None


def link_principal(
    claims: dict[str, Any], rules: ClaimRules, now: float, *, key_id: str
) -> Principal:
    """Returns who begins a session by the link, with the one grant that it has. Raises BadClaimsError."""
    facts = checked(claims, rules, now)
    if facts.issued_at is None:
        raise BadClaimsError(Reason.BAD_CLAIMS, "The link does not say when it was made (iat).")
    if facts.expires_at - facts.issued_at > MAX_LIFE_S:
        raise BadClaimsError(
            Reason.BAD_CLAIMS, f"The link is good for more than {MAX_LIFE_S} seconds."
        )
    token_id = text_claim(claims, "jti")
    if not token_id:
        raise BadClaimsError(Reason.BAD_CLAIMS, "The link has no id (jti).")
    read_link(claims)
    return Principal(
        subject=facts.subject,
        mode="link",
        issuer=facts.issuer,
        grants=(sandbox_grant(claims),),
        token_id=token_id,
        key_id=key_id,
        issued_at=facts.issued_at,
        expires_at=facts.expires_at,
    )


LINKS: Final = TokenKind("link", LINK_TYPES, link_principal)


def sandbox_grant(claims: dict[str, Any]) -> Grant:
    """Returns the one sandbox and port that a link or session is for. Raises BadClaimsError."""
    named = {key: claims[key] for key in ("namespace", "name", "uid", "wake") if key in claims}
    try:
        (grant,) = parse_grants([{**named, "ports": [claims.get("port")]}])
    except GrantError:
        raise BadClaimsError(Reason.BAD_CLAIMS, _NOT_ONE_SANDBOX) from None
    if ANY in (grant.namespace, grant.name):
        raise BadClaimsError(Reason.BAD_CLAIMS, _NOT_ONE_SANDBOX)
    return grant


def read_link(claims: dict[str, Any]) -> LinkClaims:
    """Returns what the link asks for. Raises BadClaimsError."""
    path = text_claim(claims, "path") or "/"
    if not is_own_path(path):
        raise BadClaimsError(Reason.BAD_CLAIMS, "The link's path is no path in the sandbox.")
    ttl = claims.get("session_ttl")
    if ttl is not None and (
        isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < 1e9
    ):
        raise BadClaimsError(Reason.BAD_CLAIMS, "The link's session_ttl is no time in seconds.")
    return LinkClaims(path, ttl)


def is_own_path(path: str) -> bool:
    """Returns True for a path that leads to the same host, and out of no sandbox's root, however often it is decoded.

    Browsers take a backslash for a slash and leave out control characters; what comes behind `?` or `#` is the app's.
    """
    if len(path) > MAX_PATH or not _PRINTABLE.fullmatch(path):
        return False
    decoded = re.split(r"[?#]", path, maxsplit=1)[0]
    for _ in range(_DECODINGS):
        if (
            decoded.startswith(_AUTHORITY)
            or not decoded.isprintable()
            or ".." in re.split(r"[/\\]", decoded)
        ):
            return False
        before, decoded = decoded, unquote(decoded)
        if before == decoded:
            return True
    return False
