"""The host and port of a URL or a Host header, so that two spellings can be compared."""

from __future__ import annotations

import re
from typing import Final

_DEFAULT_PORTS: Final = {b"http": 80, b"https": 443}
_PORT = re.compile(rb":([0-9]{0,5})")
_MAX_LENGTH: Final = 320
"""A DNS name has 253 characters, a port 5; what is longer is compared as it is written."""


def canonical_authority(authority: bytes, scheme: bytes) -> bytes:
    """Returns `host[:port]` in lower case, without a port that is the scheme's default (no scheme: without one that is empty)."""
    if len(authority) > _MAX_LENGTH:
        return authority
    lower = authority.lower()
    at = lower.rfind(b":")
    port = _PORT.fullmatch(lower, at) if at >= 0 else None
    if port is None:
        return lower
    number = int(port[1] or 0)
    if number in (0, _DEFAULT_PORTS.get(scheme)):
        return lower[:at]
    return b"%b:%d" % (lower[:at], number)
