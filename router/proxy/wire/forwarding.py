"""The head that a sandbox is sent, made of the client's.

On the hot path: written as plain loops over byte strings (bench/results shows what a head costs).
"""

from __future__ import annotations

import base64
import re
import secrets
from typing import Final

from router.errors import BadRequest
from router.proxy.wire.head_lines import (
    Crossing,
    crossing,
    crossings,
    kind_set,
    without_nominated,
)
from router.proxy.wire.header_rules import Kind
from router.proxy.wire.peer import Peer, called_host, called_scheme
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.stripping import Stripped
from router.routing.authority import canonical_authority

SUBPROTOCOL_TOKEN_PREFIX: Final = b"sandbox-router.bearer."
"""A WebSocket subprotocol of this form is a credential: consumed, never offered to the sandbox."""

_ALWAYS: Final = {
    Kind.HOST: Crossing.HOST,
    Kind.CONTENT_LENGTH: Crossing.AS_IT_CAME,
    Kind.CONTENT_TYPE: Crossing.AS_IT_CAME,
    Kind.COOKIE: Crossing.AS_IT_CAME,
    Kind.EXPECT: Crossing.AS_IT_CAME,
    Kind.TRACEPARENT: Crossing.AS_IT_CAME,
    Kind.TRACESTATE: Crossing.AS_IT_CAME,
}
_AUTHORIZATION, _CLAIM, _PREFIX_OF_FRONT = 1, 2, 4
_SOMETIMES: Final = {
    _AUTHORIZATION: Kind.AUTHORIZATION,
    _CLAIM: Kind.CLAIM,
    _PREFIX_OF_FRONT: Kind.FORWARDED_PREFIX,
}
_TABLES: Final = [
    crossings(
        {**_ALWAYS, **{k: Crossing.AS_IT_CAME for bit, k in _SOMETIMES.items() if bit & allowed}}
    )
    for allowed in range(8)
]
"""By what else may cross: the sum of its bits."""
_DECIDED: Final = kind_set(Kind.TRANSFER_ENCODING, Kind.ORIGIN, Kind.WEBSOCKET_PROTOCOL)
"""Kinds whose lines no table can tell."""
_COOKIES: Final = kind_set(Kind.COOKIE)
# Both may be long, so what is no origin or prefix of ours is never searched to its end.
_ORIGIN = re.compile(rb"(https?)://([a-z0-9._~%\[\]:-]{1,300})")
_PREFIX = re.compile(rb"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]{0,1000}")
_VIA: Final = {10: b"Via: 1.0 sandbox-router\r\n\r\n", 11: b"Via: 1.1 sandbox-router\r\n\r\n"}


def crossing_request_head(
    head: RequestHead,
    *,
    target: bytes,
    host: bytes,
    peer: Peer,
    keep_authorization: bool,
    origin_policy: str,
    path_root: bytes = b"",
    stripped: Stripped | None = None,
) -> bytes:
    """Returns the head that the sandbox is sent.

    `target` is what follows the method, `host` the Host header's value; `origin_policy` (`rewrite`, `keep`, `drop`) is for the
    app's own Origin alone; `path_root` is what was taken off the path, b"" for nothing.
    """
    changes = head.changes
    if (
        head.kinds & _DECIDED
        or (stripped is not None and (stripped.has_headers or head.kinds & _COOKIES))
        or (head.nominated and head.scan is None)
    ):
        changes = _changes(head, host, peer, origin_policy, stripped)
    is_as_it_came = head.scan is not None and target == head.target
    allowed = _AUTHORIZATION if keep_authorization else 0
    added = head.added
    if head.upgrade is not None or head.accepts_trailers or not head.has_host_line:
        added += _hop_by_hop(head, host, peer)
    if peer.is_trusted or path_root or not head.host:
        if peer.is_trusted:
            allowed |= _CLAIM if path_root else _CLAIM | _PREFIX_OF_FRONT
        added += _forwarded(head, peer, path_root) + _VIA[head.version]
    else:
        added = b"%b%bX-Forwarded-Host: %b\r\n%b" % (
            added,
            peer.lines,
            head.host,
            _VIA[head.version],
        )
    return crossing(
        head,
        None if is_as_it_came else b"%b %b HTTP/1.1" % (head.method, target),
        _TABLES[allowed],
        host,
        changes,
        added,
    )


def _changes(
    head: RequestHead, host: bytes, peer: Peer, origin_policy: str, stripped: Stripped | None
) -> dict[int, bytes] | None:
    """Returns the lines to send in place of those that came, by their place; b"" drops one."""
    decided = _DECIDED if stripped is None else _DECIDED | _COOKIES
    changes = head.changes
    if head.kinds & decided:
        changes = dict(changes) if changes else {}
        for kind, name, value, at in head.special:
            if 1 << kind & decided:
                if kind == Kind.ORIGIN:
                    value = _origin(head, value, host, peer, origin_policy)
                else:
                    value = _rewritten(kind, value, stripped)
                changes[at] = b"%b: %b" % (name, value) if value else b""
    if head.nominated and head.scan is None:
        changes = without_nominated(head, changes)
    if stripped is not None and stripped.has_headers:
        changes = {**(changes or {}), **dict.fromkeys(stripped.places(head.lines), b"")}
    return changes


def _rewritten(kind: int, value: bytes, stripped: Stripped | None) -> bytes:
    """Returns the value that a line of this kind gets, b"" to drop the line."""
    if kind == Kind.COOKIE and stripped is not None:
        return stripped.without_cookies(value)
    return without_token(value) if kind == Kind.WEBSOCKET_PROTOCOL else b"chunked"


def _origin(head: RequestHead, origin: bytes, host: bytes, peer: Peer, policy: str) -> bytes:
    """Returns the Origin that the sandbox sees, b"" for none: its own pages' one matches its Host, any other is as it came."""
    if policy == "keep" or not is_own_origin(origin, head, peer):
        return origin
    if policy == "drop":
        return b""
    scheme, _, authority = origin.partition(b"://")
    if canonical_authority(authority, scheme) == canonical_authority(host, scheme):
        return origin
    return b"http://" + host


def is_own_origin(origin: bytes, head: RequestHead, peer: Peer) -> bool:
    """Returns True when an Origin is the one that the client's own address for the sandbox has."""
    match = _ORIGIN.fullmatch(origin.lower())
    called = called_host(head, peer)
    if match is None or not called:
        return False
    scheme, authority = match.groups()
    return called_scheme(head, peer) in (None, scheme) and (
        canonical_authority(authority, scheme) == canonical_authority(called, scheme)
    )


def front_prefix(head: RequestHead, peer: Peer) -> bytes:
    """Returns the path that a trusted proxy took off before us, without a slash at its end; b"" for none."""
    prefix = head.forwarded_prefix
    if prefix is None or not peer.is_trusted or not _PREFIX.fullmatch(prefix):
        return b""
    return b"" if prefix.startswith(b"//") else prefix.rstrip(b"/")


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


def _hop_by_hop(head: RequestHead, host: bytes, peer: Peer) -> bytes:
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
    if head.upgrade is not None and peer.is_trusted:
        lines.append(_missing_websocket_key(head))
    return b"".join(lines)


def _missing_websocket_key(head: RequestHead) -> bytes:
    """Returns the line that completes a WebSocket's handshake when a trusted gateway made it of HTTP/2 or HTTP/3, else nothing.

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


def _forwarded(head: RequestHead, peer: Peer, path_root: bytes) -> bytes:
    """Returns X-Forwarded-*: replaced, or from a trusted proxy appended to and believed."""
    host = head.host
    lines = peer.lines
    if peer.is_trusted:
        address = peer.address.encode("ascii", "replace")
        chain = address if head.forwarded_for is None else head.forwarded_for + b", " + address
        proto = head.forwarded_proto or (b"https" if peer.is_tls else b"http")
        lines = b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: %b\r\n" % (chain, proto)
        host = head.forwarded_host or host
    if host:
        lines = b"%bX-Forwarded-Host: %b\r\n" % (lines, host)
    if path_root:
        lines = b"%bX-Forwarded-Prefix: %b%b\r\n" % (lines, front_prefix(head, peer), path_root)
    return lines
