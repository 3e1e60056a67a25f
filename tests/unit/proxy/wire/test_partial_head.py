"""Heads that come in pieces: the same in the end, and refused as soon as they can't become good."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import (
    BadResponse,
    HeadersTooLarge,
    MalformedMessage,
    RouterError,
    UriTooLong,
)
from router.proxy.wire.partial_head import PartialHead, check_partial_response, check_sizes
from tests.unit.proxy.messages import cut, cuts

MAX_LINE = 32
MAX_HEAD = 96

HEAD = b"GET / HTTP/1.1\r\nHost: box\r\n\r\n"


def partial() -> PartialHead:
    return PartialHead(max_request_line_bytes=MAX_LINE, max_header_bytes=MAX_HEAD)


def collect(pieces: list[bytes]) -> bytes | None:
    """Returns what is whole after some piece, with the pieces that were not needed for it behind it."""
    head = partial()
    for at, piece in enumerate(pieces):
        whole = head.add(piece)
        if whole is not None:
            return whole + b"".join(pieces[at + 1 :])
    return None


def verdict(pieces: list[bytes]) -> bytes | type[RouterError] | None:
    """What a connection makes of the pieces: a whole head that keeps to the limits, an error, or None to wait."""
    try:
        whole = collect(pieces)
        if whole is not None:
            end = whole.find(b"\r\n\r\n") + 4
            check_sizes(whole, end, max_request_line_bytes=MAX_LINE, max_header_bytes=MAX_HEAD)
    except RouterError as exc:
        return type(exc)
    return whole


def sized(line: int, head: int) -> bytes:
    """Returns a legal head whose request line and whole are so many bytes long."""
    request_line = b"GET /" + b"x" * (line - 14) + b" HTTP/1.1"
    rest = head - line - 2 - 3 - 4
    return request_line + b"\r\nA: " + b"y" * rest + b"\r\n\r\n"


# --- any cut --------------------------------------------------------------------------------


@given(st.integers(14, MAX_LINE), st.integers(MAX_LINE + 9, MAX_HEAD), st.binary(max_size=20), cuts)
def test_a_head_within_the_limits_is_the_same_under_any_cut(
    line: int, size: int, body: bytes, at: list[int]
) -> None:
    head = sized(line, size)
    assert len(head) == size
    assert verdict(cut(head + body, at)) == head + body


@given(st.integers(MAX_LINE + 1, MAX_LINE + 4), cuts)
def test_a_request_line_over_the_limit_is_refused_under_any_cut(line: int, at: list[int]) -> None:
    assert verdict(cut(sized(line, MAX_HEAD), at)) is UriTooLong


@given(st.integers(MAX_HEAD + 1, MAX_HEAD + 4), cuts)
def test_a_head_over_the_limit_is_refused_under_any_cut(size: int, at: list[int]) -> None:
    assert verdict(cut(sized(20, size), at)) is HeadersTooLarge


@pytest.mark.parametrize("cut_at", range(1, MAX_LINE + 6))
def test_a_request_line_of_exactly_the_limit_may_be_cut_anywhere(cut_at: int) -> None:
    head = sized(MAX_LINE, MAX_HEAD)
    assert verdict([head[:cut_at], head[cut_at:]]) == head


@given(
    st.lists(
        st.sampled_from([b"\r\n", b"\r", b"\n", b"GET / HTTP/1.1", b"GET /", b"A: b", b"x" * 20])
    ).map(b"".join),
    cuts,
)
def test_a_cut_never_turns_a_good_head_bad(data: bytes, at: list[int]) -> None:
    whole = verdict([data])
    in_pieces = verdict(cut(data, at))
    if isinstance(whole, bytes) and whole.startswith(b"GET / HTTP/1.1\r\n"):
        lines = whole.partition(b"\r\n\r\n")[0]
        if b"\n" not in lines.replace(b"\r\n", b""):
            assert in_pieces == whole
    if isinstance(in_pieces, bytes):
        assert in_pieces == whole


# --- empty lines in front (RFC 9112 §2.2) -----------------------------------------------------


@pytest.mark.parametrize("empty_lines", [1, 2, 500])
def test_empty_lines_in_front_of_a_head_are_skipped(empty_lines: int) -> None:
    data = b"\r\n" * empty_lines + HEAD
    assert collect([data]) == HEAD
    assert collect([data[at : at + 1] for at in range(len(data))]) == HEAD


def test_nothing_but_empty_lines_is_still_nothing() -> None:
    head = partial()
    assert head.is_empty
    for piece in (b"\r\n", b"\r\n\r\n", b"\r", b"\n"):
        assert head.add(piece) is None
    assert head.is_empty
    head.add(b"G")
    assert not head.is_empty


# --- refused before its end -----------------------------------------------------------------


@pytest.mark.parametrize(
    "start",
    [
        b"\n",
        b"GET / HTTP/1.1\n",
        b"GET / HTTP/1.1\nHost: box\n\n",
        b"GET / HTTP/1.1\r\nHost: box\n",
        b"GET / HTTP/1.1\r\nA: b\r\nHost: box\n",
        b"GET / HTTP/1.1\r\n\n",
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_a_bare_lf_is_refused_at_once(start: bytes, step: int) -> None:
    with pytest.raises(MalformedMessage):
        collect([start[at : at + step] for at in range(0, len(start), step)])


@pytest.mark.parametrize("step", [1, 1000])
def test_a_tls_handshake_on_a_plain_port_is_told_so(step: int) -> None:
    hello = bytes.fromhex("160301020001")
    with pytest.raises(MalformedMessage, match="TLS"):
        collect([hello[at : at + step] for at in range(0, len(hello), step)])


@pytest.mark.parametrize("line", [b"SSH-2.0-x", b"hello", b"GET /", b"GET / FTP/1.1", b"{}"])
@pytest.mark.parametrize("step", [1, 1000])
def test_a_first_line_without_http_is_refused_at_its_end(line: bytes, step: int) -> None:
    data = line + b"\r\n"
    with pytest.raises(MalformedMessage, match="request line"):
        collect([data[at : at + step] for at in range(0, len(data), step)])


def test_a_line_without_an_end_is_refused_once_it_is_too_long() -> None:
    head = partial()
    assert head.add(b"x" * MAX_LINE) is None
    with pytest.raises(UriTooLong):
        head.add(b"xx")


def test_headers_without_an_end_are_refused_once_they_are_too_many() -> None:
    with pytest.raises(HeadersTooLarge):
        collect([b"GET / HTTP/1.1\r\n", *[b"A: b\r\n"] * MAX_HEAD])


def test_a_body_behind_the_head_counts_for_no_limit() -> None:
    data = HEAD + b"x" * 1000
    assert verdict([data]) == data
    assert verdict([HEAD[:-1], HEAD[-1:] + b"x" * 1000]) == data


def test_its_repr_says_how_much_has_come() -> None:
    head = partial()
    head.add(b"GET")
    assert repr(head) == "<PartialHead 3 bytes>"


def test_a_flood_of_empty_lines_is_passed_over() -> None:
    head = partial()
    assert head.add(b"\r\n" * 100_000 + b"\r") is None
    assert head.add(b"\n" + HEAD) == HEAD


# --- responses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collected", "reason"),
    [
        (b"", None),
        (b"HTT", None),
        (b"HTTP/1.1 200 OK\r\nA: b\r", None),
        (b"SSH-2.0", "does not begin like HTTP/1"),
        (b"HTTP/1.1 200 OK\n", "LF alone"),
        (b"HTTP/1.1 200 OK\r\nA: b\nC: d\r\n", "LF alone"),
        (b"HTTP/1.1 200 OK\rA: b\r\r", "CR alone"),
        (b"HTTP/1.1 200 OK\r\nA: b\rC: d\r\n", "CR alone"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100, "too large"),
    ],
)
def test_a_response_that_cannot_become_good_is_refused_before_its_end(
    collected: bytes, reason: str | None
) -> None:
    if reason is None:
        check_partial_response(bytearray(collected), 0, max_head_bytes=100)
        return
    with pytest.raises(BadResponse) as caught:
        check_partial_response(bytearray(collected), 0, max_head_bytes=100)
    assert reason in caught.value.reason


def test_of_a_response_only_what_is_new_is_searched() -> None:
    collected = bytearray(b"HTTP/1.1 200 OK\r\nA: b\n")
    with pytest.raises(BadResponse):
        check_partial_response(collected, len(collected) - 1, max_head_bytes=100)
    check_partial_response(collected + b"C", len(collected) + 1, max_head_bytes=100)
