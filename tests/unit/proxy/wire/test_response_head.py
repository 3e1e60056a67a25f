"""A response's head: what is taken, what is refused, and when it may cross as it is."""

from __future__ import annotations

import pytest

from router.errors import BadResponse
from router.proxy.wire.response_head import SCOPED, parse_response
from tests.unit.proxy.wire.test_request_head import block, response


@pytest.mark.parametrize(
    "line",
    [
        "",
        "HTTP/1.1",
        "HTTP/1.1 ",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.1 200OK",
        "HTTP/1.1 2x0 OK",
        "HTTP/1.1 +20 OK",
        "HTTP/1.1 000 OK",
        "HTTP/1.1 099 OK",
        "HTTP/1.1 200\tOK",
        "HTTP/1.1 200 O\rK",
        "HTTP/1.1 200 OK\nX: y",
        "HTTP/1.1 200 O\x00K",
        "HTTP/1.1 200 O\x7fK",
        "HTTP/2.0 200 OK",
        "HTTP/1.2 200 OK",
        "HTTP/0.9 200 OK",
        "http/1.1 200 OK",
        "ICY 200 OK",
        " HTTP/1.1 200 OK",
        "SSH-2.0-OpenSSH_9.6",
    ],
)
def test_a_malformed_status_line_is_a_bad_response(line: str) -> None:
    with pytest.raises(BadResponse):
        response(line=line)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("HTTP/1.1 200 OK", 200),
        ("HTTP/1.1 200 ", 200),
        ("HTTP/1.1 200", 200),
        ("HTTP/1.0 404 Not Found", 404),
        ("HTTP/1.1 100 Continue", 100),
        ("HTTP/1.1 299 Caf\xe9 \t au lait", 299),
        ("HTTP/1.1 999 Whatever", 999),
    ],
)
def test_a_status_and_any_reason_are_taken(line: str, status: int) -> None:
    assert response(line=line).status == status


def test_a_response_keeps_its_bytes() -> None:
    raw = block("HTTP/1.1 200 OK", "Server:  x ", "set-cookie: a", "Set-Cookie: b")
    assert parse_response(raw).block == raw


@pytest.mark.parametrize(
    ("lines", "plain"),
    [
        ([], True),
        (["Content-Length: 5", "Server: x", "Content-Type: a/b", "Vary: x"], True),
        (["Location: /"], False),
        (["Set-Cookie: a"], False),
        (["Transfer-Encoding: chunked"], False),
        (["Connection: keep-alive"], False),
        (["Keep-Alive: timeout=5"], False),
        (["X-Sandbox-Router-Error: fake"], False),
        (["Upgrade: x"], False),
    ],
)
def test_a_head_is_plain_when_nothing_in_it_needs_a_decision(lines: list[str], plain: bool) -> None:
    assert response(*lines).is_plain is plain


def test_an_old_version_or_a_204_with_a_length_is_never_plain() -> None:
    assert not response(line="HTTP/1.0 200 OK").is_plain
    assert not response("Content-Length: 5", line="HTTP/1.1 204 No Content").is_plain
    assert response("Content-Length: 0", line="HTTP/1.1 204 No Content").is_plain


def test_a_switch_of_protocols_says_to_which() -> None:
    head = response(
        "Connection: Upgrade", "Upgrade: WebSocket", line="HTTP/1.1 101 Switching Protocols"
    )
    assert (head.status, head.upgrade) == (101, b"WebSocket")


def test_the_reason_of_a_bad_response_is_for_the_log_alone() -> None:
    with pytest.raises(BadResponse) as caught:
        response("Transfer-Encoding: gzip, chunked")
    assert caught.value.detail == BadResponse.default_detail
    assert "chunked" in caught.value.reason


@pytest.mark.parametrize(
    ("line", "needed"),
    [("Set-Cookie: a", True), ("ETag: a", True), ("NEL: {}", True), ("Keep-Alive: a", False)],
)
def test_a_head_says_whether_the_way_of_naming_matters(line: str, needed: bool) -> None:
    assert bool(response(line).kinds & SCOPED) is needed
