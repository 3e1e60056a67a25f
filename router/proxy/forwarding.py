"""The bytes of heads as they cross: what a sandbox is sent, and what a client is sent back.

On the hot path: written as plain loops over byte strings (bench/results shows what a head costs).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from router.proxy.head import Item, RequestHead, ResponseHead
from router.proxy.headers import Kind
from router.routing.path_scope import scoped_location, scoped_set_cookie

SUBPROTOCOL_TOKEN_PREFIX: Final = b"sandbox-router.bearer."
"""A WebSocket subprotocol of this form is a credential: consumed, never offered to the sandbox."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_STAYS_IN_REQUEST: Final = frozenset({Kind.CONTENT_LENGTH, Kind.EXPECT, Kind.TRACEPARENT})


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
    lines = [b"%b %b HTTP/1.1\r\n" % (head.method, target)]
    add = lines.append
    nominated = head.nominated
    for item in head.items:
        kind, name, value = item
        if not kind:
            if nominated and name.lower() in nominated:
                continue
            add(b"%b: %b\r\n" % (name, value))
        elif kind in _STAYS_IN_REQUEST:
            add(b"%b: %b\r\n" % (name, value))
        elif kind == Kind.HOST:
            add(b"%b: %b\r\n" % (name, host))
        elif kind == Kind.AUTHORIZATION:
            if keep_authorization:
                add(b"%b: %b\r\n" % (name, value))
        else:
            _add_special(add, head, item, host=host, origin_policy=origin_policy)
    if not head.host:
        add(b"Host: %b\r\n" % host)
    _add_hop_by_hop(add, head)
    _add_forwarded(add, head, peer)
    add(
        b"Via: 1.1 sandbox-router\r\n\r\n"
        if head.version == 11
        else b"Via: 1.0 sandbox-router\r\n\r\n"
    )
    return b"".join(lines)


def _add_special(
    add: object, head: RequestHead, item: Item, *, host: bytes, origin_policy: str
) -> None:
    kind, name, value = item
    assert callable(add)
    if kind == Kind.TRANSFER_ENCODING:
        add(b"%b: chunked\r\n" % name)
    elif kind == Kind.ORIGIN:
        if head.upgrade is None or origin_policy == "keep":
            add(b"%b: %b\r\n" % (name, value))
        elif origin_policy == "rewrite":
            add(b"%b: http://%b\r\n" % (name, host))
    elif kind == Kind.WEBSOCKET_PROTOCOL:
        offered = without_token(value)
        if offered:
            add(b"%b: %b\r\n" % (name, offered))


def without_token(subprotocols: bytes) -> bytes:
    """Returns a Sec-WebSocket-Protocol value without the router's own credential; unchanged when it holds none."""
    if SUBPROTOCOL_TOKEN_PREFIX not in subprotocols:
        return subprotocols
    parts = [part.strip(b" \t") for part in subprotocols.split(b",")]
    return b", ".join(p for p in parts if p and not p.startswith(SUBPROTOCOL_TOKEN_PREFIX))


def subprotocol_token(subprotocols: bytes | None) -> bytes | None:
    """Returns the credential that a Sec-WebSocket-Protocol value offers, None without one."""
    if subprotocols is None or SUBPROTOCOL_TOKEN_PREFIX not in subprotocols:
        return None
    for part in subprotocols.split(b","):
        part = part.strip(b" \t")
        if part.startswith(SUBPROTOCOL_TOKEN_PREFIX):
            return part[len(SUBPROTOCOL_TOKEN_PREFIX) :]
    return None


def _add_hop_by_hop(add: object, head: RequestHead) -> None:
    assert callable(add)
    if head.upgrade is not None:
        add(b"Connection: %b\r\n" % (b"Upgrade, TE" if head.accepts_trailers else b"Upgrade"))
        add(b"Upgrade: %b\r\n" % head.upgrade)
    elif head.accepts_trailers:
        add(b"Connection: TE\r\n")
    if head.accepts_trailers:
        add(b"TE: trailers\r\n")


def _add_forwarded(add: object, head: RequestHead, peer: Peer) -> None:
    """X-Forwarded-*: replaced, or from a trusted proxy appended to and believed."""
    assert callable(add)
    host = head.host
    if peer.is_trusted:
        if head.forwarded_for is not None:
            chain = head.forwarded_for + b", " + peer.address.encode("ascii", "replace")
            proto = head.forwarded_proto or (b"https" if peer.is_tls else b"http")
            add(b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: %b\r\n" % (chain, proto))
        elif head.forwarded_proto is not None:
            peer_line, _, _ = peer.lines.partition(b"\r\n")
            add(b"%b\r\nX-Forwarded-Proto: %b\r\n" % (peer_line, head.forwarded_proto))
        else:
            add(peer.lines)
        host = head.forwarded_host or host
    else:
        add(peer.lines)
    if host:
        add(b"X-Forwarded-Host: %b\r\n" % host)


class PathScope:
    """Path mode: the sandbox's root in the client's URL space, to which its redirects and cookies are held."""

    __slots__ = ("own_authorities", "request_path", "root")

    def __init__(
        self, root: bytes, request_path: bytes, own_authorities: tuple[bytes, ...]
    ) -> None:
        self.root = root
        self.request_path = request_path
        """The path that the sandbox was asked for, without its query."""
        self.own_authorities = own_authorities


def response_head(
    head: ResponseHead,
    *,
    client_version: int,
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
    line_end = head.raw.find(b"\r\n")
    lines = [b"HTTP/1.1" + head.raw[8 : line_end + 2]]
    add = lines.append
    nominated = head.nominated
    for kind, name, value in head.items:
        if kind == Kind.FORWARD:
            if nominated and name.lower() in nominated:
                continue
        elif kind == Kind.TRANSFER_ENCODING:
            if drop_chunked:
                continue
        elif kind == Kind.LOCATION:
            if scope is not None:
                value = scoped_location(
                    value, root=scope.root, own_authorities=scope.own_authorities
                )
        elif kind == Kind.SET_COOKIE:
            if scope is not None:
                value = scoped_set_cookie(value, root=scope.root, request_path=scope.request_path)
        elif kind == Kind.UPGRADE:
            if head.status not in (101, 426):
                continue
        elif kind != Kind.CONTENT_LENGTH or (head.status == 204 and head.content_length):
            continue  # RFC 9110 §8.6: no length in a 204
        add(b"%b: %b\r\n" % (name, value))
    if add_chunked:
        add(b"Transfer-Encoding: chunked\r\n")
    if connection:
        add(b"Connection: %b\r\n" % connection)
    add(b"\r\n")
    return b"".join(lines)
