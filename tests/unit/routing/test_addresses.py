"""Which addresses a name or a client must never lead to."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.routing.addresses import is_never_a_sandbox, parse_ip_literal, without_mapping

LOOPBACK = ["127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"]

NEVER = [
    "0.0.0.0",
    "0.1.2.3",
    "::",
    "169.254.0.1",
    "169.254.169.254",
    "fe80::1",
    "fe80::1%eth0",
    "224.0.0.1",
    "239.255.255.255",
    "ff02::1",
    "240.0.0.1",
    "255.255.255.255",
    "100.100.100.200",
    "168.63.129.16",
    "fd00:ec2::254",
    "fd00:ec2::254%eth0",
    "fd20:ce::254",
    "4000::1",
]

ORDINARY = [
    "10.0.0.1",
    "172.17.0.2",
    "192.168.1.1",
    "100.64.0.7",
    "100.100.100.201",
    "8.8.8.8",
    "fd00::1",
    "fd00:ec2::253",
    "2001:db8::1",
    "2600:1f18::2",
]

FORMS = {
    "mapped": "::ffff:{v4}",
    "compatible": "::{v4}",
    "6to4": "2002:{hex}::1",
    "nat64": "64:ff9b::{v4}",
    "nat64-local": "64:ff9b:1::{v4}",
    "teredo-server": "2001:0:{hex}:0:0:f5ff:fffe",
    "teredo-client": "2001:0:a00:1:0:0:{inverted}",
}


def in_form(form: str, v4: str) -> str:
    packed = int(ipaddress.IPv4Address(v4))
    inverted = packed ^ 0xFFFF_FFFF
    return FORMS[form].format(
        v4=v4,
        hex=f"{packed >> 16:x}:{packed & 0xFFFF:x}",
        inverted=f"{inverted >> 16:x}:{inverted & 0xFFFF:x}",
    )


@pytest.mark.parametrize("address", NEVER)
def test_an_address_that_no_pod_has_is_refused_whether_or_not_loopback_is_allowed(
    address: str,
) -> None:
    assert is_never_a_sandbox(address, allow_loopback=False)
    assert is_never_a_sandbox(address, allow_loopback=True)


@pytest.mark.parametrize("address", LOOPBACK)
def test_loopback_is_refused_unless_it_is_allowed(address: str) -> None:
    assert is_never_a_sandbox(address, allow_loopback=False)
    assert not is_never_a_sandbox(address, allow_loopback=True)


@pytest.mark.parametrize("address", ORDINARY)
def test_an_ordinary_unicast_address_may_be_a_sandbox(address: str) -> None:
    assert not is_never_a_sandbox(address, allow_loopback=False)
    assert not is_never_a_sandbox(ipaddress.ip_address(address), allow_loopback=False)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("v4", ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1"])
def test_an_address_hidden_in_an_ipv6_form_is_refused(form: str, v4: str) -> None:
    assert is_never_a_sandbox(in_form(form, v4), allow_loopback=False)


@pytest.mark.parametrize("form", ["mapped", "6to4", "nat64", "teredo-server", "teredo-client"])
def test_an_ordinary_address_in_an_ipv6_form_stays_ordinary(form: str) -> None:
    assert not is_never_a_sandbox(in_form(form, "10.0.0.1"), allow_loopback=False)


@pytest.mark.parametrize("text", ["", "localhost", "2130706433", "10.0.0", "10.0.0.1 "])
def test_text_that_is_no_address_is_never_a_sandbox(text: str) -> None:
    assert is_never_a_sandbox(text, allow_loopback=True)


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_judged_like_the_address_itself(v4: ipaddress.IPv4Address) -> None:
    mapped = ipaddress.IPv6Address(f"::ffff:{v4}")
    for allow_loopback in (False, True):
        assert is_never_a_sandbox(mapped, allow_loopback=allow_loopback) == is_never_a_sandbox(
            v4, allow_loopback=allow_loopback
        )
    assert without_mapping(mapped) == v4
    assert without_mapping(v4) == v4


@given(st.ip_addresses())
def test_every_address_in_standard_notation_is_a_literal(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    assert parse_ip_literal(str(address).encode()) == address


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"localhost",
        b"2130706433",
        b"0x7f000001",
        b"0x7f.0.0.1",
        b"0177.0.0.1",
        b"127.1",
        b"10.0.0.1\n",
        b" 10.0.0.1",
        b"10.0.0.1:80",
        b"[::1]",
        b"fe80::1%eth0",
        b"fd00::1%25eth0",
        b"1:2:3:4:5:6:7:8:9",
        "\u0661\u0660.\u0660.\u0660.\u0661".encode(),
        b"\xff",
        b"1" * 5000,
    ],
)
def test_anything_but_a_plain_ip_literal_is_none(value: bytes) -> None:
    assert parse_ip_literal(value) is None
