"""By host, by path or by header: how requests name their sandbox, and what of it the sandbox sees."""

import pytest

from router.routing.endpoint import Wishes
from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.upgrades import switching, upgrade


def see(asked):
    """Answers with what the sandbox saw."""
    return answer(body=b" ".join([asked.target, *asked.all("X-Forwarded-Host")]))


@pytest.fixture
async def by_host(start_router, pod):
    router = await start_router(base_domain="box.example")
    router.knows(pod)
    router.knows(pod, namespace="team-a", uid="pod-2")
    return router


@pytest.fixture
async def by_path(start_router, pod):
    router = await start_router(path_prefix="/s")
    router.knows(pod)
    router.knows(pod, namespace="team-a", uid="pod-2")
    return router


@pytest.mark.parametrize(
    "host",
    [
        "8888-box.box.example",
        "8888-box--team-a.box.example",
        "8888-BOX.Box.Example:8443",
        "8888-box.box.example.",
    ],
)
async def test_a_host_names_a_sandbox(by_host, pod, host):
    async with serving(pod, see):
        told = await by_host.ask(request("GET", "/p?q", sandbox=None, host=host))
    assert told.body == b"/p?q " + host.encode()


@pytest.mark.parametrize(
    "host",
    [
        "box.example",
        "www.box.example",
        "api.box.example",
        "admin.box.example",
        "box.box.example",
        "8888-.box.example",
        "0-box.box.example",
        "99999-box.box.example",
        "8888-box.other.example",
        "a.8888-box.box.example",
        "8888-box.box.example.evil",
        "8888-b_x.box.example",
        "127.0.0.1",
        "[::1]:80",
    ],
)
async def test_any_other_host_is_421(by_host, pod, host):
    told = await by_host.ask(request(sandbox=None, host=host))
    assert (told.status, told.code) == (421, "misdirected")
    assert pod.connections == 0


async def test_a_host_and_a_header_must_agree(by_host, pod):
    told = await by_host.ask(request(sandbox="other", host="8888-box.box.example"))
    assert (told.status, told.code) == (400, "ambiguous_target")
    async with serving(pod):
        told = await by_host.ask(request(sandbox="box", host="8888-box.box.example"))
    assert told.status == 200


async def test_headers_name_a_sandbox_under_any_host(by_host, pod):
    async with serving(pod):
        assert (await by_host.ask(request(host="router.internal"))).status == 200


async def test_the_authority_of_an_absolute_target_wins_over_host(by_host, pod):
    raw = request(
        "GET", "http://8888-BOX.box.example:80/p?q", sandbox=None, host="8888-x.box.example"
    )
    async with serving(pod, see):
        told = await by_host.ask(raw)
    assert told.body == b"/p?q 8888-BOX.box.example:80"


@pytest.mark.parametrize(
    ("target", "seen"),
    [
        ("/s/default/box/8888/a/b?c=d", b"/a/b?c=d"),
        ("/s/default/box/8888", b"/"),
        ("/s/default/box/8888?x", b"/?x"),
        ("/s/default/box/8888/", b"/"),
        ("/s/team-a/box/8888/%2e%2e//x%zz?", b"/%2e%2e//x%zz?"),
        ("/s/default/box/8888//double", b"//double"),
    ],
)
async def test_a_path_names_a_sandbox_and_its_rest_crosses_byte_for_byte(
    by_path, pod, target, seen
):
    async with serving(pod, see):
        told = await by_path.ask(request("GET", target, sandbox=None))
    assert told.body == seen + b" router.test"


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/s", "bad_request"),
        ("/s/default", "bad_request"),
        ("/s/default/box", "bad_request"),
        ("/s/Default/box/8888/", "invalid_namespace"),
        ("/s/default/b_x/8888/", "invalid_sandbox_id"),
        ("/s/default/box/8_888/", "invalid_port"),
        ("/s//box/8888/", "invalid_namespace"),
        ("/sandboxes/default/box/8888/", "missing_sandbox_id"),
        ("/S/default/box/8888/", "missing_sandbox_id"),
    ],
)
async def test_a_path_that_names_none_is_400(by_path, pod, target, code):
    told = await by_path.ask(request("GET", target, sandbox=None))
    assert (told.status, told.code) == (400, code)
    assert pod.connections == 0


@pytest.mark.parametrize(
    ("location", "seen"),
    [
        ("/login?next=/", "/s/default/box/8888/login?next=/"),
        ("/s/default/box/8888/login", "/s/default/box/8888/login"),
        ("login", "login"),
        ("https://elsewhere.example/", "https://elsewhere.example/"),
        ("//elsewhere.example/", "//elsewhere.example/"),
        ("http://router.test/login", "/s/default/box/8888/login"),
    ],
)
async def test_a_redirect_stays_under_the_sandboxes_root(by_path, pod, location, seen):
    async with serving(pod, lambda _: answer(302, ("Location", location), ("X-A", "b"))):
        told = await by_path.ask(request("GET", "/s/default/box/8888/", sandbox=None))
    assert (told.get("Location"), told.get("X-A")) == (seen.encode(), b"b")


async def test_a_redirect_to_the_pods_own_address_comes_back_through_the_router(by_path, pod):
    own = f"http://127.0.0.1:{pod.port}/home"
    async with serving(pod, lambda _: answer(302, ("Location", own))):
        told = await by_path.ask(request("GET", "/s/default/box/8888/", sandbox=None))
    assert told.get("Location") == b"/s/default/box/8888/home"


async def test_cookies_stay_under_the_sandboxes_root(by_path, pod):
    cookies = [("Set-Cookie", "a=b; Path=/; Domain=example; HttpOnly"), ("Set-Cookie", "c=d")]
    async with serving(pod, lambda _: answer(200, *cookies)):
        told = await by_path.ask(request("GET", "/s/default/box/8888/x/y", sandbox=None))
    assert told.all("Set-Cookie") == [
        b"a=b; Path=/s/default/box/8888/; HttpOnly",
        b"c=d; Path=/s/default/box/8888/x",
    ]


async def test_the_cookies_of_a_handshake_stay_under_the_root_too(by_path, pod):
    client = await by_path.connect()
    client.send(upgrade(target="/s/default/box/8888/ws", sandbox=None))
    sandbox = await pod.accept()
    assert (await sandbox.request()).target == b"/ws"
    sandbox.send(switching(("Set-Cookie", "a=b")))
    assert (await client.answer()).get("Set-Cookie") == b"a=b; Path=/s/default/box/8888/"


async def test_without_path_mode_redirects_and_cookies_cross_untouched(router, pod):
    said = answer(302, ("Location", "/x"), ("Set-Cookie", "a=b; Path=/"))
    client = await router.connect()
    async with serving(pod, lambda _: said):
        client.send(request())
        assert await client.read(len(said)) == said


ASKED = {
    "header": request(),
    "host": request(sandbox=None, host="8888-box.box.example"),
    "path": request("GET", "/s/default/box/8888/a", sandbox=None),
}


async def told_by(router, pod, *said):
    """Returns the responses to requests, each of which is (how it names its sandbox, the headers that the sandbox says)."""
    answers = iter([answer(200, *headers, body=b"x") for _, *headers in said])
    async with serving(pod, lambda _: next(answers)):
        return [await router.ask(ASKED[way]) for way, *_ in said]


@pytest.fixture
async def by_any_way(start_router, pod):
    router = await start_router(base_domain="box.example", path_prefix="/s")
    router.knows(pod)
    return router


WAYS = pytest.mark.parametrize("way", ["header", "host", "path"])


@WAYS
@pytest.mark.parametrize("name", ["Location", "Content-Location", "Refresh"])
async def test_a_url_at_the_pods_address_comes_back_as_the_clients_own(by_any_way, pod, way, name):
    before = "0; url=" if name == "Refresh" else ""
    own = f"{before}http://127.0.0.1:{pod.port}/login?x"
    (told,) = await told_by(by_any_way, pod, (way, (name, own)))
    root = "/s/default/box/8888" if way == "path" else ""
    assert told.get(name) == f"{before}{root}/login?x".encode()


@WAYS
async def test_no_cookie_is_for_siblings_and_no_order_for_a_front(by_any_way, pod, way):
    said = [
        ("Set-Cookie", "a=b; Domain=box.example"),
        ("X-Accel-Redirect", "/protected"),
        ("X-Sendfile", "/etc/passwd"),
    ]
    (told,) = await told_by(by_any_way, pod, (way, *said))
    assert b"domain" not in told.get("Set-Cookie").lower()
    assert told.get("X-Accel-Redirect") is None
    assert told.get("X-Sendfile") is None


ORIGIN_WIDE = {
    "Service-Worker-Allowed": "/",
    "Clear-Site-Data": '"cache"',
    "NEL": "{}",
    "Report-To": "{}",
    "Reporting-Endpoints": 'a="https://evil.example/"',
    "Alt-Svc": 'h2=":443"',
    "Strict-Transport-Security": "max-age=1",
}


async def test_what_works_on_a_whole_origin_leaves_no_sandbox_that_shares_one(by_any_way, pod):
    told = await told_by(
        by_any_way, pod, *((way, *ORIGIN_WIDE.items()) for way in ("header", "path", "host"))
    )
    by_header, by_path, by_host = (
        {name: message.get(name) for name in ORIGIN_WIDE if message.get(name)} for message in told
    )
    assert by_header == {}
    assert by_path == {"Service-Worker-Allowed": b"/s/default/box/8888/"}
    assert by_host == {name: value.encode() for name, value in ORIGIN_WIDE.items()}


@WAYS
async def test_a_cache_is_told_what_tells_sandboxes_apart(by_any_way, pod, way):
    kept, not_kept = await told_by(
        by_any_way,
        pod,
        (way, ("Cache-Control", "public, max-age=600")),
        (way, ("Cache-Control", "no-store")),
    )
    expected = b"X-Sandbox-ID, X-Sandbox-Namespace, X-Sandbox-Port" if way == "header" else None
    assert kept.get("Vary") == expected
    assert not_kept.get("Vary") is None


PAGE = ("Accept", "text/html,*/*;q=0.8")


@pytest.mark.parametrize(
    ("target", "where"),
    [
        ("/s/default/box/8888", b"/s/default/box/8888/"),
        ("/s/default/box/8888?a=b", b"/s/default/box/8888/?a=b"),
    ],
)
async def test_a_browser_is_sent_to_the_root_with_its_slash(by_path, pod, target, where):
    client = await by_path.connect()
    client.send(request("GET", target, PAGE, sandbox=None))
    told = await client.answer()
    assert (told.status, told.get("Location"), told.code) == (308, where, "")
    async with serving(pod, see):
        client.send(request("GET", where, PAGE, sandbox=None))
        assert (await client.answer()).body.startswith(b"/")
    assert (await by_path.outcome()).status == 308


async def test_a_stranger_is_sent_nowhere(by_path):
    told = await by_path.ask(request("GET", "/s/default/box/8888", PAGE, sandbox=None, token=None))
    assert told.status == 401


@pytest.mark.parametrize(
    ("setting", "annotation", "seen", "prefix"),
    [
        ("strip", "", b"/a?b", b"/s/default/box/8888"),
        ("strip", "keep", b"/s/default/box/8888/a?b", None),
        ("keep", "", b"/s/default/box/8888/a?b", None),
        ("keep", "strip", b"/a?b", b"/s/default/box/8888"),
    ],
)
async def test_an_app_may_keep_its_whole_path(start_router, pod, setting, annotation, seen, prefix):
    router = await start_router(path_prefix="/s", path_mode=setting)
    router.knows(pod, wishes=Wishes(path_mode=annotation))
    asked = []

    def reply(message):
        asked.append(message)
        return answer(302, ("Location", "/x"), ("Set-Cookie", "a=b; Path=/"))

    async with serving(pod, reply):
        told = await router.ask(request("GET", "/s/default/box/8888/a?b", sandbox=None))
    assert asked[0].target == seen
    assert asked[0].get("X-Forwarded-Prefix") == prefix
    assert told.get("Location") == (prefix or b"") + b"/x"
    assert told.get("Set-Cookie") == b"a=b; Path=/s/default/box/8888/"


async def test_an_app_that_keeps_its_path_decides_about_slashes_itself(start_router, pod):
    router = await start_router(path_prefix="/s", path_mode="keep")
    router.knows(pod)
    async with serving(pod, see):
        told = await router.ask(request("GET", "/s/default/box/8888", PAGE, sandbox=None))
    assert told.body.startswith(b"/s/default/box/8888 ")


HEALTHY = (200, b'{"status":"ok"}')


@pytest.mark.parametrize("target", ["/healthz", "/healthz?from=lb"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("host", ["10.0.0.1:8080", "www.box.example"])
async def test_a_load_balancer_gets_its_answer(by_host, target, method, host):
    told = await by_host.ask(request(method, target, sandbox=None, token=None, host=host))
    assert told.status == 200
    assert told.get("Content-Length") == b"15"
    assert told.body == (b"" if method == "HEAD" else HEALTHY[1])


async def test_a_load_balancer_may_speak_http_1_0_without_a_host(by_host):
    raw = request("GET", "/healthz", sandbox=None, token=None, host=None, version="HTTP/1.0")
    told = await by_host.ask(raw)
    assert (told.status, told.body) == HEALTHY


@pytest.mark.parametrize(
    "raw",
    [
        request("GET", "/healthz"),
        request("GET", "/healthz", sandbox=None, host="8888-box.box.example"),
    ],
)
async def test_a_request_that_names_a_sandbox_gets_the_sandboxes_own_healthz(by_host, pod, raw):
    async with serving(pod, lambda _: answer(500, body=b"mine")):
        told = await by_host.ask(raw)
    assert (told.status, told.body) == (500, b"mine")


@pytest.mark.parametrize(
    "raw",
    [
        request("GET", "/healthz", sandbox="A"),
        request("POST", "/healthz", sandbox=None),
        request("GET", "/healthz/", sandbox=None),
        request("GET", "/healthzz", sandbox=None),
    ],
)
async def test_anything_like_a_health_check_is_none(router, raw):
    assert (await router.ask(raw)).status == 400


async def test_a_draining_router_fails_health_checks(router):
    client = await router.connect()
    client.send(request("GET", "/healthz", sandbox=None))
    assert (await client.answer()).status == 200
    router.clients.is_draining = True
    client.send(request("GET", "/healthz", sandbox=None))
    told = await client.answer()
    assert (told.status, told.code, told.get("Connection")) == (503, "draining", b"close")


async def test_an_answer_while_draining_says_close(router, pod):
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    router.clients.drain()
    sandbox.send(answer(body=b"a"))
    told = await client.answer()
    assert (told.body, told.get("Connection")) == (b"a", b"close")
    assert await client.end() == "eof"


async def test_idle_connections_are_closed_by_draining(router):
    client = await router.connect()
    client.send(request("GET", "/healthz", sandbox=None))
    await client.answer()
    router.clients.drain()
    assert await client.end() == "eof"
