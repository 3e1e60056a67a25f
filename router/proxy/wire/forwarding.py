"""The head that a sandbox is sent, made of the client's.

On the hot path: written as plain loops over byte strings (bench/results shows what a head costs).
"""

from __future__ import annotations

import base64
import secrets
from typing import Final

from router.errors import BadRequest
from router.proxy.wire.head_lines import Special, drop_nominated
from router.proxy.wire.header_rules import Kind
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead

SUBPROTOCOL_TOKEN_PREFIX: Final = b"sandbox-router.bearer."
"""A WebSocket subprotocol of this form is a credential: consumed, never offered to the sandbox."""

_STAYS_IN_REQUEST: Final = frozenset({Kind.CONTENT_LENGTH, Kind.EXPECT, Kind.TRACEPARENT})
_REWRITTEN_IN_REQUEST: Final = frozenset(
    {Kind.TRANSFER_ENCODING, Kind.ORIGIN, Kind.WEBSOCKET_PROTOCOL}
)
_VIA: Final = {10: b"Via: 1.0 sandbox-router\r\n\r\n", 11: b"Via: 1.1 sandbox-router\r\n\r\n"}


def crossing_request_head(
    head: RequestHead,
    *,
    target: bytes,
    host: bytes,
    peer: Peer,
    keep_authorization: bool,
    origin_policy: str,
) -> bytes:
    """Returns the head that the sandbox is sent.

    `target` is what follows the method, `host` the Host header's value; `origin_policy` is `rewrite`, `keep` or `drop` and
    concerns upgrades alone.
    """
    lines = head.lines[:-2]
    lines[0] = b"%b %b HTTP/1.1" % (head.method, target)
    for special in head.special:
        kind = special[0]
        if kind in _STAYS_IN_REQUEST:
            continue
        if kind == Kind.HOST:
            lines[special[3]] = b"%b: %b" % (special[1], host)
        elif kind in _REWRITTEN_IN_REQUEST:
            lines[special[3]] = _special_line(head, special, host, origin_policy)
        elif kind != Kind.AUTHORIZATION or not keep_authorization:
            lines[special[3]] = b""
    if head.nominated:
        drop_nominated(lines, head.nominated)
    is_usual = head.upgrade is None and not head.accepts_trailers and head.has_host_line
    return b"%b\r\n%b%b%b" % (
        b"\r\n".join(filter(None, lines)),
        b"" if is_usual else _hop_by_hop(head, host),
        _forwarded(head, peer),
        _VIA[head.version],
    )


def _special_line(head: RequestHead, special: Special, host: bytes, origin_policy: str) -> bytes:
    """Returns what becomes of the line; b"" drops it."""
    kind, name, value, _ = special
    if kind == Kind.TRANSFER_ENCODING:
        return b"%b: chunked" % name
    if kind == Kind.ORIGIN:
        if head.upgrade is None or origin_policy == "keep":
            return b"%b: %b" % (name, value)
        return b"%b: http://%b" % (name, host) if origin_policy == "rewrite" else b""
    if kind == Kind.WEBSOCKET_PROTOCOL:
        offered = without_token(value)
        return b"%b: %b" % (name, offered) if offered else b""
    return b""


def without_token(subprotocols: bytes) -> bytes:
    """Returns a Sec-WebSocket-Protocol value without the router's own credential; unchanged when it holds none."""
    if SUBPROTOCOL_TOKEN_PREFIX not in subprotocols:
        return subprotocols
    parts = [part.strip(b" \t") for part in subprotocols.split(b",")]
    return b", ".join(p for p in parts if p and not p.startswith(SUBPROTOCOL_TOKEN_PREFIX))


def subprotocol_token(subprotocols: bytes | None) -> bytes | None:
    """Returns the credential that a Sec-WebSocket-Protocol value offers, None without one. Raises BadRequest for several."""
    if subprotocols is None or SUBPROTOCOL_TOKEN_PREFIX not in subprotocols:
        return None
    offered = [part.strip(b" \t") for part in subprotocols.split(b",")]
    tokens = [part for part in offered if part.startswith(SUBPROTOCOL_TOKEN_PREFIX)]
    if len(tokens) > 1:
        raise BadRequest("More than one subprotocol is a bearer token.")
    return tokens[0][len(SUBPROTOCOL_TOKEN_PREFIX) :] if tokens else None


def _hop_by_hop(head: RequestHead, host: bytes) -> bytes:
    """Returns the header lines that concern this hop, and a Host for a request that came without."""
    lines = [] if head.has_host_line else [b"Host: %b\r\n" % host]
    if head.upgrade is not None:
        lines.append(
            b"Connection: %b\r\nUpgrade: %b\r\n"
            % (b"Upgrade, TE" if head.accepts_trailers else b"Upgrade", head.upgrade)
        )
    elif head.accepts_trailers:
        lines.append(b"Connection: TE\r\n")
    if head.accepts_trailers:
        lines.append(b"TE: trailers\r\n")
    if head.upgrade is not None:
        lines.append(_missing_websocket_key(head))
    return b"".join(lines)


def _missing_websocket_key(head: RequestHead) -> bytes:
    """Returns the line that completes a WebSocket's handshake when its gateway made it of HTTP/2 or HTTP/3, else nothing.

    RFC 8441 has no key, Envoy adds none (its issue 8547), and no server on HTTP/1.1 takes a handshake without.
    """
    assert head.upgrade is not None
    names = {line.partition(b":")[0].lower() for line in head.lines}
    if (
        head.upgrade.strip(b" \t").lower() != b"websocket"
        or b"sec-websocket-version" not in names
        or b"sec-websocket-key" in names
    ):
        return b""
    return b"Sec-WebSocket-Key: %b\r\n" % base64.b64encode(secrets.token_bytes(16))


def _forwarded(head: RequestHead, peer: Peer) -> bytes:
    """Returns X-Forwarded-*: replaced, or from a trusted proxy appended to and believed."""
    host = head.host
    lines = peer.lines
    if peer.is_trusted:
        address = peer.address.encode("ascii", "replace")
        chain = address if head.forwarded_for is None else head.forwarded_for + b", " + address
        proto = head.forwarded_proto or (b"https" if peer.is_tls else b"http")
        lines = b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: %b\r\n" % (chain, proto)
        host = head.forwarded_host or host
    return b"%bX-Forwarded-Host: %b\r\n" % (lines, host) if host else lines
