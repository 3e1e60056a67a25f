"""Heads: what is no strict HTTP/1.1 is refused, and what is crosses byte for byte."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import (
    AmbiguousTarget,
    BadResponse,
    GrpcNotSupported,
    MalformedMessage,
    VersionNotSupported,
)
from router.proxy.wire.header_rules import Kind
from router.proxy.wire.request_head import RequestHead, parse_request, resolve_target_form
from router.proxy.wire.response_head import ResponseHead, parse_response
from router.routing.target import Asked
from tests.unit.proxy.messages import field_names, field_values, white_space


def request(*lines: str | bytes, line: str | bytes = "GET / HTTP/1.1") -> RequestHead:
    """Returns the head of a request with these header lines, and a Host in front of them."""
    return parse_request(block(line, "Host: box", *lines))


def response(*lines: str | bytes, line: str | bytes = "HTTP/1.1 200 OK") -> ResponseHead:
    return parse_response(block(line, *lines))


def block(*lines: str | bytes) -> bytes:
    encoded = [text.encode("latin-1") if isinstance(text, str) else text for text in lines]
    return b"\r\n".join([*encoded, b"", b""])


def first_block(data: bytes) -> bytes:
    """Returns what a connection would take for the first head."""
    return (data + b"\r\n\r\n").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


# --- the request line -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "",
        "GET",
        "GET /",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        "GET\t/\tHTTP/1.1",
        "GET / /b HTTP/1.1",
        "GET / http/1.1",
        "GET / FTP/1.1",
        "GET / HTTP/",
        "GET / HTTP/1.",
        "GET / HTTP/11",
        "GET / HTTP/1.10",
        "GET / HTTP/1.1\r",
        "GET / HTTP/1.1\nX: y",
        "GET / HTTP/1.1\nX:y",
        "G@T / HTTP/1.1",
        "G\x00T / HTTP/1.1",
        "GÉT / HTTP/1.1",
        "(GET) / HTTP/1.1",
        "G@T / HTTP/2.0",
        "GET /a#fragment HTTP/1.1",
        "GET /\x00 HTTP/1.1",
        "GET /\x7f HTTP/1.1",
        "GET /\t HTTP/1.1",
        "\x16\x03\x01 / HTTP/1.1",
    ],
)
def test_a_malformed_request_line_is_refused(line: str) -> None:
    with pytest.raises(MalformedMessage):
        request(line=line)


@pytest.mark.parametrize("version", ["HTTP/2.0", "HTTP/2", "HTTP/3", "HTTP/0.9", "HTTP/1.2"])
def test_another_version_is_told_apart_from_nonsense(version: str) -> None:
    with pytest.raises(VersionNotSupported):
        request(line=f"GET / {version}")


def test_the_preface_of_http_2_is_another_version() -> None:
    with pytest.raises(VersionNotSupported):
        parse_request(b"PRI * HTTP/2.0\r\n\r\n")


@pytest.mark.parametrize("method", ["GET", "PROPFIND", "M-SEARCH", "get", "X!#$%&'*+.^_`|~9"])
def test_any_token_is_a_method(method: str) -> None:
    assert request(line=f"{method} / HTTP/1.1").method == method.encode()


@pytest.mark.parametrize(
    "target", [b"/", b"//x//", b"/%2e%2E/%zz", b"/?", b"/a?b?c=/", b"/\xc3\xa9", b"/a|b^{}\\"]
)
def test_a_target_is_kept_byte_for_byte(target: bytes) -> None:
    assert request(line=b"GET " + target + b" HTTP/1.1").target == target


# --- header lines ---------------------------------------------------------------------------

MALFORMED_LINES = [
    b"X : y",
    b"X\t: y",
    b" X: y",
    b"\tX: y",
    b": y",
    b"X",
    b"X y: z",
    b'X"y: z',
    b"X(y): z",
    b"X@y: z",
    b"X\xe9: y",
    b"X\x00: y",
    b"X: a\x00b",
    b"X: a\x01b",
    b"X: a\x7fb",
    b"X: a\x0bb",
    b"X: a\rb",
    b"X: y\r",
    b"X: a\nY: b",
    b"X: a\n",
    b"X: y\r\n z",
    b"X: y\r\n\tz",
    b"X: \r\n z",
    b"X:\r\n z: w",
]


@pytest.mark.parametrize("line", MALFORMED_LINES)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_malformed_header_line_is_refused_wherever_it_stands(line: bytes, place: str) -> None:
    lines = {
        "first": (line, b"Host: box"),
        "middle": (b"Host: box", line, b"A: b"),
        "last": (b"Host: box", line),
    }[place]
    with pytest.raises(MalformedMessage):
        parse_request(block(b"GET / HTTP/1.1", *lines))


@pytest.mark.parametrize("line", MALFORMED_LINES)
def test_a_malformed_header_line_from_a_sandbox_is_a_bad_response(line: bytes) -> None:
    for lines in ([line], [line, b"A: b"], [b"A: b", line]):
        with pytest.raises(BadResponse):
            parse_response(block(b"HTTP/1.1 200 OK", *lines))


@pytest.mark.parametrize("line", [b"X:", b"X:y", b"X: \t y \t", b"X: \xe9\xff", b"x-y_z: a\tb"])
def test_an_unusual_but_legal_line_is_kept_as_it_is(line: bytes) -> None:
    assert request(line).lines == [b"GET / HTTP/1.1", b"Host: box", line, b"", b""]


@given(
    st.lists(
        st.tuples(field_names, white_space, field_values, white_space).map(
            lambda parts: parts[0] + b":" + b"".join(parts[1:])
        ),
        max_size=12,
    ),
    st.integers(0, 12),
)
def test_the_lines_of_any_valid_head_are_the_ones_that_came(lines: list[bytes], at: int) -> None:
    lines.insert(at, b"Host: box")
    head = parse_request(block(b"GET /x HTTP/1.1", *lines))
    assert head.lines == [b"GET /x HTTP/1.1", *lines, b"", b""]
    for kind, name, value, place in head.special:
        came_name, _, came_value = head.lines[place].partition(b":")
        assert (name, value) == (came_name, came_value.strip(b" \t"))
        assert kind != Kind.FORWARD


# What RFC 9112 §5 allows for a line, told without llhttp.
LEGAL_LINE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")

SCRAPS = rb"\r\n|\r|\n|:| |\t|\0|,|X|a|5|\xff|Content-Length|Transfer-Encoding|chunked|Host"
LINES = (b"\r\nX: y\r\n", b"Connection: close", b"Connection: upgrade\r\nUpgrade: websocket")

almost_heads = st.one_of(
    st.binary(max_size=100),
    st.lists(st.one_of(st.from_regex(SCRAPS, fullmatch=True), st.sampled_from(LINES))).map(
        b"".join
    ),
)


@given(almost_heads)
def test_any_bytes_make_a_legal_head_or_an_error_of_the_clients(data: bytes) -> None:
    try:
        head = parse_request(first_block(b"GET / HTTP/1.1\r\nHost: a\r\n" + data))
    except (MalformedMessage, AmbiguousTarget):
        return
    assert all(LEGAL_LINE.fullmatch(line) for line in head.lines[1:-2])


@given(almost_heads)
def test_any_bytes_make_a_legal_answer_or_an_error_of_the_sandboxs(data: bytes) -> None:
    try:
        head = parse_response(first_block(b"HTTP/1.1 200 OK\r\n" + data))
    except BadResponse:
        return
    assert all(LEGAL_LINE.fullmatch(line) for line in head.block.split(b"\r\n")[1:-2])


@given(almost_heads)
def test_any_status_line_is_in_range_or_an_error_of_the_sandboxs(data: bytes) -> None:
    try:
        head = parse_response(first_block(b"HTTP/1.1 " + data))
    except BadResponse:
        return
    assert 100 <= head.status <= 999


# --- the length of a body -------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Content-Length: 5"],
        ["Content-Length: 5", "content-length: 6"],
        ["Content-Length: 5, 5"],
        ["Content-Length:"],
        ["Content-Length: +5"],
        ["Content-Length: -5"],
        ["Content-Length: 5 5"],
        ["Content-Length: 0x5"],
        ["Content-Length: 5_0"],
        ["Content-Length: 5.0"],
        ["Content-Length: ٣".encode()],
        ["Content-Length: 99999999999999999999"],
        ["Content-Length: 1000000000000000000"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked, gzip"],
        ["Transfer-Encoding: gzip"],
        ["Transfer-Encoding: identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked;q=1"],
        ["Transfer-Encoding:"],
        ['Transfer-Encoding: "chunked"'],
        ["Transfer-Encoding: \xa0chunked"],
    ],
)
def test_an_ambiguous_length_is_refused_both_ways(lines: list[str | bytes]) -> None:
    with pytest.raises(MalformedMessage):
        request(*lines, line="POST / HTTP/1.1")
    with pytest.raises(BadResponse):
        response(*lines)


def test_chunked_with_http_1_0_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        request("Transfer-Encoding: chunked", line="POST / HTTP/1.0")


def test_a_length_may_have_leading_zeros_and_white_space() -> None:
    head = request("Content-Length: \t 0012 \t")
    assert (head.content_length, head.has_body) == (12, True)


@pytest.mark.parametrize("value", ["chunked", "CHUNKED", "  Chunked "])
def test_chunked_is_known_in_any_case(value: str) -> None:
    assert request(f"Transfer-Encoding:{value}").is_chunked


def test_a_length_of_zero_is_no_body() -> None:
    head = request("Content-Length: 0")
    assert (head.content_length, head.has_body) == (0, False)


def test_a_lookalike_of_a_length_frames_nothing() -> None:
    head = request("Transfer_Encoding: chunked", "Content_Length: 5")
    assert not head.has_body
    assert {special[0] for special in head.special} == {Kind.HOST, Kind.DROP}


# --- host -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["box", "BOX.example:8080", "box:", "[::1]", "[fe80::1]:80", "a_b"]
)
def test_a_host_may_look_like_this(host: str) -> None:
    assert parse_request(block("GET / HTTP/1.1", f"Host:  {host} ")).host == host.encode()


@pytest.mark.parametrize(
    "host",
    [
        "",
        "a b",
        "user@box",
        "box/",
        "box?x",
        "box#x",
        "a,\tb",
        "box:80:80",
        "box:http",
        "box:123456",
        "[::1",
        "::1",
        "[::1]x",
        "böx",
        "http://box",
        'b"ox',
        "b\\ox",
        "<box>",
    ],
)
def test_a_malformed_host_is_refused(host: str) -> None:
    with pytest.raises(MalformedMessage):
        parse_request(block("GET / HTTP/1.1", f"Host: {host}"))


@pytest.mark.parametrize("hosts", [(), ("a", "a"), ("a", "b")])
def test_http_1_1_needs_exactly_one_host(hosts: tuple[str, ...]) -> None:
    with pytest.raises(MalformedMessage):
        parse_request(block("GET / HTTP/1.1", *(f"Host: {host}" for host in hosts)))


def test_http_1_0_needs_no_host() -> None:
    assert parse_request(block("GET / HTTP/1.0")).host == b""


# --- keep-alive, Connection -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "lines", "kept"),
    [
        ("1.1", [], True),
        ("1.1", ["Connection: close"], False),
        ("1.1", ["Connection: keep-alive, CLOSE"], False),
        ("1.1", ["Connection: close", "Connection: keep-alive"], False),
        ("1.1", ["Connection: x-close"], True),
        ("1.0", [], False),
        ("1.0", ["Connection: Keep-Alive"], True),
        ("1.0", ["Connection: close", "Connection: keep-alive"], False),
        ("1.0", ["Connection: keep-alive", "Connection: close"], False),
        ("1.0", ["Keep-Alive: timeout=5"], False),
    ],
)
def test_who_keeps_the_connection(version: str, lines: list[str], kept: bool) -> None:
    assert request(*lines, line=f"GET / HTTP/{version}").keep_alive is kept
    assert response(*lines, line=f"HTTP/{version} 200 OK").keep_alive is kept


def test_connection_names_what_it_takes_out_of_all_its_lines() -> None:
    head = request("Connection: X-A ,x-b", "Connection: close,\tX-C", "Connection: Host, Cookie")
    assert head.nominated >= {b"x-a", b"x-b", b"x-c"}
    assert not head.nominated & {b"host", b"cookie"}


# --- upgrades -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "offered"),
    [
        (["Connection: Upgrade", "Upgrade: websocket"], b"websocket"),
        (["Upgrade: websocket", "Connection: keep-alive, UPGRADE"], b"websocket"),
        (["Connection: upgrade", "Upgrade: a/1, b"], b"a/1, b"),
        (["Connection: upgrade", "Upgrade: a", "Upgrade: b"], b"a, b"),
        (["Upgrade: websocket"], None),
        (["Connection: upgrade"], None),
        (["Connection: upgrade", "Upgrade:"], None),
        (["Connection: upgrade", "Upgrade: h2c"], None),
        (["Connection: upgrade, HTTP2-Settings", "Upgrade: H2C", "HTTP2-Settings: AA"], None),
        (["Connection: upgrade", "Upgrade: h2c, websocket"], b"websocket"),
        (["Connection: upgrade", "Upgrade: h2"], None),
    ],
)
def test_what_is_offered_for_an_upgrade_is_never_h2c(
    lines: list[str], offered: bytes | None
) -> None:
    assert request(*lines).upgrade == offered


def test_http_1_0_upgrades_nothing() -> None:
    head = request("Connection: upgrade", "Upgrade: websocket", line="GET / HTTP/1.0")
    assert head.upgrade is None


# --- what the gateway asks ------------------------------------------------------------------


def test_the_routing_headers_are_read() -> None:
    head = request(
        "X-Sandbox-ID: \tbox ",
        "x-sandbox-namespace: team",
        "X-SANDBOX-PORT: 80",
        "X-Sandbox-UID: u",
        "X-Sandbox-Pod-IP: 10.0.0.1",
        "X-Sandbox-Timeout: 5",
    )
    assert head.asked == Asked(b"box", b"team", b"80", b"u", b"10.0.0.1", b"5")


def test_absent_routing_headers_are_told_from_empty_ones() -> None:
    assert request().asked == Asked()
    assert request("X-Sandbox-Namespace:").asked == Asked(namespace=b"")


ROUTING = ["ID", "Namespace", "Port", "UID", "Pod-IP", "Timeout"]


@pytest.mark.parametrize("name", ROUTING)
def test_a_routing_header_twice_must_say_the_same(name: str) -> None:
    same = request(f"X-Sandbox-{name}: a", f"x-sandbox-{name.lower()}:  a ")
    assert [value for value in same.asked if value is not None] == [b"a"]
    with pytest.raises(AmbiguousTarget):
        request(f"X-Sandbox-{name}: a", "X-Other: b", f"X-Sandbox-{name}: b")
    with pytest.raises(AmbiguousTarget):
        request(f"X-Sandbox-{name}:", f"X-Sandbox-{name}: b")


def test_a_routing_header_with_underscores_asks_for_nothing() -> None:
    assert request("X_Sandbox_ID: box", "X-Sandbox_Port: 1").asked == Asked()


@pytest.mark.parametrize("name", ["Authorization", "X-Sandbox-Token"])
def test_a_credential_twice_is_refused_even_if_the_same(name: str) -> None:
    with pytest.raises(MalformedMessage):
        request(f"{name}: a", f"{name.lower()}: a")


def test_credentials_are_read() -> None:
    head = request(
        "Authorization: Bearer a",
        "X-Sandbox-Token: b",
        "Sec-WebSocket-Protocol: c",
        "Sec-WebSocket-Protocol: d",
        "X-Forwarded-Client-Cert: e",
    )
    assert (head.authorization, head.sandbox_token) == (b"Bearer a", b"b")
    assert (head.subprotocols, head.client_cert) == (b"c, d", b"e")


def test_forwarding_headers_are_read_in_order() -> None:
    head = request(
        "X-Forwarded-For: 1.1.1.1",
        "X-Forwarded-For: 2.2.2.2, 3.3.3.3",
        "X-Forwarded-Host: a",
        "X-Forwarded-Host: b",
        "X-Forwarded-Proto: https",
        "Traceparent: 00-1-2-01",
        "Origin: https://a",
    )
    assert head.forwarded_for == b"1.1.1.1, 2.2.2.2, 3.3.3.3"
    assert (head.forwarded_host, head.forwarded_proto) == (b"a", b"https")
    assert (head.traceparent, head.origin) == (b"00-1-2-01", b"https://a")


@pytest.mark.parametrize(
    ("value", "expects"), [("100-continue", True), ("100-CONTINUE ", True), ("200-ok", False)]
)
def test_an_expectation_is_known(value: str, expects: bool) -> None:
    assert request(f"Expect: {value}").expects_continue is expects


@pytest.mark.parametrize(
    ("value", "accepts"),
    [("trailers", True), ("gzip, Trailers", True), ("gzip", False), ("trailersx", False)],
)
def test_only_te_trailers_accepts_trailers(value: str, accepts: bool) -> None:
    assert request(f"TE: {value}").accepts_trailers is accepts


def test_a_head_shows_no_header_in_its_repr() -> None:
    assert "secret" not in repr(request("Authorization: secret"))
    assert "secret" not in repr(response("Set-Cookie: secret"))


# --- the form of the target -----------------------------------------------------------------


def resolved(target: str, *, host: str = "box", method: str = "GET") -> RequestHead:
    head = parse_request(block(f"{method} {target} HTTP/1.1", f"Host: {host}"))
    resolve_target_form(head)
    return head


@pytest.mark.parametrize("target", ["/", "//evil.example/a", "/http://x", "/*"])
def test_origin_form_stays_as_it_is(target: str) -> None:
    assert resolved(target).target == target.encode()


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://box", "/"),
        ("http://box/", "/"),
        ("HTTPS://BOX/a/b?c=d", "/a/b?c=d"),
        ("http://box?c=/d", "/?c=/d"),
        ("http://box//evil", "//evil"),
    ],
)
def test_absolute_form_becomes_origin_form(target: str, path: str) -> None:
    assert resolved(target).target == path.encode()


@pytest.mark.parametrize(
    ("target", "host"),
    [("http://other/", b"other"), ("http://box:80/", b"box:80"), ("http://BOX/", b"BOX")],
)
def test_the_authority_of_an_absolute_target_wins_over_host(target: str, host: bytes) -> None:
    assert resolved(target).host == host


def test_options_for_a_server_as_a_whole_keeps_its_asterisk() -> None:
    assert resolved("http://box", method="OPTIONS").target == b"*"
    assert resolved("http://box/", method="OPTIONS").target == b"/"
    assert resolved("http://box?a", method="OPTIONS").target == b"/?a"


@pytest.mark.parametrize(
    ("content_type", "refused"),
    [
        ("application/grpc", True),
        ("Application/gRPC+proto", True),
        ("application/grpc; charset=utf-8", True),
        ("application/grpc-web", False),
        ("application/grpc-web+proto", False),
        ("application/json", False),
    ],
)
def test_grpc_without_http_2_is_refused_and_grpc_web_is_not(
    content_type: str, refused: bool
) -> None:
    head = block("POST /a.B/C HTTP/1.1", "Host: box", f"Content-Type: {content_type}")
    if refused:
        with pytest.raises(GrpcNotSupported):
            parse_request(head)
    else:
        parse_request(head)


def test_absolute_form_gives_a_request_without_host_its_host() -> None:
    head = parse_request(block("GET http://box:1/x HTTP/1.0"))
    resolve_target_form(head)
    assert (head.host, head.target) == (b"box:1", b"/x")


@pytest.mark.parametrize(
    "target",
    [
        "x",
        "*",
        "?",
        "box:80",
        "http:/box",
        "http://",
        "http:///x",
        "ftp://box/",
        "ws://box/",
        "http://user@box/",
        "://box/",
    ],
)
def test_any_other_form_is_refused(target: str) -> None:
    with pytest.raises(MalformedMessage):
        resolved(target)


def test_an_asterisk_is_for_options_alone() -> None:
    assert resolved("*", method="OPTIONS").target == b"*"


def test_the_authority_of_a_connect_is_left_for_the_gateway_to_refuse() -> None:
    assert resolved("other:443", method="CONNECT").target == b"other:443"


@given(st.binary(min_size=1, max_size=60))
def test_whatever_is_resolved_begins_with_a_slash(rest: bytes) -> None:
    try:
        head = parse_request(block(b"GET http://box/" + rest + b" HTTP/1.1", "Host: a"))
        resolve_target_form(head)
    except MalformedMessage:
        return
    assert head.target.startswith(b"/")
    assert head.host == b"box"
    assert head.target == b"/" + rest


@pytest.mark.parametrize("host", ["a." * 16_000, "[" + ":" * 30_000 + "]", "a" * 321])
def test_a_host_that_is_longer_than_any_name_is_refused(host: str) -> None:
    with pytest.raises(MalformedMessage, match="Malformed Host"):
        parse_request(block("GET / HTTP/1.1", f"Host: {host}"))
    with pytest.raises(MalformedMessage, match="Malformed authority"):
        resolved(f"http://{host}/")


def test_many_lines_of_a_list_become_one_in_their_order() -> None:
    lines = [f"X-Forwarded-For: 10.0.0.{number}" for number in range(200)]
    head = parse_request(block("GET / HTTP/1.1", "Host: box", *lines))
    assert head.forwarded_for == b", ".join(line.encode()[17:] for line in lines)
