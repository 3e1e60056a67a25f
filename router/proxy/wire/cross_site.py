"""Whether a page of another origin is behind a request that a browser has added its user's session to.

By Origin and Fetch Metadata, which no page can write; for browsers that send none of it, by Referer.
"""

from __future__ import annotations

import re
from typing import Final

from router.proxy.wire.forwarding import is_own_origin
from router.proxy.wire.navigation import is_navigation, value_of
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.session_cookie import SessionRules

_SAFE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_OF_ITS_OWN: Final = (b"same-origin", b"none")
_FRAMES: Final = (b"iframe", b"frame")
_ORIGIN_OF = re.compile(rb"https?://[^/?#@\\]{1,300}", re.IGNORECASE)


def why_foreign(
    head: RequestHead, peer: Peer, rules: SessionRules, *, needs_tls: bool = False
) -> str:
    """Returns what speaks for a foreign page, for the log; "" when the user's own page, or the user, asks.

    `needs_tls`: the session's cookie is sent by https alone, so the sandbox's own origin has that scheme.
    """
    if head.method in _SAFE and head.upgrade is None:
        return _why_foreign_read(head, peer, rules, needs_tls)
    origin = head.origin
    if origin is None:
        return "neither a change nor an upgrade comes without Origin"
    if _is_accepted(origin, head, peer, rules, needs_tls):
        return ""
    if origin == b"null" and head.upgrade is None and _site(head) == b"same-origin":
        return ""  # a form of a page whose Referrer-Policy is no-referrer (Fetch §3.2.6)
    return "Origin is another one"


def is_by_a_person(head: RequestHead, rules: SessionRules) -> bool:
    """Returns True for a request by which a browser opens a page in a window, or says nothing of how it uses it."""
    mode, dest = value_of(head, b"sec-fetch-mode"), value_of(head, b"sec-fetch-dest")
    if mode is None and dest is None:
        return True
    return mode == b"navigate" and _is_shown(dest, rules)


def is_from_elsewhere(head: RequestHead) -> bool:
    """Returns True unless the user typed or clicked outside of any page, or on the sandbox's own."""
    return _site(head) not in _OF_ITS_OWN


def _why_foreign_read(head: RequestHead, peer: Peer, rules: SessionRules, needs_tls: bool) -> str:
    site = _site(head)
    if site in _OF_ITS_OWN:
        return ""
    said = head.origin or _referring_origin(head)
    if said is not None and _is_accepted(said, head, peer, rules, needs_tls):
        return ""
    if site is not None:
        is_shown = _is_shown(value_of(head, b"sec-fetch-dest"), rules)
        return "" if is_shown and is_navigation(head) else f"Sec-Fetch-Site is {_shown(site)}"
    if head.origin is not None:
        return "Origin is another one"
    return "Referer is of another origin" if said is not None and not is_navigation(head) else ""


def _is_shown(dest: bytes | None, rules: SessionRules) -> bool:
    return dest == b"document" or (rules.iframe and dest in _FRAMES)


def _is_accepted(
    origin: bytes, head: RequestHead, peer: Peer, rules: SessionRules, needs_tls: bool
) -> bool:
    if origin.lower() in rules.origins:
        return True
    if needs_tls and not origin.lower().startswith(b"https://"):
        return False
    return is_own_origin(origin, head, peer)


def _site(head: RequestHead) -> bytes | None:
    # As browsers spell it, and as fronts that speak HTTP/2 do, without a look at every line (bench/plane_cases.py).
    block = head.block
    at = block.find(b"\r\nSec-Fetch-Site:")
    if at < 0:
        at = block.find(b"\r\nsec-fetch-site:")
        if at < 0:
            return value_of(head, b"sec-fetch-site")
    return block[at + 17 : block.find(b"\r\n", at + 2)].strip(b" \t")


def _referring_origin(head: RequestHead) -> bytes | None:
    referer = value_of(head, b"referer")
    match = None if referer is None else _ORIGIN_OF.match(referer)
    return None if match is None else match[0]


def _shown(site: bytes) -> str:
    return site[:20].decode("ascii", "replace")
