"""Who the client is: the peer itself, or behind trusted proxies the first stranger from the right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.wire import peer as peer_module
from router.proxy.wire.peer import (
    ClientAddresses,
    Peer,
    called_host,
    called_scheme,
    client_address,
    is_in,
)
from tests.unit.proxy.wire.test_forwarding import PROXY, STRANGER, TRUSTED, head_of


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("192.0.2.7", True),
        ("192.0.3.7", False),
        ("::ffff:192.0.2.7", True),
        ("2001:db8::1", True),
        ("2001:db9::1", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_a_network_holds_addresses_mapped_ones_too(address: str, inside: bool) -> None:
    assert is_in(address, TRUSTED) is inside
    assert Peer(address, is_tls=False, trusted=TRUSTED).is_trusted is inside


@pytest.mark.parametrize(
    ("peer", "chain", "client"),
    [
        ("198.51.100.9", "203.0.113.1", "198.51.100.9"),
        ("192.0.2.7", None, "192.0.2.7"),
        ("192.0.2.7", "203.0.113.1", "203.0.113.1"),
        ("192.0.2.7", "203.0.113.1, 203.0.113.2", "203.0.113.2"),
        ("192.0.2.7", "203.0.113.1, 192.0.2.8", "203.0.113.1"),
        ("192.0.2.7", "203.0.113.1,192.0.2.8 ,\t2001:db8::5", "203.0.113.1"),
        ("192.0.2.7", "192.0.2.8, 192.0.2.9", "192.0.2.8"),
        ("192.0.2.7", "203.0.113.1, junk", "192.0.2.7"),
        ("192.0.2.7", "junk, 192.0.2.8", "192.0.2.8"),
        ("192.0.2.7", "203.0.113.1, ", "192.0.2.7"),
        ("192.0.2.7", "203.0.113.1:443", "203.0.113.1"),
        ("192.0.2.7", "203.0.113.1, 192.0.2.8:50000", "203.0.113.1"),
        ("192.0.2.7", "[2001:db9::1]:443", "2001:db9::1"),
        ("192.0.2.7", "[2001:db9::1]", "2001:db9::1"),
        ("192.0.2.7", '"[2001:db9::1]:443"', "2001:db9::1"),
        ("192.0.2.7", '"203.0.113.1"', "203.0.113.1"),
        ("192.0.2.7", "203.0.113.1:http", "192.0.2.7"),
        ("192.0.2.7", "203.0.113.1:", "192.0.2.7"),
        ("192.0.2.7", "[203.0.113.1", "192.0.2.7"),
        ("192.0.2.7", "host:80", "192.0.2.7"),
        ("192.0.2.7", "2001:DB9:0::1", "2001:db9::1"),
        ("192.0.2.7", "\xe9", "192.0.2.7"),
    ],
)
def test_the_client_is_the_first_stranger_from_the_right(
    peer: str, chain: str | None, client: str
) -> None:
    head = head_of(*([] if chain is None else [f"X-Forwarded-For: {chain}"]))
    found = client_address(head, Peer(peer, is_tls=False, trusted=TRUSTED), TRUSTED)
    assert found == client


@given(st.lists(st.sampled_from(["192.0.2.1", "203.0.113.1", "2001:db8::1", "x", ""]), max_size=8))
def test_a_forged_front_of_the_chain_never_becomes_the_client(chain: list[str]) -> None:
    """Whatever a stranger writes stands to the left of the address that our proxy has seen."""
    head = head_of("X-Forwarded-For: " + ", ".join([*chain, "198.51.100.77"]))
    assert client_address(head, PROXY, TRUSTED) == "198.51.100.77"


# --- what the client called ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "forwarded", "host"),
    [
        (STRANGER, "public.example", b"box"),
        (PROXY, "public.example", b"public.example"),
        (PROXY, "public.example:8443 , inner", b"public.example:8443"),
        (PROXY, ", inner", b"box"),
        (PROXY, None, b"box"),
    ],
)
def test_the_host_that_the_client_used_is_its_own_or_a_trusted_proxys_word(
    peer: Peer, forwarded: str | None, host: bytes
) -> None:
    head = head_of(*([] if forwarded is None else [f"X-Forwarded-Host: {forwarded}"]))
    assert called_host(head, peer) == host


@pytest.mark.parametrize(
    ("address", "is_tls", "said", "scheme"),
    [
        ("198.51.100.9", False, "https", None),
        ("198.51.100.9", True, "http", b"https"),
        ("192.0.2.7", False, None, None),
        ("192.0.2.7", False, "https", b"https"),
        ("192.0.2.7", True, "http", b"http"),
        ("192.0.2.7", False, "WSS", b"https"),
        ("192.0.2.7", False, "ws", b"http"),
        ("192.0.2.7", False, "https, http", b"https"),
        ("192.0.2.7", False, "gopher", None),
        ("192.0.2.7", True, None, b"https"),
    ],
)
def test_the_scheme_is_known_by_tls_or_by_a_trusted_proxys_word(
    address: str, is_tls: bool, said: str | None, scheme: bytes | None
) -> None:
    head = head_of(*([] if said is None else [f"X-Forwarded-Proto: {said}"]))
    assert called_scheme(head, Peer(address, is_tls=is_tls, trusted=TRUSTED)) == scheme


def test_what_is_remembered_of_clients_is_what_reading_says_and_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_module, "_MOST_KNOWN", 3)
    clients = ClientAddresses(TRUSTED)
    chains = [*(b"198.51.100.%d" % n for n in range(5)), b"junk", b"198.51.100.1, " * 20 + b"::1"]
    for chain in [*chains, *chains, *chains[:2], *chains[:2]]:
        head = head_of(b"X-Forwarded-For: " + chain)
        assert clients.of(head, PROXY) == client_address(head, PROXY, TRUSTED)
        assert clients.of(head, STRANGER) == STRANGER.address
        assert len(clients._known) <= 3
    assert not any(len(chain) > 128 for _, chain in clients._known)
    assert clients.of(head_of(), PROXY) == PROXY.address


def test_connections_from_one_address_share_a_peer_and_few_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_module, "_MOST_KNOWN", 3)
    clients = ClientAddresses(TRUSTED)
    proxy = clients.peer("192.0.2.7", is_tls=False)
    assert clients.peer("192.0.2.7", is_tls=False) is proxy
    assert (proxy.address, proxy.is_tls, proxy.is_trusted) == ("192.0.2.7", False, True)
    assert clients.peer("192.0.2.7", is_tls=True).is_tls
    for number in range(9):
        assert not clients.peer(f"198.51.100.{number}", is_tls=False).is_trusted
        assert len(clients._peers) <= 3
