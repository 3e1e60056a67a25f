"""What of a message crosses: everything, byte for byte, but for what the router answers for."""

import pytest

from router.proxy.wire.stripping import Stripped
from tests.integration.proxy.messages import AUTHORIZATION, TOKEN, answer, request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.upgrades import upgrade

PROXY = "127.0.0.1/32"


async def seen(router, pod, raw):
    """Returns what the sandbox got of a request."""
    client = await router.connect()
    client.send(raw)
    sandbox = await pod.accept()
    message = await sandbox.request()
    client.close()
    await sandbox.rest()
    sandbox.close()
    return message


async def test_a_plain_request_gains_only_what_the_router_says_of_itself(router, pod):
    asked = await seen(
        router,
        pod,
        request("GET", "/a?b", ("Accept", "*/*"), ("X-B", "1"), ("x-b", "2"), ("X-Empty", "")),
    )
    assert asked.line == b"GET /a?b HTTP/1.1"
    assert asked.headers == [
        (b"Host", b"127.0.0.1:%d" % pod.port),
        (b"Accept", b"*/*"),
        (b"X-B", b"1"),
        (b"x-b", b"2"),
        (b"X-Empty", b""),
        (b"X-Forwarded-For", b"127.0.0.1"),
        (b"X-Forwarded-Proto", b"http"),
        (b"X-Forwarded-Host", b"router.test"),
        (b"Via", b"1.1 sandbox-router"),
    ]


async def test_an_answer_gains_and_loses_nothing(router, pod):
    said = (
        b"HTTP/1.1 299 Anything \xe9 goes\r\nDate: x\r\nserver: me\r\nX-A: 1\r\nx-a: 2\r\n"
        b"Content-Encoding: gzip\r\nX-Latin: \xe9\xff\r\nX-Empty:\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x00"
    )
    client = await router.connect()
    async with serving(pod, lambda _: said):
        for _ in range(2):
            client.send(request())
            assert await client.read(len(said)) == said


@pytest.mark.parametrize(
    "target",
    [
        b"/%2e%2e/%2F?%zz&a=b+c",
        b"//double//slash/../x/.",
        b"/?",
        b"/a;b=c?d?e",
        "/späße".encode(),
        b"/" + bytes(range(0x80, 0x100)),
        b"/|<>\"{}^`\\'",
    ],
)
async def test_a_target_crosses_byte_for_byte(router, pod, target):
    assert (await seen(router, pod, request("GET", target))).target == target


@pytest.mark.parametrize(
    ("method", "target"), [("OPTIONS", "*"), ("PROPFIND", "/x"), ("get", "/"), ("M-SEARCH", "/")]
)
async def test_any_method_crosses(router, pod, method, target):
    asked = await seen(router, pod, request(method, target))
    assert asked.line == f"{method} {target} HTTP/1.1".encode()


async def test_an_absolute_target_becomes_a_path_for_the_pod(router, pod):
    asked = await seen(router, pod, request("GET", "http://router.test/a?b"))
    assert asked.target == b"/a?b"
    assert asked.get("X-Forwarded-Host") == b"router.test"


async def test_credentials_and_routing_stay_with_the_router(router, pod):
    asked = await seen(
        router,
        pod,
        request(
            "GET",
            "/",
            ("X-Sandbox-Namespace", "default"),
            ("X-Sandbox-Port", "8888"),
            ("X-Sandbox-UID", "pod-1"),
            ("X-Sandbox-Pod-IP", "10.0.0.1"),
            ("X-Sandbox-Timeout", "5"),
            ("X-Forwarded-Client-Cert", "Subject=evil"),
            ("X-Sandbox-Router-Error", "fake"),
            ("Proxy-Authorization", "Basic eA=="),
        ),
    )
    names = {name.lower() for name, _ in asked.headers}
    assert names == {
        b"host",
        b"x-forwarded-for",
        b"x-forwarded-proto",
        b"x-forwarded-host",
        b"via",
    }
    assert TOKEN.encode() not in b"".join(value for _, value in asked.headers)


async def test_the_apps_own_authorization_passes_beside_a_sandbox_token(router, pod):
    raw = request(
        "GET", "/", ("X-Sandbox-Token", TOKEN), ("Authorization", "Basic YTpi"), token=None
    )
    asked = await seen(router, pod, raw)
    assert asked.get("Authorization") == b"Basic YTpi"
    assert asked.get("X-Sandbox-Token") is None


async def test_a_token_among_the_subprotocols_is_taken_out(router, pod):
    raw = upgrade(
        ("Sec-WebSocket-Protocol", f"chat, sandbox-router.bearer.{TOKEN}, superchat"), token=None
    )
    asked = await seen(router, pod, raw)
    assert asked.get("Sec-WebSocket-Protocol") == b"chat, superchat"


async def test_what_a_client_says_of_itself_is_replaced(router, pod):
    asked = await seen(
        router,
        pod,
        request(
            "GET",
            "/",
            ("X-Forwarded-For", "1.2.3.4"),
            ("x-forwarded-for", "5.6.7.8"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Host", "evil"),
            ("Forwarded", "for=1.2.3.4"),
        ),
    )
    assert asked.get("X-Forwarded-For") == b"127.0.0.1"
    assert asked.get("X-Forwarded-Proto") == b"http"
    assert asked.get("X-Forwarded-Host") == b"router.test"
    assert asked.get("Forwarded") is None


@pytest.mark.parametrize(
    "name",
    [
        "X_Forwarded_For",
        "X-Forwarded_For",
        "x_forwarded_host",
        "X_Forwarded_Proto",
        "X_Sandbox_ID",
        "X_Sandbox_Token",
        "X_Forwarded_Client_Cert",
        "Transfer_Encoding",
        "Content_Length",
        "Proxy_Authorization",
        "X_Sandbox_Router_Error",
    ],
)
async def test_a_lookalike_with_underscores_does_not_pass(router, pod, name):
    asked = await seen(router, pod, request("GET", "/", (name, "evil"), ("X_Own", "kept")))
    assert asked.get("X_Own") == b"kept"
    assert b"evil" not in [value for _, value in asked.headers]


@pytest.mark.parametrize(
    ("connection", "dropped", "kept"),
    [
        ("X-One, x-two", {"X-One", "X-Two"}, {"X-Three"}),
        ("close, X-One", {"X-One"}, {"X-Two", "X-Three"}),
        ("Authorization, Cookie, Host", set(), {"X-One", "Cookie"}),
        ("X-Forwarded-For, Via, Content-Length", set(), {"X-One"}),
        (",,, keep-alive ,", set(), {"X-One", "X-Two"}),
    ],
)
async def test_connection_removes_what_it_names_but_nothing_that_protects(
    router, pod, connection, dropped, kept
):
    raw = request(
        "POST",
        "/",
        ("Connection", connection),
        ("X-One", "1"),
        ("X-Two", "2"),
        ("X-Three", "3"),
        ("Cookie", "a=b"),
        ("Keep-Alive", "timeout=5"),
        body=b"body",
    )
    asked = await seen(router, pod, raw)
    assert asked.body == b"body"
    assert asked.get("X-Forwarded-For") == b"127.0.0.1"
    assert asked.get("Connection") is None
    assert asked.get("Keep-Alive") is None
    assert not {name for name in dropped if asked.get(name) is not None}
    assert not {name for name in kept if asked.get(name) is None}


async def test_hop_by_hop_headers_of_an_answer_stay_with_the_hop(router, pod):
    said = answer(
        200,
        ("Connection", "close, X-Hop"),
        ("X-Hop", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Upgrade", "h2c"),
        ("Proxy-Authenticate", "Basic"),
        ("X-End", "2"),
        body=b"a",
    )
    async with serving(pod, lambda _: said):
        told = await router.ask(request())
    assert told.headers == [(b"Content-Length", b"1"), (b"X-End", b"2")]


async def test_a_sandbox_cannot_speak_for_the_router(router, pod):
    said = answer(
        404,
        ("X-Sandbox-Router-Error", "sandbox_not_found"),
        ("x_sandbox_router_error", "forbidden"),
        body=b"{}",
    )
    async with serving(pod, lambda _: said):
        told = await router.ask(request())
    assert (told.status, told.code, told.body) == (404, "", b"{}")
    assert told.headers == [(b"Content-Length", b"2")]


async def test_the_host_may_be_kept(start_router, pod):
    router = await start_router(preserve_host=True)
    router.knows(pod)
    asked = await seen(router, pod, request("GET", "/", host="app.example:8443"))
    assert asked.get("Host") == b"app.example:8443"
    asked = await seen(router, pod, request(version="HTTP/1.0", host=None))
    assert asked.get("Host") == b"127.0.0.1:%d" % pod.port


OWN_ORIGIN = ("Origin", "http://router.test")


@pytest.mark.parametrize("policy", ["rewrite", "keep", "drop"])
async def test_the_apps_own_origin_follows_the_policy_and_no_other_does(start_router, pod, policy):
    router = await start_router(origin=policy)
    router.knows(pod)
    own = {
        "rewrite": b"http://127.0.0.1:%d" % pod.port,
        "keep": b"http://router.test",
        "drop": None,
    }
    for raw in (request("POST", "/", OWN_ORIGIN), upgrade(OWN_ORIGIN, host="router.test")):
        assert (await seen(router, pod, raw)).get("Origin") == own[policy]
    for foreign in ("https://evil.example", "null"):
        for raw in (
            request("POST", "/", ("Origin", foreign)),
            upgrade(("Origin", foreign), host="router.test"),
        ):
            assert (await seen(router, pod, raw)).get("Origin") == foreign.encode()


async def test_a_page_of_another_sandbox_keeps_its_origin(start_router, pod):
    router = await start_router(base_domain="sb.test", preserve_host=True)
    router.knows(pod)
    asked = await seen(
        router,
        pod,
        upgrade(("Origin", "https://80-evil.sb.test"), sandbox=None, host="8888-box.sb.test"),
    )
    assert asked.get("Origin") == b"https://80-evil.sb.test"
    assert asked.get("Host") == b"8888-box.sb.test"


CLAIMS = (
    "X-Real-IP",
    "X_Real_IP",
    "X-Client-IP",
    "True-Client-IP",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Original-URL",
    "X-Scheme",
    "Front-End-Https",
    "X-Remote-User",
    "X-Auth-Request-Email",
    "X-Envoy-External-Address",
    "Forwarded",
)


async def test_a_strangers_claims_of_every_kind_stay_outside(router, pod):
    asked = await seen(router, pod, request("GET", "/", *((name, "6.6.6.6") for name in CLAIMS)))
    assert [name for name, value in asked.headers if b"6.6.6.6" in value] == []


async def test_what_a_trusted_proxy_claims_passes_but_for_what_is_stripped(start_router, pod):
    stripped = Stripped.of(["X-Auth-Request-*"], ["_front*"])
    router = await start_router(trusted_proxies=(PROXY,), stripped=stripped)
    router.knows(pod)
    asked = await seen(
        router,
        pod,
        request(
            "GET",
            "/",
            ("X-Real-IP", "203.0.113.7"),
            ("X-Auth-Request-Email", "a@b.example"),
            ("Cookie", "_front_0=secret; mine=1"),
        ),
    )
    assert asked.get("X-Real-IP") == b"203.0.113.7"
    assert asked.get("X-Auth-Request-Email") is None
    assert asked.get("Cookie") == b"mine=1"


async def test_a_websocket_without_a_key_gets_one_behind_a_trusted_proxy_alone(start_router, pod):
    raw = upgrade()
    key = next(line for line in raw.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
    without = raw.replace(key + b"\r\n", b"")
    for trusted, comes in (((), False), ((PROXY,), True)):
        router = await start_router(trusted_proxies=trusted)
        router.knows(pod)
        asked = await seen(router, pod, without)
        assert (asked.get("Sec-WebSocket-Key") is not None) is comes


@pytest.fixture
async def behind_proxies(start_router, pod):
    router = await start_router(trusted_proxies=(PROXY, "10.0.0.0/8"))
    router.knows(pod)
    return router


@pytest.mark.parametrize(
    ("said", "client"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("1.1.1.1, 203.0.113.7, 10.1.2.3", "203.0.113.7"),
        ("10.1.2.3", "10.1.2.3"),
        ("1.1.1.1, nonsense, 10.1.2.3", "10.1.2.3"),
        ("2001:db8::1", "2001:db8::1"),
        ("203.0.113.7:51234", "203.0.113.7"),
        ("[2001:db8::1]:443, 10.1.2.3:8080", "2001:db8::1"),
        ("", "127.0.0.1"),
    ],
)
async def test_behind_trusted_proxies_the_client_is_found_from_the_right(
    behind_proxies, pod, said, client
):
    asked = await seen(behind_proxies, pod, request("GET", "/", ("X-Forwarded-For", said)))
    assert asked.get("X-Forwarded-For") == f"{said}, 127.0.0.1".encode()
    assert (await behind_proxies.outcome()).client == client


async def test_a_trusted_proxys_word_counts(behind_proxies, pod):
    asked = await seen(
        behind_proxies,
        pod,
        request("GET", "/", ("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "public.example")),
    )
    assert asked.get("X-Forwarded-Proto") == b"https"
    assert asked.get("X-Forwarded-Host") == b"public.example"
    assert asked.get("X-Forwarded-For") == b"127.0.0.1"


async def test_the_bearer_scheme_is_consumed_in_any_case(router, pod):
    raw = request("GET", "/", ("Authorization", AUTHORIZATION.replace("Bearer", "bEaReR")))
    raw = raw.replace(f"Authorization: {AUTHORIZATION}\r\n".encode(), b"", 1)
    assert (await seen(router, pod, raw)).get("Authorization") is None


async def test_trace_context_passes(router, pod):
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    raw = request("GET", "/", ("traceparent", parent), ("tracestate", "a=b"), ("baggage", "c=d"))
    asked = await seen(router, pod, raw)
    assert asked.get("traceparent") == parent.encode()
    assert (asked.get("tracestate"), asked.get("baggage")) == (b"a=b", b"c=d")


async def test_a_preflight_that_passes_brings_no_cookie_to_the_sandbox(start_router, pod):
    router = await start_router(passes_preflights=True)
    router.knows(pod)
    seen = []
    async with serving(pod, lambda asked: seen.append(asked) or answer()):
        told = await router.ask(
            request(
                "OPTIONS",
                "/api",
                ("Origin", "https://app.example"),
                ("Access-Control-Request-Method", "POST"),
                ("Cookie", "session=s3cret"),
                token=None,
            )
        )
    assert told.status == 200
    assert seen[0].get("Cookie") is None
    assert seen[0].get("Origin") == b"https://app.example"
