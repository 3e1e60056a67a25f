"""The bytes of heads as they cross: what a sandbox is sent, and what a client is sent back.

On the hot path: written as plain loops over byte strings (bench/results shows what a head costs).
"""

from __future__ import annotations

import base64
import ipaddress
import secrets
from collections.abc import Sequence
from typing import Final

from router.errors import BadRequest
from router.proxy.head import RequestHead, ResponseHead, Special
from router.proxy.headers import Kind
from router.routing.path_scope import scoped_location, scoped_set_cookie
from router.routing.target import Target, forwarded_target

SUBPROTOCOL_TOKEN_PREFIX: Final = b"sandbox-router.bearer."
"""A WebSocket subprotocol of this form is a credential: consumed, never offered to the sandbox."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_STAYS_IN_REQUEST: Final = frozenset({Kind.CONTENT_LENGTH, Kind.EXPECT, Kind.TRACEPARENT})
_REWRITTEN_IN_REQUEST: Final = frozenset(
    {Kind.TRANSFER_ENCODING, Kind.ORIGIN, Kind.WEBSOCKET_PROTOCOL}
)
_STAYS_IN_RESPONSE: Final = frozenset({Kind.LOCATION, Kind.SET_COOKIE})
_VIA: Final = {10: b"Via: 1.0 sandbox-router\r\n\r\n", 11: b"Via: 1.1 sandbox-router\r\n\r\n"}


class Peer:
    """The client's side of a connection, as the forwarding headers tell it (made once a connection)."""

    __slots__ = ("address", "is_tls", "is_trusted", "lines")

    def __init__(self, address: str, *, is_tls: bool, trusted: Sequence[Network]) -> None:
        self.address = address
        self.is_tls = is_tls
        self.is_trusted = bool(trusted) and is_in(address, trusted)
        self.lines = b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: %b\r\n" % (
            address.encode("ascii", "replace"),
            b"https" if is_tls else b"http",
        )


def is_in(address: str, networks: Sequence[Network]) -> bool:
    """Returns True when the address, an IPv4-mapped one unwrapped, lies in one of the networks."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return any(ip.version == network.version and ip in network for network in networks)


def client_address(head: RequestHead, peer: Peer, trusted: Sequence[Network]) -> str:
    """Returns who the client is: the peer, or behind trusted proxies the first stranger from the right."""
    if not peer.is_trusted or head.forwarded_for is None:
        return peer.address
    found = peer.address
    for part in reversed(head.forwarded_for.split(b",")):
        try:
            found = str(ipaddress.ip_address(part.strip(b" \t").decode("ascii")))
        except ValueError:
            break
        if not is_in(found, trusted):
            break
    return found


def request_head(
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
        _drop_nominated(lines, head.nominated)
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


def _drop_nominated(lines: list[bytes], nominated: frozenset[bytes]) -> None:
    for at in range(1, len(lines)):
        if lines[at].partition(b":")[0].lower() in nominated:
            lines[at] = b""


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


class PathScope:
    """Path mode: the sandbox's root in the client's URL space, to which its redirects and cookies are held."""

    __slots__ = ("own_authorities", "request_path", "root")

    def __init__(
        self, *, root: bytes, request_path: bytes, own_authorities: tuple[bytes, ...]
    ) -> None:
        self.root = root
        self.request_path = request_path
        """The path that the sandbox was asked for, without its query."""
        self.own_authorities = own_authorities

    @classmethod
    def of(cls, target: Target, head: RequestHead, peer: Peer, sandbox_host: bytes) -> PathScope:
        """Returns the scope of a request in path mode; its own authorities are the hosts that client and sandbox see."""
        own = (head.host, sandbox_host, head.forwarded_host if peer.is_trusted else None)
        return cls(
            root=target.path_root,
            request_path=forwarded_target(target, head.target).partition(b"?")[0],
            own_authorities=tuple(host for host in own if host),
        )


def response_head(
    head: ResponseHead,
    *,
    add_chunked: bool,
    drop_chunked: bool,
    connection: bytes,
    scope: PathScope | None,
) -> bytes:
    """Returns the head that the client is sent.

    `add_chunked` frames a body that had no length; `drop_chunked` is for HTTP/1.0 clients; `connection` is the value of the
    Connection header, empty for none.
    """
    if head.is_plain and not connection and not add_chunked and scope is None:
        return head.raw
    lines = head.raw.split(b"\r\n")[:-2]
    lines[0] = b"HTTP/1.1" + lines[0][8:]
    for special in head.special:
        kind = special[0]
        if kind in _STAYS_IN_RESPONSE and scope is None:
            continue
        if kind == Kind.TRANSFER_ENCODING and not drop_chunked:
            continue
        lines[special[3]] = _special_response_line(head, special, scope)
    if head.nominated:
        _drop_nominated(lines, head.nominated)
    if add_chunked:
        lines.append(b"Transfer-Encoding: chunked")
    if connection:
        lines.append(b"Connection: " + connection)
    return b"%b\r\n\r\n" % b"\r\n".join(filter(None, lines))


def _special_response_line(head: ResponseHead, special: Special, scope: PathScope | None) -> bytes:
    """Returns what becomes of the line; b"" drops it."""
    kind, name, value, _ = special
    if kind == Kind.CONTENT_LENGTH:
        # RFC 9110 §8.6: no length in a 1xx or 204. A proxy behind us could take such a 1xx for the whole answer.
        has_none = head.status < 200 or (head.status == 204 and head.content_length)
        return b"" if has_none else b"%b: %b" % (name, value)
    if kind == Kind.UPGRADE:
        return b"%b: %b" % (name, value) if head.status in (101, 426) else b""
    if kind == Kind.LOCATION and scope is not None:
        value = scoped_location(value, root=scope.root, own_authorities=scope.own_authorities)
    elif kind == Kind.SET_COOKIE and scope is not None:
        value = scoped_set_cookie(value, root=scope.root, request_path=scope.request_path)
    else:
        return b""
    return b"%b: %b" % (name, value)
