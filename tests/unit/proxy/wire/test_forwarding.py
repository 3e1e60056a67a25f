"""What a sandbox is sent, and what a client is sent back."""

from __future__ import annotations

import base64
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import BadRequest
from router.proxy.wire.forwarding import crossing_request_head, subprotocol_token, without_token
from router.proxy.wire.header_rules import REQUEST_KINDS, Kind
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead, parse_request, resolve_target_form
from router.proxy.wire.stripping import Stripped
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
    path_root: bytes = b"",
    stripped: Stripped | None = None,
) -> list[bytes]:
    """Returns the lines that the sandbox is sent."""
    data = crossing_request_head(
        head,
        target=head.target if target is None else target,
        host=host,
        peer=peer,
        keep_authorization=keep_authorization,
        origin_policy=origin_policy,
        path_root=path_root,
        stripped=stripped,
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


def test_an_absolute_target_crosses_as_the_path_that_it_became():
    head = head_of(line="GET http://box/a?b HTTP/1.1")
    resolve_target_form(head)
    assert sent(head)[0] == b"GET /a?b HTTP/1.1"


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
        if REQUEST_KINDS[name := line.partition(b":")[0]]
        in (Kind.FORWARD, Kind.EXPECT, Kind.COOKIE)
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


CLAIMS = (
    "X-Real-IP",
    "X-Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "X-Cluster-Client-IP",
    "X-Forwarded",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Scheme",
    "X-Forwarded-User",
    "X-Forwarded-Anything",
    "X-Original-URL",
    "X-Original-Forwarded-For",
    "X-Scheme",
    "X-Url-Scheme",
    "Front-End-Https",
    "X-Remote-User",
    "Remote-User",
    "X-Auth-Request-Email",
    "X-Envoy-External-Address",
    "X-SSL-Client-Verify",
)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_about_the_client_crosses_from_a_trusted_proxy_alone(name: str) -> None:
    for spelling in (name, name.lower(), name.upper()):
        head = head_of(f"{spelling}: 6.6.6.6")
        assert b"6.6.6.6" not in b"\n".join(sent(head, peer=STRANGER))
        assert values(sent(head, peer=PROXY), name) == [b"6.6.6.6"]


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("peer", [STRANGER, PROXY], ids=["stranger", "trusted proxy"])
def test_a_claim_with_underscores_never_crosses(name: str, peer: Peer) -> None:
    if "-" in name:
        head = head_of(f"{name.replace('-', '_')}: 6.6.6.6")
        assert b"6.6.6.6" not in b"\n".join(sent(head, peer=peer))


@pytest.mark.parametrize("peer", [STRANGER, PROXY], ids=["stranger", "trusted proxy"])
def test_what_poses_as_a_proxy_for_cgi_never_crosses(peer: Peer) -> None:
    assert values(sent(head_of("Proxy: http://evil.example"), peer=peer), "proxy") == []


ROOT = b"/s/team/box/8888"


@pytest.mark.parametrize(
    ("peer", "said", "told"),
    [
        (STRANGER, None, ROOT),
        (STRANGER, "/evil", ROOT),
        (PROXY, "/tools", b"/tools" + ROOT),
        (PROXY, "/tools/", b"/tools" + ROOT),
        (PROXY, "/", ROOT),
        (PROXY, "//evil.example", ROOT),
        (PROXY, "tools", ROOT),
        (PROXY, '/"><script>', ROOT),
    ],
)
def test_in_path_mode_the_app_learns_its_prefix(peer: Peer, said: str | None, told: bytes) -> None:
    lines = [] if said is None else [f"X-Forwarded-Prefix: {said}"]
    assert values(sent(head_of(*lines), peer=peer, path_root=ROOT), "x-forwarded-prefix") == [told]


def test_without_a_path_taken_off_there_is_no_prefix() -> None:
    assert values(sent(head_of()), "x-forwarded-prefix") == []


def test_what_a_front_keeps_for_itself_is_stripped() -> None:
    stripped = Stripped.of(["X-Auth-Request-*", "x_remote_user"], ["_oauth2_proxy*", "sid"])
    head = head_of(
        "X-Auth-Request-Email: a@b",
        "X-Remote-User: a",
        "Cookie: a=b; _oauth2_proxy_0=x; _oauth2_proxy=y;sid=1; Sid=2",
        "cookie: sid=1",
        "X-Real-IP: 6.6.6.6",
    )
    lines = sent(head, peer=PROXY, stripped=stripped)
    assert [line for line in lines if b"@" in line or line.lower().startswith(b"x-remote")] == []
    assert values(lines, "cookie") == [b"a=b; Sid=2"]
    assert values(lines, "x-real-ip") == [b"6.6.6.6"]


def test_without_anything_to_strip_a_cookie_crosses_byte_for_byte() -> None:
    line = b"cOOkie:  a=b;;c=d ; "
    assert line in sent(head_of(line))


def test_tls_is_told_as_https() -> None:
    for trusted in ((), TRUSTED):
        peer = Peer("192.0.2.7", is_tls=True, trusted=trusted)
        assert forwarded(peer)["proto"] == [b"https"]


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
    (first,), (second,) = (values(sent(head, peer=PROXY), KEY) for _ in range(2))
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
    assert values(sent(head_of(*lines), peer=PROXY), KEY) == keys


def test_a_stranger_that_sends_no_key_gets_none() -> None:
    assert values(sent(head_of(*UPGRADE, VERSION)), KEY) == []


def test_h2c_is_never_offered() -> None:
    head = head_of("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAM")
    lines = sent(head)
    assert values(lines, "upgrade") == values(lines, "connection") == []
    assert values(lines, "http2-settings") == []


def test_an_upgrade_with_trailers_names_both() -> None:
    lines = sent(head_of(*UPGRADE, "TE: trailers"))
    assert (values(lines, "connection"), values(lines, "te")) == ([b"Upgrade, TE"], [b"trailers"])


# --- Origin -----------------------------------------------------------------------------------

OWN = "http://box"
REWRITTEN = b"http://10.0.0.5:8888"
TLS = Peer("198.51.100.9", is_tls=True, trusted=TRUSTED)


def origins(
    *lines: str,
    host: str = "box",
    peer: Peer = STRANGER,
    policy: str = "rewrite",
    line: str = "POST / HTTP/1.1",
) -> list[bytes]:
    return values(
        sent(head_of(*lines, line=line, host=host), peer=peer, origin_policy=policy), "origin"
    )


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"])
def test_the_apps_own_origin_matches_the_host_that_the_app_sees_on_every_method(
    method: str,
) -> None:
    assert origins(f"Origin: {OWN}", line=f"{method} / HTTP/1.1") == [REWRITTEN]


def test_the_apps_own_origin_is_rewritten_on_an_upgrade_too() -> None:
    assert origins(*UPGRADE, f"Origin: {OWN}", line="GET / HTTP/1.1") == [REWRITTEN]


FOREIGN = (
    "https://evil.example",
    "null",
    "http://box.evil.example",
    "http://evil.box",
    "http://box:8080",
    "http://box@evil.example",
    "http://box/",
    "http://box http://evil.example",
    "box",
    "//box",
    "ftp://box",
    "chrome-extension://box",
    "http://",
    "",
)


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("policy", ["rewrite", "keep", "drop"])
@pytest.mark.parametrize("upgrade", [(), UPGRADE], ids=["plain", "upgrade"])
def test_any_other_origin_is_as_it_came(origin: str, policy: str, upgrade: tuple[str, ...]) -> None:
    expected = [origin.encode()] if origin else []
    assert origins(*upgrade, f"Origin: {origin}", policy=policy) == expected


@pytest.mark.parametrize(
    ("host", "origin", "is_own"),
    [
        ("BOX", "http://box", True),
        ("box", "HTTP://Box", True),
        ("box:80", "http://box", True),
        ("box:443", "https://box", True),
        ("box", "https://box", True),
        ("box", "http://box:80", True),
        ("box:8080", "http://box:8080", True),
        ("[::1]:8080", "http://[::1]:8080", True),
        ("box:80", "https://box", False),
        ("box:443", "http://box", False),
        ("box:8080", "http://box", False),
        ("[::1]:8080", "http://[::1]", False),
    ],
)
def test_host_and_port_are_compared_and_default_ports_are_none(
    host: str, origin: str, is_own: bool
) -> None:
    found = origins(f"Origin: {origin}", host=host)
    assert found == [REWRITTEN if is_own else origin.encode()]


@pytest.mark.parametrize(
    ("peer", "said", "origin", "is_own"),
    [
        (STRANGER, (), "https://box", True),
        (TLS, (), "https://box", True),
        (TLS, (), "http://box", False),
        (PROXY, ("X-Forwarded-Proto: https",), "https://box", True),
        (PROXY, ("X-Forwarded-Proto: https",), "http://box", False),
        (STRANGER, ("X-Forwarded-Proto: https",), "http://box", True),
    ],
)
def test_the_scheme_counts_where_it_is_known(
    peer: Peer, said: tuple[str, ...], origin: str, is_own: bool
) -> None:
    assert (origins(*said, f"Origin: {origin}", peer=peer) == [REWRITTEN]) is is_own


def test_a_trusted_proxy_knows_the_host_that_the_page_came_from() -> None:
    lines = ("X-Forwarded-Host: public.example", "Origin: https://public.example")
    assert origins(*lines, peer=PROXY) == [REWRITTEN]
    assert origins(*lines, peer=STRANGER) == [b"https://public.example"]
    inner = ("X-Forwarded-Host: public.example", "Origin: http://box")
    assert origins(*inner, peer=PROXY) == [b"http://box"], "what the client used is the public name"


def test_with_its_host_preserved_the_apps_own_origin_matches_as_it_came() -> None:
    head = head_of("Origin: https://box:443", line="POST / HTTP/1.1")
    assert values(sent(head, host=b"box"), "origin") == [b"https://box:443"]


def test_the_policy_concerns_the_apps_own_origin() -> None:
    assert origins(f"Origin: {OWN}", policy="keep") == [OWN.encode()]
    assert origins(f"Origin: {OWN}", policy="drop") == []


def test_each_origin_line_is_judged_by_itself() -> None:
    assert origins("Origin: https://evil.example", f"Origin: {OWN}") == [
        b"https://evil.example",
        REWRITTEN,
    ]


def test_a_request_without_host_has_no_origin_of_its_own() -> None:
    assert origins("Origin: http://", line="GET / HTTP/1.0", host="") == [b"http://"]


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
