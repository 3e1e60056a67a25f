"""The credential of a run: one gateway token, which the router verifies and its peers compare."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

import jwt

_VALID_S = 86_400


@dataclass(frozen=True, slots=True)
class Credential:
    """A gateway token (JWT, HS256) for every sandbox of the namespace, and the secret it is signed with."""

    token: str = field(repr=False)
    secret: str = field(repr=False)


def new_credential() -> Credential:
    """Returns a token of a new secret."""
    secret = secrets.token_urlsafe(48)
    claims = {
        "sub": "session-8c1f",
        "jti": "5f0c6c7e",
        "exp": int(time.time()) + _VALID_S,
        "sandboxes": [{"namespace": "default", "name": "*"}],
    }
    return Credential(jwt.encode(claims, secret, "HS256"), secret)
