"""HTTP Basic (RFC 7617): any user name, and a token as the password, for clients that can't say Bearer."""

from __future__ import annotations

import base64
import binascii
import re

CHALLENGE = 'Basic realm="sandbox-router", charset="UTF-8"'

_COMPACT_JWS = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)


def basic_token(authorization: bytes) -> bytes | None:
    """Returns the password of an `Authorization: Basic` value; None when there is none, or the value is malformed."""
    words = authorization.split()
    if len(words) != 2 or words[0].lower() != b"basic":
        return None
    try:
        decoded = base64.b64decode(words[1], validate=True)
    except binascii.Error:
        return None
    return decoded.partition(b":")[2] or None


def looks_like_a_gateway_token(password: bytes) -> bool:
    """Returns True for what has the form of a signed token: no app's password does by chance."""
    return _COMPACT_JWS.fullmatch(password) is not None


def helps(fetch_mode: bytes | None) -> bool:
    """Returns True when a client can do something with an offer of Basic.

    git and its like send a password only when it is offered. A browser opens a dialog, which makes sense for a page that a
    person asked for, and not for each of the images, scripts and WebSockets that a page asks for (Sec-Fetch-Mode).
    """
    return fetch_mode is None or fetch_mode == b"navigate"
