"""The head that a client is sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.wire.header_rules import RESPONSE_KINDS, Kind
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import parse_request, resolve_target_form
from router.proxy.wire.response_head import parse_response
from router.proxy.wire.rewriting import PRIVATE, VARY, ResponseScope, crossing_response_head
from router.routing.endpoint import SandboxRef
from router.routing.target import NamedBy, Target
from tests.unit.proxy.messages import field_names, field_values, white_space
from tests.unit.proxy.wire.test_forwarding import PROXY, SANDBOX, STRANGER, head_of, sent, values


def returned(
    *lines: str | bytes,
    line: str = "HTTP/1.1 200 OK",
    add_chunked: bool = False,
    drop_chunked: bool = False,
    connection: bytes = b"",
    scope: ResponseScope | None = None,
    is_private: bool = False,
) -> list[bytes]:
    """Returns the lines that the client is sent."""
    encoded = [text.encode("latin-1") if isinstance(text, str) else text for text in lines]
    head = parse_response(b"\r\n".join([line.encode("latin-1"), *encoded, b"", b""]))
    data = crossing_response_head(
        head,
        add_chunked=add_chunked,
        drop_chunked=drop_chunked,
        connection=connection,
        scope=scope,
        is_private=is_private,
    )
    assert data.endswith(b"\r\n\r\n")
    out = data[:-4].split(b"\r\n")
    assert b"" not in out
    return out


def test_a_plain_answer_crosses_without_a_copy() -> None:
    raw = b"HTTP/1.1 200 Fine\r\nserver: x\r\nContent-length:  3\r\n\r\n"
    head = parse_response(raw)
    out = crossing_response_head(
        head, add_chunked=False, drop_chunked=False, connection=b"", scope=None
    )
    assert out is raw


@given(
    st.lists(st.tuples(field_names, white_space, field_values, white_space), max_size=12),
    st.sampled_from([b"", b"close", b"keep-alive"]),
)
def test_every_answer_line_that_needs_no_decision_crosses_byte_for_byte_in_order(
    fields: list[tuple[bytes, bytes, bytes, bytes]], connection: bytes
) -> None:
    hop_by_hop = (b"connection", b"keep-alive", b"upgrade", b"proxy-connection")
    hop_by_hop += (b"proxy-authorization", b"proxy-authenticate", b"proxy-authentication-info")
    fields = [field for field in fields if RESPONSE_KINDS[field[0]] < Kind.LOCATION]
    lines = [name + b":" + b"".join(rest) for name, *rest in fields]
    head = parse_response(b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""]))
    dropped = (*hop_by_hop, *head.nominated)
    crossing = [line for line in lines if line.partition(b":")[0].lower() not in dropped]
    out = crossing_response_head(
        head, add_chunked=False, drop_chunked=False, connection=connection, scope=None
    )
    expected = [b"HTTP/1.1 200 OK", *crossing]
    expected += [b"Connection: " + connection] if connection else []
    assert out == b"\r\n".join([*expected, b"", b""])


def test_hop_by_hop_headers_stay_on_their_hop() -> None:
    out = returned(
        "Connection: keep-alive, X-Hop",
        "Keep-Alive: timeout=5",
        "X-Hop: 1",
        "Proxy-Authenticate: Basic",
        "Upgrade: h2c",
        "X-Sandbox-Router-Error: forged",
        "X-App: stays",
    )
    assert out == [b"HTTP/1.1 200 OK", b"X-App: stays"]


def test_an_answer_cannot_take_out_what_protects_its_reader() -> None:
    out = returned("Connection: Content-Security-Policy, Set-Cookie", "Content-Security-Policy: x")
    assert out == [b"HTTP/1.1 200 OK", b"Content-Security-Policy: x"]


def test_chunked_stays_or_is_added_or_is_dropped_for_an_old_client() -> None:
    assert returned("Transfer-Encoding: chunked")[1:] == [b"Transfer-Encoding: chunked"]
    assert returned("Transfer-Encoding: chunked", drop_chunked=True)[1:] == []
    assert returned("A: b", add_chunked=True)[1:] == [b"A: b", b"Transfer-Encoding: chunked"]


def test_what_becomes_of_the_connection_is_said_last() -> None:
    assert returned("A: b", connection=b"close")[1:] == [b"A: b", b"Connection: close"]


def test_an_old_answer_is_passed_on_as_http_1_1_with_its_reason() -> None:
    assert returned("A: b", line="HTTP/1.0 404 Not h\xe9re") == [
        b"HTTP/1.1 404 Not h\xe9re",
        b"A: b",
    ]


@pytest.mark.parametrize(("length", "kept"), [("5", False), ("0", True)])
def test_a_204_has_no_length(length: str, kept: bool) -> None:
    out = returned(f"Content-Length: {length}", line="HTTP/1.1 204 No Content", drop_chunked=True)
    assert (len(out) == 2) is kept


def test_a_304_and_the_answer_to_head_keep_their_length() -> None:
    assert returned("Content-Length: 5", line="HTTP/1.1 304 Not Modified")[1:] == [
        b"Content-Length: 5"
    ]


def test_a_426_may_say_which_upgrade_it_wants() -> None:
    assert returned("Upgrade: TLS/1.0", line="HTTP/1.1 426 Upgrade Required")[1:] == [
        b"Upgrade: TLS/1.0"
    ]


def test_a_switch_of_protocols_says_to_which() -> None:
    out = returned(
        "upgrade: WebSocket",
        "Connection: upgrade, keep-alive",
        "Sec-WebSocket-Accept: a",
        line="HTTP/1.1 101 Switching Protocols",
        drop_chunked=True,
        connection=b"Upgrade",
    )
    assert out == [
        b"HTTP/1.1 101 Switching Protocols",
        b"upgrade: WebSocket",
        b"Sec-WebSocket-Accept: a",
        b"Connection: Upgrade",
    ]


# --- path mode ------------------------------------------------------------------------------

ROOT = b"/s/team/box/8888"


def scope_of(
    *lines: str,
    path: str = "/s/team/box/8888/a/b?q",
    peer: Peer = STRANGER,
    keeps_path: bool = False,
) -> ResponseScope:
    target = Target(SandboxRef("team", "box"), 8888, named_by=NamedBy.PATH, path_root=ROOT)
    head = head_of(*lines, line=f"GET {path} HTTP/1.1", host="Public.example")
    return ResponseScope.of(target, head, peer, SANDBOX, keeps_path=keeps_path)


def scope_by(named_by: NamedBy) -> ResponseScope:
    target = Target(SandboxRef("team", "box"), 8888, named_by=named_by)
    return ResponseScope.of(target, head_of(host="public.example"), STRANGER, SANDBOX)


BY_HEADER, BY_HOST = scope_by(NamedBy.HEADER), scope_by(NamedBy.HOST)
BY_PATH = scope_of()
EVERY_WAY = pytest.mark.parametrize(
    "scope", [BY_HEADER, BY_HOST, BY_PATH], ids=["header", "host", "path"]
)
SHARED = pytest.mark.parametrize("scope", [BY_HEADER, BY_PATH], ids=["header", "path"])


def test_in_path_mode_the_root_comes_back_into_redirects_and_cookies() -> None:
    out = returned(
        "location:  /login?x",
        "Set-Cookie: a=b; Path=/; Domain=example; HttpOnly",
        "set-cookie: c=d",
        "Content-Length: 0",
        line="HTTP/1.1 302 Found",
        scope=scope_of(),
    )
    assert out == [
        b"HTTP/1.1 302 Found",
        b"location: /s/team/box/8888/login?x",
        b"Set-Cookie: a=b; Path=/s/team/box/8888/; HttpOnly",
        b"set-cookie: c=d; Path=/s/team/box/8888/a",
        b"Content-Length: 0",
    ]


@pytest.mark.parametrize("scope", [BY_HEADER, BY_HOST], ids=["header", "host"])
def test_outside_of_path_mode_redirects_and_cookies_are_the_apps_business(
    scope: ResponseScope,
) -> None:
    lines = ["Location: /login", "Set-Cookie: a=b;path=/ ; HttpOnly", "Refresh: 5;url=/x"]
    lines += ["Location: http://public.example/x", "Location:  //evil.example/"]
    assert returned(*lines, scope=scope)[1:] == [line.encode() for line in lines]


def test_what_needs_a_look_and_no_change_crosses_without_a_copy() -> None:
    raw = b"HTTP/1.1 200 OK\r\nSet-Cookie:  a=b\r\nETag: x\r\nLocation: /a\r\nNEL: {}\r\n\r\n"
    out = crossing_response_head(
        parse_response(raw), add_chunked=False, drop_chunked=False, connection=b"", scope=BY_HOST
    )
    assert out is raw


@pytest.mark.parametrize("host", ["public.example", "10.0.0.5:8888"])
def test_a_redirect_to_one_of_its_own_hosts_leads_back_through_the_router(host: str) -> None:
    out = returned(f"Location: http://{host}/x", scope=scope_of())
    assert out[1] == b"Location: /s/team/box/8888/x"


def test_a_forwarded_host_is_its_own_only_from_a_trusted_proxy() -> None:
    forwarded_host = "X-Forwarded-Host: front.example"
    for peer, own in ((PROXY, True), (STRANGER, False)):
        scope = scope_of(forwarded_host, peer=peer)
        out = returned("Location: https://front.example/x", scope=scope)
        assert (out[1] == b"Location: /s/team/box/8888/x") is own


def test_the_scope_knows_the_path_that_the_sandbox_saw() -> None:
    assert scope_of().request_path == b"/a/b"
    assert scope_of(path="/s/team/box/8888").request_path == b"/"
    assert scope_of(path="/s/team/box/8888?q=1").request_path == b"/"


def test_an_absolute_target_of_an_old_client_still_gives_the_sandbox_a_host() -> None:
    head = parse_request(b"GET http://box/a HTTP/1.0\r\n\r\n")
    resolve_target_form(head)
    assert len(values(sent(head), "host")) == 1


@pytest.mark.parametrize("status", [100, 103])
def test_an_interim_answer_crosses_without_any_length(status: int) -> None:
    head = parse_response(b"HTTP/1.1 %d Early\r\nLink: </a>\r\nContent-Length: 0\r\n\r\n" % status)
    crossed = crossing_response_head(
        head, add_chunked=False, drop_chunked=True, connection=b"", scope=None
    )
    assert crossed == b"HTTP/1.1 %d Early\r\nLink: </a>\r\n\r\n" % status


def test_an_interim_answer_crosses_without_transfer_encoding() -> None:
    head = parse_response(b"HTTP/1.1 103 Early\r\nTransfer-Encoding: chunked\r\n\r\n")
    crossed = crossing_response_head(
        head, add_chunked=False, drop_chunked=True, connection=b"", scope=None
    )
    assert crossed == b"HTTP/1.1 103 Early\r\n\r\n"


# --- redirects to the pod ---------------------------------------------------------------------


@pytest.mark.parametrize("scope", [BY_HEADER, BY_HOST], ids=["header", "host"])
@pytest.mark.parametrize("name", ["Location", "Content-Location"])
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("http://10.0.0.5:8888/x?y#z", b"/x?y#z"),
        ("https://10.0.0.5:8888/x", b"/x"),
        ("//10.0.0.5:8888/x", b"/x"),
        ("HTTP://10.0.0.5:8888", b"/"),
        ("http://10.0.0.5:8888?q", b"/?q"),
        ("http://10.0.0.5:8888//evil.example/", b"/.//evil.example/"),
        ("http://10.0.0.5:8888/\\evil.example/", b"/./\\evil.example/"),
        ("http://10.0.0.5/x", b"http://10.0.0.5/x"),
        ("http://10.0.0.5:8888.evil.example/", b"http://10.0.0.5:8888.evil.example/"),
    ],
)
def test_a_url_at_the_pods_address_comes_back_as_the_clients_own(
    scope: ResponseScope, name: str, said: str, told: bytes
) -> None:
    assert returned(f"{name}: {said}", scope=scope)[1:] == [name.encode() + b": " + told]


@EVERY_WAY
def test_an_interim_answers_location_is_led_back_too(scope: ResponseScope) -> None:
    out = returned(
        "Location: http://10.0.0.5:8888/up/1",
        line="HTTP/1.1 104 Upload Resumption Supported",
        drop_chunked=True,
        scope=scope,
    )
    assert out[1].startswith(b"Location: /")


@pytest.mark.parametrize(
    ("scope", "told"),
    [(BY_HEADER, b"/x"), (BY_HOST, b"/x"), (BY_PATH, ROOT + b"/x")],
    ids=["header", "host", "path"],
)
def test_a_refresh_is_led_back_like_a_redirect(scope: ResponseScope, told: bytes) -> None:
    out = returned("Refresh: 0; url=http://10.0.0.5:8888/x", scope=scope)
    assert out[1] == b"Refresh: 0; url=" + told


# --- origins that sandboxes share -------------------------------------------------------------

ORIGIN_WIDE = (
    'Clear-Site-Data: "*"',
    "NEL: {}",
    "Report-To: {}",
    'Reporting-Endpoints: a="https://evil.example/"',
    'Alt-Svc: h2=":443"',
    "Set-Cookie2: a=b",
    "Strict-Transport-Security: max-age=1",
    "Public-Key-Pins: max-age=1",
    "Public-Key-Pins-Report-Only: max-age=1",
)


@SHARED
@pytest.mark.parametrize("line", ORIGIN_WIDE)
def test_what_works_on_a_whole_origin_stays_where_sandboxes_share_one(
    scope: ResponseScope, line: str
) -> None:
    assert returned(line, line.upper(), "X-A: b", scope=scope)[1:] == [b"X-A: b"]


@pytest.mark.parametrize("line", [line for line in ORIGIN_WIDE if "*" not in line])
def test_on_a_host_of_its_own_a_sandbox_may_speak_for_its_origin(line: str) -> None:
    assert returned(line, scope=BY_HOST)[1:] == [line.encode()]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('Clear-Site-Data: "cookies", "cache"', [b'Clear-Site-Data: "cache"']),
        ('Clear-Site-Data: "cookies"', []),
        ('NEL: {"include_subdomains": true}', []),
        (
            "Strict-Transport-Security: max-age=1; includeSubDomains",
            [b"Strict-Transport-Security: max-age=1"],
        ),
        ('Alt-Svc: h2="evil.example:443"', []),
        ("Set-Cookie2: a=b; Domain=x", [b"Set-Cookie2: a=b"]),
    ],
)
def test_on_a_host_of_its_own_nothing_works_beyond_it(line: str, told: list[bytes]) -> None:
    assert returned(line, scope=BY_HOST)[1:] == told


@EVERY_WAY
def test_a_cookie_never_names_a_domain(scope: ResponseScope) -> None:
    out = returned("Set-Cookie: a=b; domain = .example ;Domain=x; HttpOnly", scope=scope)
    assert b"domain" not in out[1].lower()
    assert out[1].startswith(b"Set-Cookie: a=b; HttpOnly")


@EVERY_WAY
@pytest.mark.parametrize(
    "name",
    [
        "X-Accel-Redirect",
        "X-Accel-Buffering",
        "X-Accel-Anything",
        "x_accel_redirect",
        "X-Sendfile",
        "X-Lighttpd-Send-File",
        "X-Reproxy-URL",
        "X-LiteSpeed-Location",
        "X-Envoy-Immediate-Health-Check-Fail",
    ],
)
def test_no_order_to_a_front_leaves_a_sandbox(scope: ResponseScope, name: str) -> None:
    assert returned(f"{name}: /etc/passwd", scope=scope)[1:] == []


@pytest.mark.parametrize(
    ("scope", "value", "told"),
    [
        (BY_HOST, "/", [b"/"]),
        (BY_HEADER, "/", []),
        (BY_PATH, "/", [ROOT + b"/"]),
        (BY_PATH, "/s/team/other/8888/", [ROOT + b"/s/team/other/8888/"]),
        (BY_PATH, "/../", []),
    ],
)
def test_a_service_worker_stays_within_its_sandbox(
    scope: ResponseScope, value: str, told: list[bytes]
) -> None:
    out = returned(f"Service-Worker-Allowed: {value}", scope=scope)
    assert values(out, "service-worker-allowed") == told


# --- caches -----------------------------------------------------------------------------------

KEPT = (
    ["Cache-Control: max-age=60"],
    ["cache-control: public"],
    ["Expires: 0"],
    ['ETag: "a"'],
    ["Last-Modified: x"],
    ["Cache-Control: no-cache"],
    ["Cache-Control: x-no-storex"],
    ["Cache-Control: no-store", 'ETag: "a"'],
    ["Vary: Accept", 'ETag: "a"'],
)


@pytest.mark.parametrize("lines", KEPT)
def test_in_header_mode_no_cache_mixes_the_sandboxes_of_one_url(lines: list[str]) -> None:
    out = returned(*lines, scope=BY_HEADER)
    assert out[1:] == [*(line.encode() for line in lines), VARY[:-2]]


@pytest.mark.parametrize("lines", KEPT)
@pytest.mark.parametrize("scope", [BY_HOST, BY_PATH], ids=["host", "path"])
def test_where_a_url_is_one_sandboxs_a_cache_needs_no_advice(
    lines: list[str], scope: ResponseScope
) -> None:
    assert returned(*lines, scope=scope)[1:] == [line.encode() for line in lines]


@pytest.mark.parametrize(
    "lines",
    [
        ["X-A: b"],
        ["Cache-Control: no-store"],
        ["Cache-Control: private, NO-STORE"],
        ["Cache-Control: public", "Cache-Control: no-store"],
    ],
)
def test_what_no_cache_keeps_crosses_as_it_came(lines: list[str]) -> None:
    assert returned(*lines, scope=BY_HEADER)[1:] == [line.encode() for line in lines]


def test_the_advice_to_caches_stands_before_what_concerns_the_hop() -> None:
    out = returned("ETag: a", connection=b"close", add_chunked=True, scope=BY_HEADER)
    assert out[2:] == [VARY[:-2], b"Transfer-Encoding: chunked", b"Connection: close"]


# --- an app that keeps its path ---------------------------------------------------------------


def test_an_app_that_sees_its_whole_path_makes_its_own_redirects() -> None:
    scope = scope_of(keeps_path=True)
    out = returned(
        "Location: /elsewhere",
        "Location: http://10.0.0.5:8888/s/team/box/8888/x",
        "Set-Cookie: a=b; Path=/",
        "Set-Cookie: c=d; Path=/s/team/box/8888/x",
        "Set-Cookie: e=f",
        scope=scope,
    )
    assert out[1:] == [
        b"Location: /elsewhere",
        b"Location: /s/team/box/8888/x",
        b"Set-Cookie: a=b; Path=/s/team/box/8888/",
        b"Set-Cookie: c=d; Path=/s/team/box/8888/x",
        b"Set-Cookie: e=f; Path=/s/team/box/8888/a",
    ]


def test_a_prefix_that_a_front_took_off_comes_back_too() -> None:
    scope = scope_of("X-Forwarded-Prefix: /tools", peer=PROXY)
    out = returned("Location: /x", "Set-Cookie: a=b; Path=/", scope=scope)
    assert out[1:] == [
        b"Location: /tools/s/team/box/8888/x",
        b"Set-Cookie: a=b; Path=/tools/s/team/box/8888/",
    ]


# --- what is for one browser alone ----------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Cache-Control: public, max-age=60",),
        ("Cache-Control: max-age=60",),
        ('Cache-Control: private="Set-Cookie"',),
        ("Cache-Control: x-private",),
        ('ETag: "a"', "Content-Length: 0"),
        ("Connection: keep-alive",),
    ],
)
def test_what_a_session_got_is_kept_by_no_shared_cache(lines: tuple[str, ...]) -> None:
    crossed = [line for line in lines if not line.startswith("Connection")]
    assert returned(*lines, is_private=True) == [
        b"HTTP/1.1 200 OK",
        *(line.encode() for line in crossed),
        PRIVATE.strip(),
    ]


@pytest.mark.parametrize(
    "value", ["private", "no-store", "max-age=60, Private", "PRIVATE,max-age=60", "no-store, x"]
)
def test_what_says_so_itself_crosses_as_it_came(value: str) -> None:
    assert returned(f"Cache-Control: {value}", is_private=True) == [
        b"HTTP/1.1 200 OK",
        f"Cache-Control: {value}".encode(),
    ]


def test_an_interim_answer_is_kept_by_nobody_anyway() -> None:
    assert returned(line="HTTP/1.1 103 Early Hints", is_private=True) == [
        b"HTTP/1.1 103 Early Hints"
    ]


@pytest.mark.parametrize(
    "cookie", ["__Host-sandbox-router=v", "sandbox-router=v; Path=/", "=sandbox-router=v"]
)
def test_no_sandbox_sets_the_router_s_cookie(cookie: str) -> None:
    for scope in (scope_by(NamedBy.HOST), scope_by(NamedBy.HEADER), scope_by(NamedBy.PATH)):
        assert returned(f"Set-Cookie: {cookie}", scope=scope) == [b"HTTP/1.1 200 OK"]
