"""The bytes that tell Envoy that a request may pass, where to, and what of it must not reach the sandbox (ext_authz over HTTP)."""

from __future__ import annotations

from typing import Final

from router.proxy.wire.forwarding import without_token
from router.proxy.wire.header_rules import REQUEST_KINDS, Kind
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.stripping import Stripped

_REMOVED_KINDS: Final = frozenset(
    {
        Kind.DROP,
        Kind.CLAIM,
        Kind.CLIENT_CERT,
        Kind.FORWARDED_HOST,
        Kind.FORWARDED_PREFIX,
        *range(Kind.SANDBOX_TOKEN, Kind.SANDBOX_TIMEOUT + 1),
    }
)
_ALWAYS: Final = sorted(
    {
        b"x-envoy-original-dst-host",
        *(name for name in REQUEST_KINDS.names if REQUEST_KINDS[name] in _REMOVED_KINDS),
    }
)
"""Names that are removed whether or not this check was told of them."""


def probe_answer(*, is_head: bool, close: bool) -> bytes:
    """Returns what a probe of the listener gets: Envoy would let a request pass for 200 alone."""
    end = b"Connection: close\r\n\r\n" if close else b"\r\n"
    return b"HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n" + end


def yes_answer(
    head: RequestHead,
    upstream: bytes,
    *,
    keep_authorization: bool,
    stripped: Stripped | None,
    is_head: bool,
    close: bool,
) -> bytes:
    """Returns the response that sends the request to `upstream` (`address:port`).

    What it changes comes as headers of the same name: the Envoy must take `cookie` and `sec-websocket-protocol` from it.
    """
    removed = dict.fromkeys(_ALWAYS)
    for kind, name, _, _ in head.special:
        if kind in _REMOVED_KINDS:
            removed[name.lower()] = None
    if not keep_authorization:
        removed[b"authorization"] = None
    if stripped is not None:
        removed.update(dict.fromkeys(stripped.headers.whole))
        for at in stripped.places(head.lines) if stripped.has_headers else ():
            removed[head.lines[at].partition(b":")[0].lower()] = None
    lines = [
        b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 0\r\n",
        b"X-Sandbox-Upstream: %b\r\n" % upstream,
    ]
    if head.cookie and stripped is not None:
        _change(lines, removed, b"cookie", head.cookie, _cookies(head.cookie, stripped))
    if head.subprotocols:
        left = without_token(head.subprotocols)
        _change(lines, removed, b"sec-websocket-protocol", head.subprotocols, left)
    lines.append(b"X-Envoy-Auth-Headers-To-Remove: %b\r\n" % b",".join(removed))
    lines.append(b"Connection: close\r\n\r\n" if close else b"\r\n")
    return b"".join(lines)


def _cookies(value: bytes, stripped: Stripped) -> bytes:
    """Returns the cookies that may cross. Envoy joins several Cookie lines by commas, which cookies of some apps have too."""
    left = stripped.without_cookies(value)
    if b"," in left:
        apart = left.replace(b",", b";")
        kept = stripped.without_cookies(apart)
        if kept != apart:
            return kept
    return left


def _change(
    lines: list[bytes], removed: dict[bytes, None], name: bytes, came: bytes, left: bytes
) -> None:
    if not left:
        removed[name] = None
    elif left != came:
        lines.append(b"%b: %b\r\n" % (name, left))
