"""Peer: the other end of a client's connection, and who the client behind it is."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from router.proxy.wire.request_head import RequestHead

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


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
