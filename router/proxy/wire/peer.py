"""Peer: the other end of a client's connection, and who the client behind it is."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

from router.proxy.wire.request_head import RequestHead

_BRACKETED = re.compile(rb"\[([0-9A-Fa-f:.]{2,45})\](?::[0-9]{1,5})?")
_PORT = re.compile(rb"[0-9]{1,5}")
_SCHEMES: Final = {b"http": b"http", b"https": b"https", b"ws": b"http", b"wss": b"https"}
"""What X-Forwarded-Proto may say; Traefik says `wss` of WebSockets."""

# Strangers write the chain's beginning: what is remembered stays under 2 MB.
_MOST_KNOWN: Final = 4096
_LONGEST_KNOWN_CHAIN: Final = 128

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Peer:
    """The client's side of a connection, as the forwarding headers tell it (never changed: connections from one address share it)."""

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
        address = _forwarded_address(part)
        if address is None:
            break
        found = address
        if not is_in(found, trusted):
            break
    return found


class ClientAddresses:
    """Who the clients are, remembered by what the proxies in front said of them: reading a chain costs microseconds."""

    __slots__ = ("_known", "_peers", "_trusted")

    def __init__(self, trusted: Sequence[Network]) -> None:
        self._trusted = trusted
        self._peers: dict[tuple[str, bool], Peer] = {}
        self._known: dict[tuple[str, bytes], str] = {}

    def __repr__(self) -> str:
        return f"<ClientAddresses known={len(self._known)}>"

    def peer(self, address: str, *, is_tls: bool) -> Peer:
        """Returns the Peer of a connection from this address."""
        found = self._peers.get((address, is_tls))
        if found is None:
            if len(self._peers) >= _MOST_KNOWN:
                self._peers.clear()
            found = Peer(address, is_tls=is_tls, trusted=self._trusted)
            self._peers[address, is_tls] = found
        return found

    def of(self, head: RequestHead, peer: Peer) -> str:
        """Returns who the client is: see client_address()."""
        chain = head.forwarded_for
        if not peer.is_trusted or chain is None:
            return peer.address
        found = self._known.get((peer.address, chain))
        if found is None:
            found = client_address(head, peer, self._trusted)
            if len(chain) <= _LONGEST_KNOWN_CHAIN:
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[peer.address, chain] = found
        return found


def _forwarded_address(element: bytes) -> str | None:
    """Returns the address of one element of X-Forwarded-For; None for a name or junk.

    Azure and IIS add a port, others quote what has colons, as Forwarded does (RFC 7239 §6).
    """
    element = element.strip(b" \t").strip(b'"')
    bracketed = _BRACKETED.fullmatch(element)
    if bracketed is not None:
        element = bracketed[1]
    elif element.count(b":") == 1:
        element, _, port = element.partition(b":")
        if not _PORT.fullmatch(port):
            return None
    try:
        return str(ipaddress.ip_address(element.decode("ascii")))
    except ValueError:
        return None


def called_host(head: RequestHead, peer: Peer) -> bytes:
    """Returns the host and port that the client used: its Host, or what a trusted proxy says that it was; b"" when neither."""
    if peer.is_trusted and head.forwarded_host is not None:
        # Of a chain of proxies the first one wrote the first.
        return head.forwarded_host.partition(b",")[0].strip(b" \t") or head.host
    return head.host


def called_scheme(head: RequestHead, peer: Peer) -> bytes | None:
    """Returns `http` or `https` where it is known by which the client came, else None.

    Without TLS here a proxy in front that is not trusted may still have had it.
    """
    if peer.is_trusted and head.forwarded_proto is not None:
        said = head.forwarded_proto.partition(b",")[0].strip(b" \t").lower()
        known = _SCHEMES.get(said)
        if known is not None:
            return known
    return b"https" if peer.is_tls else None
