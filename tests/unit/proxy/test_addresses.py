"""Whether a text is an address, and whether a connection to it would come back to this host."""

from __future__ import annotations

import pytest

from router.proxy.addresses import is_address, leads_to


@pytest.mark.parametrize(
    ("own", "address", "is_own"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
        ("::1", "::1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("0.0.0.0", "127.9.9.9", True),
        ("::", "::1", True),
        ("::", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.1", "::", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("0.0.0.0", "192.0.2.1", False),
        ("::", "2001:db8::1", False),
        ("10.0.0.1", "10.0.0.2", False),
    ],
)
def test_the_router_knows_its_own_listeners_however_they_are_written(
    own: str, address: str, is_own: bool
) -> None:
    assert leads_to(address, 9090, [(own, 9090)]) is is_own
    assert not leads_to(address, 9091, [(own, 9090)])


@pytest.mark.parametrize("text", ["127.0.0.1", "::1", "fe80::1%eth0"])
def test_an_address_is_one(text: str) -> None:
    assert is_address(text)


@pytest.mark.parametrize("text", ["", "box", "127.0.0.1:80", "[::1]", "1.2.3"])
def test_a_name_is_none(text: str) -> None:
    assert not is_address(text)
