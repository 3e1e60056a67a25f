"""What a sandbox is sent, and what a client is sent back."""

from __future__ import annotations

import base64
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import BadRequest
from router.proxy.forwarding import (
    PathScope,
    Peer,
    client_address,
    is_in,
    request_head,
    response_head,
    subprotocol_token,
    without_token,
)
from router.proxy.head import RequestHead, parse_request, parse_response, resolve_target_form
from router.proxy.headers import REQUEST_KINDS, Kind
from router.routing.endpoint import SandboxRef
from router.routing.target import NamedBy, Target
from tests.unit.proxy.messages import field_names, field_values, white_space

SANDBOX = b"10.0.0.5:8888"
TRUSTED = (ipaddress.ip_network("192.0.2.0/24"), ipaddress.ip_network("2001:db8::/32"))
STRANGER = Peer("198.51.100.9", is_tls=False, trusted=TRUSTED)
PROXY = Peer("192.0.2.7", is_tls=False, trusted=TRUSTED)


def head_of(*lines: str | bytes, line: str = "GET /a HTTP/1.1", host: str = "box") -> RequestHead:
    encoded = [text.encode("latin-1") if isinstance(text, str) else text for text in lines]
    first = [line.encode(), *([b"Host: " + host.encode()] if host else [])]
    return parse_request(b"\r\n".join([*first, *encoded, b"", b""]))


def sent(
    head: RequestHead,
    *,
    target: bytes | None = None,
    peer: Peer = STRANGER,
    host: bytes = SANDBOX,
    keep_authorization: bool = False,
    origin_policy: str = "rewrite",
) -> list[bytes]:
    """Returns the lines that the sandbox is sent."""
    data = request_head(
        head,
        target=head.target if target is None else target,
        host=host,
        peer=peer,
        keep_authorization=keep_authorization,
        origin_policy=origin_policy,
    )
    assert data.endswith(b"\r\n\r\n")
    lines = data[:-4].split(b"\r\n")
    assert b"" not in lines, "an empty line would end the head"
    return lines


def values(lines: list[bytes], name: str) -> list[bytes]:
    """Returns the values of all lines of this name."""
    found = (line.partition(b": ") for line in lines[1:])
    return [value for key, _, value in found if key.lower() == name.lower().encode()]


# --- the request as a whole -----------------------------------------------------------------


def test_a_plain_request_is_sent_as_it_came_with_the_routers_lines_behind_it() -> None:
    head = head_of("User-Agent: x", "Accept: */*", "X-Sandbox-ID: box")
    assert sent(head) == [
        b"GET /a HTTP/1.1",
        b"Host: 10.0.0.5:8888",
        b"User-Agent: x",
        b"Accept: */*",
        b"X-Forwarded-For: 198.51.100.9",
        b"X-Forwarded-Proto: http",
        b"X-Forwarded-Host: box",
        b"Via: 1.1 sandbox-router",
    ]


@given(
    st.lists(st.tuples(field_names, white_space, field_values, white_space), max_size=12),
    st.integers(0, 12),
)
def test_every_line_that_needs_no_decision_crosses_byte_for_byte_in_order(
    fields: list[tuple[bytes, bytes, bytes, bytes]], at: int
) -> None:
    lines = [name + b":" + b"".join(rest) for name, *rest in fields]
    lines.insert(at, b"Host: box")
    head = parse_request(b"\r\n".join([b"GET /a HTTP/1.1", *lines, b"", b""]))
    crossing = [
        line
        for line in lines
        if REQUEST_KINDS[name := line.partition(b":")[0]] in (Kind.FORWARD, Kind.EXPECT)
        and name.lower() not in head.nominated
    ]
    out = sent(head, origin_policy="keep")
    rest = iter(out)
    assert all(line in rest for line in crossing), "each is there, behind the one before it"
    own = [line for line in out[1:] if line not in lines]
    decided = {line.partition(b":")[0].lower() for line in own}
    assert decided <= {
        b"host",
        b"connection",
        b"upgrade",
        b"te",
        b"origin",
        b"sec-websocket-protocol",
        b"x-forwarded-for",
        b"x-forwarded-proto",
        b"x-forwarded-host",
        b"via",
    }


def test_method_and_target_are_sent_exactly_and_always_with_http_1_1() -> None:
    head = head_of(line="PROPFIND /%2e%2E//a?b?c HTTP/1.0")
    assert sent(head)[0] == b"PROPFIND /%2e%2E//a?b?c HTTP/1.1"
    assert sent(head, target=b"/rest")[0] == b"PROPFIND /rest HTTP/1.1"


def test_the_host_line_keeps_its_place_and_spelling() -> None:
    head = parse_request(b"GET / HTTP/1.1\r\nA: b\r\nhOST:  box \r\nC: d\r\n\r\n")
    assert sent(head)[:4] == [b"GET / HTTP/1.1", b"A: b", b"hOST: 10.0.0.5:8888", b"C: d"]
    assert sent(head, host=head.host)[2] == b"hOST: box"


def test_a_request_without_host_gets_one() -> None:
    lines = sent(head_of(line="GET / HTTP/1.0", host=""))
    assert values(lines, "host") == [SANDBOX]
    assert values(lines, "x-forwarded-host") == []


def test_the_heads_own_lines_are_left_as_they_were() -> None:
    head = head_of("Connection: close", "Authorization: a")
    before = list(head.lines)
    assert sent(head) == sent(head)
    assert head.lines == before


# --- what never reaches a sandbox -----------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "X-Sandbox-Namespace",
        "X-Sandbox-Port",
        "X-Sandbox-UID",
        "X-Sandbox-Pod-IP",
        "X-Sandbox-Timeout",
        "X-Sandbox-Token",
        "X-Sandbox-Router-Error",
        "X-Forwarded-Client-Cert",
        "Forwarded",
        "Proxy-Authorization",
        "Proxy-Connection",
        "Keep-Alive",
        "HTTP2-Settings",
        "Upgrade",
        "Connection",
        "X_Forwarded_For",
        "X_Sandbox_ID",
        "x-forwarded_client-cert",
        "Transfer_Encoding",
        "Content_Length",
    ],
)
@pytest.mark.parametrize("peer", [STRANGER, PROXY], ids=["stranger", "trusted proxy"])
def test_what_is_the_routers_own_never_crosses(name: str, peer: Peer) -> None:
    for spelling in (name, name.lower(), name.upper()):
        head = head_of(f"{spelling}: secret")
        assert b"secret" not in b"\n".join(sent(head, peer=peer, keep_authorization=True))


@pytest.mark.parametrize("keep", [True, False])
def test_authorization_crosses_only_when_it_was_not_used_up(keep: bool) -> None:
    lines = sent(head_of("authorization:  Bearer x"), keep_authorization=keep)
    assert (b"authorization:  Bearer x" in lines) is keep


def test_what_connection_names_is_dropped_and_nothing_that_protects() -> None:
    head = head_of(
        "Connection: X-Hop, Cookie, Host, Origin",
        "connection: x-hop-2",
        "X-HOP: 1",
        "x-hop: 2",
        "X-Hop-2: 3",
        "X-Hop-3: 4",
        "Cookie: a",
        "Origin: http://a",
    )
    lines = sent(head)
    assert [line for line in lines if line.lower().startswith(b"x-hop")] == [b"X-Hop-3: 4"]
    assert values(lines, "cookie") == [b"a"]
    assert values(lines, "origin") == [b"http://a"]
    assert values(lines, "host") == [SANDBOX]
    assert values(lines, "connection") == []


# --- bodies and expectations ----------------------------------------------------------------


def test_the_framing_of_the_body_is_told_to_the_sandbox() -> None:
    assert b"content-LENGTH:  5" in sent(head_of("content-LENGTH:  5"))
    assert b"transfer-ENCODING: chunked" in sent(head_of("transfer-ENCODING:   CHUNKED"))


def test_an_expectation_is_passed_on() -> None:
    assert b"Expect: 100-continue" in sent(head_of("Expect: 100-continue", "Content-Length: 5"))


def test_trailers_are_accepted_on_this_hop_too() -> None:
    lines = sent(head_of("TE: gzip, trailers;q=1, trailers", "Connection: TE"))
    assert (values(lines, "te"), values(lines, "connection")) == ([b"trailers"], [b"TE"])
    assert values(sent(head_of("TE: gzip")), "te") == []


# --- who called -----------------------------------------------------------------------------


def forwarded(peer: Peer, *lines: str, host: str = "box") -> dict[str, list[bytes]]:
    out = sent(head_of(*lines, host=host), peer=peer)
    return {part: values(out, f"x-forwarded-{part}") for part in ("for", "proto", "host")}


FORGED = (
    "X-Forwarded-For: 203.0.113.1, 203.0.113.2",
    "X-Forwarded-Proto: https",
    "X-Forwarded-Host: public.example",
)


def test_a_strangers_forwarding_headers_are_replaced() -> None:
    assert forwarded(STRANGER, *FORGED) == {
        "for": [b"198.51.100.9"],
        "proto": [b"http"],
        "host": [b"box"],
    }


def test_a_trusted_proxys_forwarding_headers_are_appended_to_and_believed() -> None:
    assert forwarded(PROXY, *FORGED) == {
        "for": [b"203.0.113.1, 203.0.113.2, 192.0.2.7"],
        "proto": [b"https"],
        "host": [b"public.example"],
    }


def test_a_trusted_proxy_that_says_nothing_is_a_client_itself() -> None:
    assert forwarded(PROXY) == {"for": [b"192.0.2.7"], "proto": [b"http"], "host": [b"box"]}


def test_several_lines_of_a_chain_become_one() -> None:
    lines = ("X-Forwarded-For: 203.0.113.1", "x-forwarded-for: 203.0.113.2")
    assert forwarded(PROXY, *lines)["for"] == [b"203.0.113.1, 203.0.113.2, 192.0.2.7"]


def test_tls_is_told_as_https() -> None:
    for trusted in ((), TRUSTED):
        peer = Peer("192.0.2.7", is_tls=True, trusted=trusted)
        assert forwarded(peer)["proto"] == [b"https"]


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
        ("192.0.2.7", "203.0.113.1:443", "192.0.2.7"),
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


# --- upgrades -------------------------------------------------------------------------------

UPGRADE = ("Connection: keep-alive, Upgrade", "Upgrade: websocket")


def test_an_upgrade_is_offered_on_this_hop() -> None:
    lines = sent(head_of(*UPGRADE, "Sec-WebSocket-Key: k", "Sec-WebSocket-Extensions: e"))
    assert (values(lines, "connection"), values(lines, "upgrade")) == ([b"Upgrade"], [b"websocket"])
    assert values(lines, "sec-websocket-key") == [b"k"]
    assert values(lines, "sec-websocket-extensions") == [b"e"]


KEY = "sec-websocket-key"
VERSION = "Sec-WebSocket-Version: 13"


def test_a_websocket_over_http_2_gets_the_key_that_its_gateway_left_out() -> None:
    head = head_of(*UPGRADE, VERSION)
    (first,), (second,) = values(sent(head), KEY), values(sent(head), KEY)
    assert len(base64.b64decode(first, validate=True)) == 16
    assert first != second


@pytest.mark.parametrize(
    ("lines", "keys"),
    [
        ((*UPGRADE, VERSION, "SEC-WEBSOCKET-KEY: its own"), [b"its own"]),
        (UPGRADE, []),
        (("Connection: Upgrade", "Upgrade: other/1", VERSION), []),
        ((VERSION,), []),
    ],
)
def test_no_other_request_gets_a_key(lines: tuple[str, ...], keys: list[bytes]) -> None:
    assert values(sent(head_of(*lines)), KEY) == keys


def test_h2c_is_never_offered() -> None:
    head = head_of("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAM")
    lines = sent(head)
    assert values(lines, "upgrade") == values(lines, "connection") == []
    assert values(lines, "http2-settings") == []


def test_an_upgrade_with_trailers_names_both() -> None:
    lines = sent(head_of(*UPGRADE, "TE: trailers"))
    assert (values(lines, "connection"), values(lines, "te")) == ([b"Upgrade, TE"], [b"trailers"])


@pytest.mark.parametrize(
    ("policy", "host", "origin"),
    [
        ("rewrite", SANDBOX, [b"http://10.0.0.5:8888"]),
        ("rewrite", b"box", [b"http://box"]),
        ("keep", SANDBOX, [b"https://public.example"]),
        ("drop", SANDBOX, []),
    ],
)
def test_the_origin_of_an_upgrade_follows_the_policy(
    policy: str, host: bytes, origin: list[bytes]
) -> None:
    head = head_of(*UPGRADE, "Origin: https://public.example")
    assert values(sent(head, host=host, origin_policy=policy), "origin") == origin


@pytest.mark.parametrize("policy", ["rewrite", "keep", "drop"])
def test_the_origin_of_a_plain_request_is_the_apps_business(policy: str) -> None:
    head = head_of("Origin: https://public.example")
    lines = sent(head, origin_policy=policy)
    assert values(lines, "origin") == [b"https://public.example"]


# --- the token among subprotocols -----------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "token", "left"),
    [
        (b"chat", None, b"chat"),
        (b"a,b ,  c", None, b"a,b ,  c"),
        (b"sandbox-router.bearer.t0k.en", b"t0k.en", b""),
        (b"chat, sandbox-router.bearer.t, b", b"t", b"chat, b"),
        (b"x-sandbox-router.bearer.t", None, b"x-sandbox-router.bearer.t"),
        (b"sandbox-router.bearer.", b"", b""),
        (b"sandbox-router.bearer", None, b"sandbox-router.bearer"),
    ],
)
def test_a_token_among_the_subprotocols_is_taken_out(
    offered: bytes, token: bytes | None, left: bytes
) -> None:
    assert subprotocol_token(offered) == token
    assert without_token(offered) == left
    lines = sent(head_of(*UPGRADE, b"Sec-WebSocket-Protocol: " + offered))
    assert values(lines, "sec-websocket-protocol") == ([left] if left else [])


def test_several_tokens_among_the_subprotocols_are_refused() -> None:
    offered = b"sandbox-router.bearer.t,sandbox-router.bearer.u,c"
    with pytest.raises(BadRequest, match="More than one subprotocol"):
        subprotocol_token(offered)
    assert without_token(offered) == b"c"


def test_without_subprotocols_there_is_no_token() -> None:
    assert subprotocol_token(None) is None


@given(st.lists(st.sampled_from([b"a", b"", b"sandbox-router.bearer.S3CRET", b"b.c"]), max_size=6))
def test_no_token_is_left_among_subprotocols(parts: list[bytes]) -> None:
    assert b"S3CRET" not in without_token(b", ".join(parts))


# --- responses ------------------------------------------------------------------------------


def returned(
    *lines: str | bytes,
    line: str = "HTTP/1.1 200 OK",
    add_chunked: bool = False,
    drop_chunked: bool = False,
    connection: bytes = b"",
    scope: PathScope | None = None,
) -> list[bytes]:
    """Returns the lines that the client is sent."""
    encoded = [text.encode("latin-1") if isinstance(text, str) else text for text in lines]
    head = parse_response(b"\r\n".join([line.encode("latin-1"), *encoded, b"", b""]))
    data = response_head(
        head,
        add_chunked=add_chunked,
        drop_chunked=drop_chunked,
        connection=connection,
        scope=scope,
    )
    assert data.endswith(b"\r\n\r\n")
    out = data[:-4].split(b"\r\n")
    assert b"" not in out
    return out


def test_a_plain_answer_crosses_without_a_copy() -> None:
    raw = b"HTTP/1.1 200 Fine\r\nserver: x\r\nContent-length:  3\r\nSet-Cookie: a\r\n\r\n"
    head = parse_response(raw)
    out = response_head(head, add_chunked=False, drop_chunked=False, connection=b"", scope=None)
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
    lines = [name + b":" + b"".join(rest) for name, *rest in fields]
    head = parse_response(b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""]))
    dropped = (*hop_by_hop, *head.nominated)
    crossing = [line for line in lines if line.partition(b":")[0].lower() not in dropped]
    out = response_head(
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


def scope_of(*lines: str, path: str = "/s/team/box/8888/a/b?q", peer: Peer = STRANGER) -> PathScope:
    target = Target(SandboxRef("team", "box"), 8888, named_by=NamedBy.PATH, path_root=ROOT)
    head = head_of(*lines, line=f"GET {path} HTTP/1.1", host="Public.example")
    return PathScope.of(target, head, peer, SANDBOX)


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


def test_outside_of_path_mode_redirects_and_cookies_are_the_apps_business() -> None:
    lines = ["Location: /login", "Set-Cookie: a=b; Domain=x"]
    assert returned(*lines)[1:] == [line.encode() for line in lines]


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
    crossed = response_head(head, add_chunked=False, drop_chunked=True, connection=b"", scope=None)
    assert crossed == b"HTTP/1.1 %d Early\r\nLink: </a>\r\n\r\n" % status


def test_an_interim_answer_crosses_without_transfer_encoding() -> None:
    head = parse_response(b"HTTP/1.1 103 Early\r\nTransfer-Encoding: chunked\r\n\r\n")
    crossed = response_head(head, add_chunked=False, drop_chunked=True, connection=b"", scope=None)
    assert crossed == b"HTTP/1.1 103 Early\r\n\r\n"
