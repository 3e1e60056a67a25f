"""Links and sessions as platforms and the router mint them, for tests."""

from __future__ import annotations

import secrets
import time
from typing import Any

import jwt

PLATFORM_SECRET = b"platform-secret-platform-secret-platform"
SESSION_SECRET = b"session-secret-session-secret-session-se"


def link(secret: bytes = PLATFORM_SECRET, *, typ: str | None = "link+jwt", **claims: Any) -> str:
    """Returns a link to team-a/box-a:8888 of alice, good for a minute, unless the claims say otherwise (None leaves one out)."""
    now = int(time.time())
    body = {
        "jti": secrets.token_hex(8),
        "iat": now,
        "exp": now + 60,
        "sub": "alice",
        "namespace": "team-a",
        "name": "box-a",
        "port": 8888,
        **claims,
    }
    body = {name: value for name, value in body.items() if value is not None}
    headers = None if typ is None else {"typ": typ}
    return jwt.encode(body, secret, algorithm="HS256", headers=headers)


def session(secret: bytes = SESSION_SECRET, **claims: Any) -> str:
    """Returns a session of alice's in team-a/box-a:8888, as link() does a link."""
    return link(secret, typ="session+jwt", **{"sid": secrets.token_hex(8), **claims})


def bearer(secret: bytes = PLATFORM_SECRET, **claims: Any) -> str:
    """Returns a gateway token of alice's for team-a/box-a."""
    grants = [{"namespace": "team-a", "name": "box-a"}]
    return link(
        secret,
        typ="JWT",
        **{"namespace": None, "name": None, "port": None, "sandboxes": grants, **claims},
    )


def home_link(**claims: Any) -> str:
    """Returns a link of alice's to the home page, for team-a's sandboxes."""
    return _for_home("home-link+jwt", claims)


def home_session(**claims: Any) -> str:
    """Returns a session of alice's on the home page, as home_link() does a link."""
    return _for_home("home+jwt", {"sid": secrets.token_hex(8), **claims})


def _for_home(typ: str, claims: dict[str, Any]) -> str:
    grants = [{"namespace": "team-a", "name": "*", "wake": True}]
    nothing_else = {"namespace": None, "name": None, "port": None}
    secret = claims.pop("secret", SESSION_SECRET)
    return link(secret, typ=typ, **{**nothing_else, "sandboxes": grants, **claims})
