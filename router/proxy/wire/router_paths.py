"""The paths that are the router's own, in each way of naming a sandbox: no sandbox sees them."""

from __future__ import annotations

from typing import Final

PREFIX: Final = b"/.sandbox-router/"
AWAKE: Final = b"awake"
SESSION: Final = b"session"
LOGOUT: Final = b"logout"
TCP: Final = b"tcp"
_LINK: Final = b"link="


def own_path(target: bytes, root: bytes) -> bytes | None:
    """Returns what follows the prefix, without a query, where the path behind the sandbox's `root` is the router's own; else None."""
    if not target.startswith(PREFIX, len(root)):
        return None
    return target[len(root) + len(PREFIX) :].partition(b"?")[0]


def link_in(target: bytes) -> bytes:
    """Returns the link's token that a request target brings; b"" without one, or with several."""
    query = target.partition(b"?")[2]
    found = [part[len(_LINK) :] for part in query.split(b"&", 64) if part.startswith(_LINK)]
    return found[0] if len(found) == 1 else b""
