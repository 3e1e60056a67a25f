"""Which IP addresses can never be a sandbox's own."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

IPAddress = IPv4Address | IPv6Address

# "This network" (RFC 1122 §3.2.1.3): Linux takes 0.0.0.0 for the host itself.
_THIS_NETWORK = IPv4Network("0.0.0.0/8")

# The clouds' metadata services hand out credentials to whoever reaches them; 169.254.0.0/16 and
# fe80::/10 are refused as link-local already.
METADATA: frozenset[IPAddress] = frozenset(
    {
        IPv4Address("100.100.100.200"),  # Alibaba Cloud
        IPv4Address("168.63.129.16"),  # Azure's wire server
        IPv4Address("192.0.0.192"),  # Oracle Cloud
        IPv6Address("fd00:ec2::254"),  # AWS
        IPv6Address("fd20:ce::254"),  # Google Cloud
    }
)

# IPv6 forms with an IPv4 address in their last 32 bits: IPv4-compatible (RFC 4291 §2.5.5.1) and the
# well-known NAT64 prefix (RFC 6052 §2.1).
_IPV4_BEHIND = (IPv6Network("::/96"), IPv6Network("64:ff9b::/96"))

_LITERAL = re.compile(rb"[0-9a-fA-F:.]{2,45}")


def parse_ip_literal(value: bytes) -> IPAddress | None:
    """Returns the address, or None unless `value` is a plain IP literal: no zone id, brackets, decimal or octal form."""
    if _LITERAL.fullmatch(value) is None:
        return None
    try:
        return ip_address(value.decode("ascii"))
    except ValueError:
        return None


def is_never_a_sandbox(address: str | IPAddress, *, allow_loopback: bool) -> bool:
    """Returns True for addresses that a name or a client must never lead to.

    Those are link-local, multicast, unspecified, broadcast, reserved and metadata addresses, what hides behind them in
    IPv4-mapped, IPv4-compatible, 6to4, NAT64 and Teredo forms, loopback unless allowed, and text that is no address.
    """
    if isinstance(address, str):
        try:
            address = ip_address(address)
        except ValueError:
            return True
    if address.is_loopback:
        return not allow_loopback
    if isinstance(address, IPv4Address):
        return _is_refused_ipv4(address)
    hidden = _hidden_ipv4(address)
    if hidden:
        return any(is_never_a_sandbox(each, allow_loopback=allow_loopback) for each in hidden)
    return _is_refused_ipv6(address)


def without_mapping(address: IPAddress) -> IPAddress:
    """Returns the IPv4 address that an IPv4-mapped one (RFC 4291 §2.5.5.2) stands for, others as they are."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _is_refused_ipv4(address: IPv4Address) -> bool:
    return (
        address.is_link_local
        or address.is_multicast
        or address.is_reserved  # 240.0.0.0/4, the limited broadcast address with it
        or address in _THIS_NETWORK
        or address in METADATA
    )


def _is_refused_ipv6(address: IPv6Address) -> bool:
    return (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        # ::/8 among them, and so local-use NAT64, 64:ff9b:1::/48 (RFC 8215), whatever hides in it.
        or address.is_reserved
        # A zone id makes an address unequal to its plain form.
        or IPv6Address(int(address)) in METADATA
    )


def _hidden_ipv4(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """Returns the IPv4 addresses that packets to `address` may end at; empty for a plain IPv6 address."""
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if any(address in network for network in _IPV4_BEHIND):
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return ()
