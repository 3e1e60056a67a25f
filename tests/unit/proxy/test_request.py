"""What a request begins with, and what is told of bytes that make none."""

from __future__ import annotations

import ipaddress

from router.errors import MalformedMessage
from router.proxy.outcome import Outcome
from router.proxy.request import Caller, Request, outcome_of_refused
from router.proxy.wire.peer import ClientAddresses, Peer
from router.proxy.wire.request_head import parse_request

HEAD = b"GET /a?q HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 203.0.113.7\r\ntraceparent: 00-1-2-01\r\n\r\n"
NETWORK = (ipaddress.ip_network("192.0.2.0/24"),)
PROXY = Peer("192.0.2.1", is_tls=False, trusted=NETWORK)
STRANGER = Peer("198.51.100.9", is_tls=False, trusted=NETWORK)


def begun_by(peer: Peer) -> Outcome:
    return Request(parse_request(HEAD), Caller(peer), ClientAddresses(NETWORK), 180.0).outcome


def test_an_outcome_begins_with_what_the_head_says() -> None:
    outcome = begun_by(STRANGER)
    assert (outcome.method, outcome.path, outcome.traceparent) == (b"GET", b"/a?q", b"00-1-2-01")
    assert outcome.client == "198.51.100.9"


def test_the_client_behind_a_trusted_proxy_is_who_the_proxy_says() -> None:
    assert begun_by(PROXY).client == "203.0.113.7"


def test_bytes_that_make_no_request_are_told_with_what_could_be_read() -> None:
    refused = MalformedMessage("Malformed request line.")
    outcome = outcome_of_refused(refused, b"GETGETGET" * 9 + b" /x HTTP/1.1\r\n", STRANGER)
    assert (outcome.status, outcome.code, outcome.path) == (400, "bad_request", b"/x")
    assert len(outcome.method) == 32
    assert outcome.error_reason == "Malformed request line."
    assert outcome_of_refused(refused, b"", STRANGER).method == b""


def test_a_request_knows_nothing_at_first() -> None:
    head = parse_request(HEAD)
    request = Request(head, Caller(STRANGER), ClientAddresses(()), 180.0)
    assert (request.target, request.authenticated, request.permit, request.slots) == (None,) * 4
    assert (request.admitted, request.waits_since, request.timeout_s) == ((), None, 180.0)
