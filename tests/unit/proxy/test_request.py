"""What a request begins with, what is told of it from closed sets, and of bytes that make none."""

from __future__ import annotations

import ast
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest

import router.proxy
from router.auth.anonymous import PREFLIGHT
from router.auth.authorizer import Permit
from router.errors import MalformedMessage
from router.proxy.caller import Caller
from router.proxy.request import UPSTREAM_ERRORS, Outcome, Request, outcome_of_refused
from router.proxy.wire.peer import ClientAddresses, Peer
from router.proxy.wire.request_head import parse_request
from tests.unit.proxy.stage import BOX

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


# --- its outcome ---

ROOM = Path(router.proxy.__path__[0])


def outcome() -> Outcome:
    return Outcome(method=b"GET", path=b"/", client="192.0.2.7", started_at=1.0)


def test_at_first_nothing_has_happened() -> None:
    made = outcome()
    assert (made.method, made.path, made.client, made.started_at) == (
        b"GET",
        b"/",
        "192.0.2.7",
        1.0,
    )
    assert (made.status, made.code, made.retries, made.is_tunnel) == (0, "", 0, False)
    assert (made.wait_s, made.connect_s, made.first_byte_s) == (None, None, None)
    assert (made.bytes_from_client, made.bytes_to_client) == (0, 0)


def test_a_client_that_left_has_no_status_unless_its_response_had_begun() -> None:
    early, late = outcome(), outcome()
    early.client_left(None, has_begun=False)
    late.status = 200
    late.client_left(None, has_begun=True)
    assert (early.status, early.code) == (499, "client_closed")
    assert (late.status, late.code) == (200, "client_closed")
    late.code = "stream_drained"
    late.client_left(None, has_begun=True)
    assert late.code == "stream_drained", "why it was cut is known already"


def test_every_fact_has_its_place_and_no_other_can_be_noted() -> None:
    made = outcome()
    assert {name for name in Outcome.__slots__ if not hasattr(made, name)} == set()
    with pytest.raises(AttributeError):
        made.statsu = 200  # type: ignore[attr-defined]


PERMIT = Permit(PREFLIGHT, BOX, 8888)


@pytest.mark.parametrize("status", [101, 200, 304, 404, 499])
def test_an_answer_below_500_is_activity_of_its_sandbox(status: int) -> None:
    made = outcome()
    made.status, made.first_byte_s = status, 0.1
    made.ended(0.0, PERMIT)
    assert made.used == BOX
    assert made.used_at > 0.0


@pytest.mark.parametrize(("status", "permit"), [(500, PERMIT), (503, PERMIT), (499, None)])
def test_an_answer_from_500_and_one_without_a_sandbox_are_none(
    status: int, permit: Permit | None
) -> None:
    made = outcome()
    made.status, made.first_byte_s = status, 0.1
    made.ended(0.0, permit)
    assert made.used is None


def test_a_response_of_the_routers_own_is_none() -> None:
    made = outcome()
    made.status = 308
    made.ended(0.0, PERMIT)
    assert made.used is None


def test_the_end_of_a_tunnel_is_no_use_of_it() -> None:
    made = outcome()
    made.status, made.is_tunnel, made.used_at = 101, True, 5.0
    made.ended(0.0, PERMIT)
    assert made.used_at == 5.0
    assert made.total_s > 0.0


def reasons_noted() -> Iterator[str]:
    """Yields every constant that the proxy writes to `upstream_error` or gives a ConnectFailed as its reason."""
    for module in ROOM.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Attribute) and target.attr == "upstream_error"
                for target in node.targets
            ):
                yield from constants(node.value)
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "ConnectFailed"
            ):
                yield from constants(node.args[0])


def constants(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from constants(node.body)
        yield from constants(node.orelse)
    elif isinstance(node, ast.Constant):
        yield node.value


def test_a_sandboxs_fault_is_told_by_a_reason_of_the_closed_set() -> None:
    noted = set(reasons_noted()) - {""}
    assert {"connect_refused", "closed_early", "bad_response"} <= noted, "the search still finds"
    assert noted <= set(UPSTREAM_ERRORS)
    assert len(set(UPSTREAM_ERRORS)) == len(UPSTREAM_ERRORS)
