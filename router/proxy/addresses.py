"""Addresses as text: whether a name is one, and whether a connection to one would come back to this very host."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable


def leads_to(address: str, port: int, listeners: Iterable[tuple[str, int]]) -> bool:
    """Returns True when a connection to address:port would reach one of the listeners, which are bound on this host."""
    return any(
        port == own_port
        and (
            _same_address(address, own_address)
            or (_is_wildcard(own_address) and _is_local(address))
            or _is_wildcard(address)
        )
        for own_address, own_port in listeners
    )


def is_address(name: str) -> bool:
    """Returns True for an IP address, False for a name that has to be looked up."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    ip = ipaddress.ip_address(address)
    return ip.ipv4_mapped or ip if isinstance(ip, ipaddress.IPv6Address) else ip


def _same_address(one: str, other: str) -> bool:
    # A zone id makes an address unequal to its plain form, and leads to the same host.
    return _plain(one.partition("%")[0]) == _plain(other.partition("%")[0])


def _is_wildcard(address: str) -> bool:
    return _plain(address).is_unspecified


def _is_local(address: str) -> bool:
    """Returns True when the address is this host's: only then can a socket be bound to it."""
    ip = _plain(address)
    family = socket.AF_INET6 if ip.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(ip), 0))
        except OSError:
            return False
    return True
