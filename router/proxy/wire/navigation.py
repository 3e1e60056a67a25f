"""What a person's browser asks for when it opens a page, told from what scripts and programs ask for."""

from __future__ import annotations

import re
from typing import Final

from router.proxy.wire.forwarding import front_prefix
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead
from router.routing.target import Target

_PAGES: Final = frozenset({b"text/html", b"application/xhtml+xml"})
_SHOWN: Final = frozenset({b"GET", b"HEAD", b"POST"})
_MAX_TYPES: Final = 64
_QUALITY = re.compile(rb"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")


def is_navigation(head: RequestHead) -> bool:
    """Returns True for a GET by which a browser opens a page (Fetch Metadata; for older browsers by what they accept)."""
    if head.method != b"GET" or head.upgrade is not None:
        return False
    mode = value_of(head, b"sec-fetch-mode")
    return _prefers_pages(value_of(head, b"accept")) if mode is None else mode == b"navigate"


def is_shown_to_a_person(head: RequestHead) -> bool:
    """Returns True when a browser shows what it gets as a page: a navigation, or a form that was sent."""
    if head.upgrade is not None:
        return False
    mode = value_of(head, b"sec-fetch-mode")
    if mode is not None:
        return mode == b"navigate"
    return head.method in _SHOWN and _prefers_pages(value_of(head, b"accept"))


def is_preflight(head: RequestHead) -> bool:
    """Returns True for a CORS preflight (Fetch §4.8): OPTIONS that asks for a method, with no body and no credential."""
    return (
        head.method == b"OPTIONS"
        and head.origin is not None
        and not head.has_body
        and head.upgrade is None
        and head.authorization is None
        and head.sandbox_token is None
        and head.client_cert is None
        and value_of(head, b"access-control-request-method") is not None
    )


def missing_slash(target: Target, head: RequestHead, peer: Peer) -> bytes | None:
    """Returns where to send a browser that opens a sandbox's root without the slash at its end, None for any other request.

    Without it the page's relative links would lead to the sandbox's neighbours.
    """
    root = target.path_root
    if not root or head.target[len(root) : len(root) + 1] == b"/" or not is_navigation(head):
        return None
    return b"%b%b/%b" % (front_prefix(head, peer), root, head.target[len(root) :])


def fetch_mode(head: RequestHead) -> bytes | None:
    """Returns the raw Sec-Fetch-Mode, by which a browser says what it asks for; None when there is none."""
    # Few clients send it; spelled otherwise, no browser does.
    if b"Sec-Fetch-Mode:" not in head.block and b"sec-fetch-mode:" not in head.block:
        return None
    return value_of(head, b"sec-fetch-mode")


def value_of(head: RequestHead, wanted: bytes) -> bytes | None:
    """Returns the value of the first line of that name (lower case), None without one."""
    for line in head.lines[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == wanted:
            return value.strip(b" \t")
    return None


def _prefers_pages(accept: bytes | None) -> bool:
    """Returns True when a page is what an Accept header wants most; of several that it wants alike, the first counts."""
    if accept is None or accept.count(b",") >= _MAX_TYPES:
        return False
    best, best_quality = b"", 0.0
    for element in accept.split(b","):
        media_type, *parameters = (part.strip(b" \t").lower() for part in element.split(b";"))
        quality = _quality(parameters)
        if quality > best_quality:
            best, best_quality = media_type, quality
    return best in _PAGES


def _quality(parameters: list[bytes]) -> float:
    for parameter in parameters:
        if parameter.startswith(b"q="):
            return float(parameter[2:]) if _QUALITY.fullmatch(parameter[2:]) else 0.0
    return 1.0
