"""Which of the addresses that a cluster reports can be a pod's."""

from __future__ import annotations

import enum
from ipaddress import IPv6Address, ip_address
from socket import AF_INET, inet_pton

from router.routing.addresses import METADATA

_METADATA_IPV4 = frozenset(address.packed for address in METADATA if address.version == 4)
_BROADCAST = b"\xff\xff\xff\xff"


class AddressKind(enum.Enum):
    """What a reported text is."""

    USABLE = "usable"
    REFUSED = "refused"
    """An address, and never a pod's: unspecified, link-local, multicast, broadcast, or a cloud's metadata service."""
    NO_ADDRESS = "no address"


def kind_of(text: str) -> AddressKind:
    """Returns what can be done with an address that a pod's status names.

    What the cluster says is believed, loopback too: local test clusters and the demo are like that. Refused is only what no
    network gives to a pod. Class E (240.0.0.0/4) is given to pods by some.
    """
    try:
        # In C, for almost all: parsing with ipaddress is a tenth of reading a pod.
        packed = inet_pton(AF_INET, text)
    except (OSError, ValueError):
        return _kind_of_ipv6(text)
    return _kind_of_ipv4(packed)


def _kind_of_ipv4(packed: bytes) -> AddressKind:
    is_refused = (
        packed[0] == 0
        or 224 <= packed[0] < 240
        or packed[:2] == b"\xa9\xfe"
        or packed in _METADATA_IPV4
        or packed == _BROADCAST
    )
    return AddressKind.REFUSED if is_refused else AddressKind.USABLE


def _kind_of_ipv6(text: str) -> AddressKind:
    try:
        address = ip_address(text)
    except ValueError:
        return AddressKind.NO_ADDRESS
    if not isinstance(address, IPv6Address):
        return AddressKind.NO_ADDRESS
    if address.ipv4_mapped is not None:
        return _kind_of_ipv4(address.ipv4_mapped.packed)
    is_refused = (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or IPv6Address(int(address)) in METADATA
    )
    return AddressKind.REFUSED if is_refused else AddressKind.USABLE
