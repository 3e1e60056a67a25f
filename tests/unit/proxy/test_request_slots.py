"""Each request takes the places that it needs, once, and gives back what it has."""

from __future__ import annotations

import pytest

from router.auth.principal import CONNECT
from router.errors import TooManyRequests
from router.proxy.caller import Caller
from router.proxy.options import ProxyOptions
from router.proxy.request import Request
from router.proxy.request_slots import RequestSlots
from router.proxy.wire.peer import ClientAddresses, Peer
from router.proxy.wire.request_head import parse_request
from router.routing.elsewhere import ALONE
from tests.unit.proxy.stage import BOX


def a_request(*, upgrades: bool = False, is_raw: bool = False) -> Request:
    lines = b"Connection: upgrade\r\nUpgrade: websocket\r\n" if upgrades or is_raw else b""
    head = parse_request(b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n" % lines)
    peer = Peer("198.51.100.9", is_tls=False, trusted=())
    request = Request(head, Caller(peer), ClientAddresses(()), 1.0)
    if is_raw:
        request.grant_method = CONNECT
    return request


def slots(**limits: int) -> RequestSlots:
    return RequestSlots(
        ProxyOptions(**limits),  # type: ignore[arg-type]
        requests_elsewhere=ALONE,
        tunnels_elsewhere=ALONE,
        connects_elsewhere=ALONE,
    )


def test_each_limit_counts_what_it_is_about() -> None:
    every = slots(max_requests_per_sandbox=3, max_tunnels_per_client=2, connect_per_sandbox=1)
    raw = a_request(is_raw=True)
    every.take(raw, BOX)
    every.take(a_request(upgrades=True), BOX)
    with pytest.raises(TooManyRequests, match="max-tunnels-per-client"):
        every.take(a_request(upgrades=True), BOX)


def test_what_was_taken_is_given_back_also_by_a_request_that_got_only_a_part() -> None:
    every = slots(max_requests_per_sandbox=2, connect_per_sandbox=1)
    raw, refused = a_request(is_raw=True), a_request(is_raw=True)
    every.take(raw, BOX)
    every.take(raw, BOX)  # it is dialled for again
    with pytest.raises(TooManyRequests, match="connect-per-sandbox"):
        every.take(refused, BOX)
    refused.give_slots_back()
    raw.give_slots_back()
    every.take(a_request(is_raw=True), BOX)


def test_it_is_on_where_ordinary_requests_take_places() -> None:
    assert not slots(connect_per_sandbox=32).is_on
    assert slots(max_requests_per_sandbox=1).is_on
    assert repr(slots(max_tunnels_per_client=1)) == "<RequestSlots on=True>"
