from __future__ import annotations

import pytest

from router.discovery.address_kinds import AddressKind, kind_of
from router.routing.addresses import METADATA


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1",
        "192.168.1.2",
        "100.64.0.7",
        "172.16.0.1",
        "203.0.113.9",
        "240.1.2.3",
        "fd00::1",
        "2001:db8::1",
        "::ffff:10.0.0.1",
        "127.0.0.1",
        "127.66.0.3",
        "::1",
    ],
)
def test_what_a_cluster_gives_to_pods_is_used_loopback_too(address: str) -> None:
    assert kind_of(address) is AddressKind.USABLE


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "169.254.0.1",
        "224.0.0.1",
        "239.255.255.250",
        "255.255.255.255",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "ff02::1",
        "::ffff:169.254.169.254",
        "::ffff:0.0.0.0",
        *sorted(map(str, METADATA)),
    ],
)
def test_what_can_never_be_a_pods_is_refused(address: str) -> None:
    assert kind_of(address) is AddressKind.REFUSED


@pytest.mark.parametrize(
    "text", ["", "box.example", "10.0.0", "010.0.0.1", "10.0.0.1 ", "1.2.3.4.5", "[::1]", "\0"]
)
def test_other_text_is_no_address(text: str) -> None:
    assert kind_of(text) is AddressKind.NO_ADDRESS
