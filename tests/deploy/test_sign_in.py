"""Tests the example with oauth2-proxy: a person's browser, real nginx, real oauth2-proxy, an issuer, the real router, a sandbox."""

import asyncio
import contextlib
import json
from dataclasses import dataclass

import aiohttp
import pytest

from tests.deploy import fronts
from tests.deploy.fronts import EXAMPLES, HOST
from tests.deploy.issuer import Issuer, issuer
from tests.deploy.oauth2_proxy import oauth2_proxy
from tests.deploy.rendering import found
from tests.deploy.tools import ToolMissing

FOLDER = EXAMPLES / "oauth2-proxy"
PROGRAM = {"Accept": "application/json"}
NAVIGATION = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}


@dataclass(slots=True)
class World:
    """One browser before everything that the example names."""

    front: fronts.Front
    browser: aiohttp.ClientSession
    issuer: Issuer

    def url(self, target="/", scheme="https"):
        return self.front.url(target, scheme)

    @property
    def origin(self):
        return f"https://{HOST}:{self.front.port}"

    async def sign_in(self):
        async with self.browser.get(self.url("/page?a=1&b=2"), headers=NAVIGATION) as response:
            return response.status, response.url, await response.text()


@contextlib.asynccontextmanager
async def running(command, folder, name):
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)
        try:
            yield process, log
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.wait(), 20)


def certificates(folder):
    authority = fronts.trustme.CA()
    issued = authority.issue_cert("*.sandbox.example.com")
    (folder / "tls.crt").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(folder / "tls.key")
    return authority


def oauth2_proxy_of(folder, port, front_port, issuer_url, example=FOLDER):
    (folder / "client-secret").write_text("secret")
    (folder / "cookie-secret").write_text("0123456789abcdef0123456789abcdef")
    config = fronts.changed(
        example / "oauth2-proxy.cfg",
        folder / "oauth2-proxy.cfg",
        {
            "127.0.0.1:4180": f"127.0.0.1:{port}",
            "https://issuer.example.com": issuer_url,
            "/etc/oauth2-proxy": str(folder),
            "https://auth.sandbox.example.com/": f"https://auth.sandbox.example.com:{front_port}/",
            'whitelist_domains = [".sandbox.example.com"]': (
                'whitelist_domains = [".sandbox.example.com:*"]'
            ),
        },
    )
    return [str(oauth2_proxy()), f"--config={config}"]


def nginx_of(folder, port, router_port, proxy_port, example=FOLDER):
    config = fronts.changed(
        example / "nginx.conf",
        folder / "nginx.conf",
        {
            "listen 443 ": f"listen 127.0.0.1:{port} ",
            fronts.UPSTREAM: f"127.0.0.1:{router_port}",
            "127.0.0.1:4180": f"127.0.0.1:{proxy_port}",
            "/etc/nginx/tls": str(folder),
            "/tmp/nginx.pid": str(folder / "nginx.pid"),
            "worker_processes auto": "daemon off;\nworker_processes 1",
            "http {\n": f"http {{\n    access_log off;\n{fronts.temporary(folder)}",
        },
    )
    return [found("nginx"), "-c", str(config), "-p", str(folder), "-e", "stderr"]


def traefik_of(folder, port, router_port, proxy_port, example):
    dynamic = fronts.changed(
        example / "traefik.yaml",
        folder / "dynamic.yaml",
        {
            fronts.UPSTREAM: f"127.0.0.1:{router_port}",
            "127.0.0.1:4180": f"127.0.0.1:{proxy_port}",
            "/etc/traefik/tls": str(folder),
        },
    )
    static = fronts.changed(
        EXAMPLES / "traefik" / "traefik.yaml",
        folder / "traefik.yaml",
        {'":443"': f'"127.0.0.1:{port}"', "/etc/traefik/dynamic.yaml": str(dynamic)},
    )
    return [found("traefik"), f"--configfile={static}"]


def envoy_of(folder, port, router_port, proxy_port, example):
    config = fronts.changed(
        example / "envoy.yaml",
        folder / "envoy.yaml",
        {
            "address: 0.0.0.0, port_value: 443": f"address: 127.0.0.1, port_value: {port}",
            "127.0.0.1:4180": f"127.0.0.1:{proxy_port}",
            "port_value: 4180": f"port_value: {proxy_port}",
            fronts.UPSTREAM.partition(":")[0]: "127.0.0.1",
            "port_value: 8080": f"port_value: {router_port}",
            "/etc/envoy/tls": str(folder),
        },
    )
    quiet = ("--log-level", "warning", "--concurrency", "1", "--disable-hot-restart")
    return [found("envoy"), "-c", str(config), *quiet]


@contextlib.asynccontextmanager
async def everything_of(example, tmp_path, front_of=nginx_of):
    try:
        oauth2_proxy()
    except ToolMissing as error:
        pytest.skip(str(error))
    port, proxy_port = fronts.free_port(), fronts.free_port()
    authority = certificates(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(fronts.behind())
        person = {
            "sub": "u-1",
            "email": "ada@example.com",
            "email_verified": True,
            "groups": ["sandbox-users"],
        }
        signer = await stack.enter_async_context(issuer(**person))
        policy_changes = {"team-a": "default"}
        router_changes = {"/etc/sandbox-router": str(tmp_path)}
        if example is FOLDER:
            policy_changes["https://issuer.example.com"] = signer.url
            router_changes["https://issuer.example.com"] = signer.url
        else:
            login = "https://auth.sandbox.example.com"
            router_changes[login] = f"{login}:{port}"
        fronts.changed(
            example / "policy.yaml",
            tmp_path / "policy.yaml",
            policy_changes,
        )
        settings = fronts.changed(
            example / "router.yaml",
            tmp_path / "router.yaml",
            router_changes,
        )
        router = await stack.enter_async_context(
            fronts.router(sandbox.port, tmp_path, config=settings, auth=None)
        )
        proxy, proxy_log = await stack.enter_async_context(
            running(
                oauth2_proxy_of(tmp_path, proxy_port, port, signer.url, example), tmp_path, "proxy"
            )
        )
        await fronts.wait_until_ready(f"http://127.0.0.1:{proxy_port}/ping", proxy, proxy_log)
        command = front_of(tmp_path, port, router.port, proxy_port, example)
        process, log = await stack.enter_async_context(running(command, tmp_path, "front"))
        front = fronts.Front("oauth2-proxy", port, authority, {})
        connector = aiohttp.TCPConnector(ssl=front.tls(), resolver=fronts.Here())
        browser = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        async with asyncio.timeout(fronts.START_S):
            while True:
                assert process.returncode is None, log.read_text()[-2000:]
                with contextlib.suppress(aiohttp.ClientError):
                    async with browser.get(front.url("/"), headers=PROGRAM) as response:
                        if response.status == 401:
                            break
                await asyncio.sleep(0.05)
        yield World(front, browser, signer)


@pytest.fixture
async def world(tmp_path):
    async with everything_of(FOLDER, tmp_path) as world:
        yield world


@pytest.fixture
async def told_world(tmp_path):
    """Where nginx tells the router who has signed in, and the router does the rest."""
    async with everything_of(FOLDER / "forwarded", tmp_path) as world:
        yield world


async def test_a_person_signs_in_and_comes_back_to_the_very_page(world):
    status, url, body = await world.sign_in()

    assert status == 200, body
    assert str(url) == f"{world.origin}/page?a=1&b=2"
    assert json.loads(body)["target"] == "/page?a=1&b=2"


async def test_neither_session_nor_token_reaches_the_sandbox_and_the_apps_own_do(world):
    await world.sign_in()
    world.browser.cookie_jar.update_cookies({"theme": "dark"}, world.url())
    own = {"Authorization": "token of-the-app"}
    async with world.browser.get(world.url("/again"), headers=own) as response:
        told = dict(json.loads(await response.text())["headers"])

    assert told["authorization"] == "token of-the-app"
    assert "theme=dark" in told["cookie"]
    assert "oauth2_session" not in json.dumps(told)
    assert "x-sandbox-token" not in told


async def test_a_script_without_a_session_gets_401_and_is_sent_nowhere(world):
    async with world.browser.get(world.url("/api"), allow_redirects=False) as response:
        assert response.status == 401


async def test_somebody_of_another_group_is_refused_by_the_routers_policy(world):
    world.issuer.claims["groups"] = ["others"]

    status, _, body = await world.sign_in()

    assert status == 403
    assert "You may not open this sandbox" in body
    assert "<code>403 forbidden</code>" in body


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "own"}, 200),
        ({"Origin": "https://8888-evil.sandbox.example.com"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "own", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    ],
)
async def test_only_the_pages_own_origin_uses_the_session(world, headers, status):
    await world.sign_in()
    sent = {name: world.origin if value == "own" else value for name, value in headers.items()}

    async with world.browser.post(world.url("/upload"), data=b"x", headers=sent) as response:
        assert response.status == status


async def test_a_link_from_elsewhere_may_be_followed(world):
    await world.sign_in()
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}

    async with world.browser.get(world.url("/page"), headers=followed) as response:
        assert response.status == 200


async def test_a_websocket_opens_from_the_pages_own_origin_alone(world):
    await world.sign_in()
    url = world.url("/socket", "wss")
    async with world.browser.ws_connect(url, origin=world.origin) as socket:
        await socket.send_str("hello")
        assert (await socket.receive_str()).endswith(" hello")

    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await world.browser.ws_connect(url, origin="https://8888-evil.sandbox.example.com")
    assert refused.value.status == 403


async def test_a_program_brings_a_token_of_its_own_and_the_router_judges_it(world):
    url = world.url("/api")
    good = {"X-Sandbox-Token": world.issuer.id_token()}
    async with world.browser.get(url, headers=good) as response:
        assert response.status == 200
    async with world.browser.get(url, headers={"X-Sandbox-Token": "nonsense"}) as response:
        assert response.status == 401
        assert response.headers["X-Sandbox-Router-Error"] == "unauthenticated"


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        ("a=1; oauth2_session=x; b=2", "a=1; b=2"),
        ("oauth2_session_0=x; a=1; oauth2_session_1=y; oauth2_session_csrf=z; b=2", "a=1; b=2"),
        ("oauth2_session=x", None),
        ("a=1; b=2", "a=1; b=2"),
        ("; ".join(f"oauth2_session_{part}=x" for part in range(9)) + "; a=1", "a=1"),
    ],
)
async def test_no_part_of_a_session_passes(world, sent, arrives):
    headers = {"X-Sandbox-Token": world.issuer.id_token(), "Cookie": sent}
    async with world.browser.get(world.url("/api"), headers=headers) as response:
        told = dict(json.loads(await response.text())["headers"])

    assert told.get("cookie") == arrives


# --- the router is told who has signed in ---------------------------------------------------


async def test_a_person_whom_the_router_sends_to_sign_in_comes_back_to_the_very_page(told_world):
    status, url, body = await told_world.sign_in()

    assert status == 200, body
    assert str(url) == f"{told_world.origin}/page?a=1&b=2"
    told = dict(json.loads(body)["headers"])
    assert not [name for name in told if name.startswith("x-auth-request")]
    assert "oauth2_session" not in body


async def test_of_another_group_the_policy_lets_nobody_in(told_world):
    told_world.issuer.claims["groups"] = ["others"]

    status, _, body = await told_world.sign_in()

    assert status == 403
    assert "<code>403 forbidden</code>" in body


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Auth-Request-Email": "ada@example.com", "X-Auth-Request-Groups": "sandbox-users"},
        {"X_Auth_Request_Email": "ada@example.com", "X_Auth_Request_Groups": "sandbox-users"},
        {"x-auth-request-email": "ada@example.com", "X-AUTH-REQUEST-GROUPS": "sandbox-users"},
    ],
)
async def test_nobody_is_believed_who_says_it_himself(told_world, headers):
    async with told_world.browser.get(told_world.url("/api"), headers=headers) as response:
        assert response.status == 401
        assert response.headers["X-Sandbox-Router-Error"] == "unauthenticated"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "own"}, 200),
        ({"Origin": "https://8888-evil.sandbox.example.com"}, 403),
        ({"Origin": "null"}, 403),
        ({}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    ],
)
async def test_the_router_itself_refuses_foreign_pages(told_world, headers, status):
    await told_world.sign_in()
    own = told_world.origin
    sent = {name: own if value == "own" else value for name, value in headers.items()}
    url = told_world.url("/upload")

    async with told_world.browser.post(url, data=b"x", headers=sent) as response:
        assert response.status == status
        assert status == 200 or response.headers["X-Sandbox-Router-Error"] == "cross_origin"


async def test_a_websocket_of_a_person_opens_from_the_pages_own_origin_alone(told_world):
    await told_world.sign_in()
    url = told_world.url("/socket", "wss")
    async with told_world.browser.ws_connect(url, origin=told_world.origin) as socket:
        await socket.send_str("hello")
        assert (await socket.receive_str()).endswith(" hello")

    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await told_world.browser.ws_connect(url, origin="https://8888-evil.sandbox.example.com")
    assert refused.value.status == 403


# --- the same of other fronts, which send people to sign in themselves ----------------------


@pytest.fixture(params=[traefik_of, envoy_of], ids=["traefik", "envoy"])
async def other_front(request, tmp_path):
    """Where another front than nginx tells the router who has signed in."""
    async with everything_of(FOLDER / "forwarded", tmp_path, request.param) as world:
        yield world


async def test_behind_another_front_a_person_signs_in_and_comes_back_to_the_very_page(other_front):
    status, url, body = await other_front.sign_in()

    assert status == 200, body
    assert str(url) == f"{other_front.origin}/page?a=1&b=2"
    told = dict(json.loads(body)["headers"])
    assert not [name for name in told if name.startswith("x-auth-request")]
    assert "oauth2_session" not in body

    async with other_front.browser.ws_connect(
        other_front.url("/socket", "wss"), origin=other_front.origin
    ) as socket:
        await socket.send_str("hello")
        assert (await socket.receive_str()).endswith(" hello")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await other_front.browser.ws_connect(
            other_front.url("/socket", "wss"), origin="https://8888-evil.sandbox.example.com"
        )
    assert refused.value.status == 403


SPOOFED = {"X-Auth-Request-Email": "root@example.com", "X-Auth-Request-Groups": "sandbox-users"}


async def test_behind_another_front_nobody_is_believed_who_says_it_himself(other_front):
    url = other_front.url("/api")
    async with other_front.browser.get(url, headers=SPOOFED | PROGRAM) as response:
        assert response.status == 401

    other_front.issuer.claims["groups"] = []
    await other_front.sign_in()
    for headers in (SPOOFED, {name.replace("-", "_"): value for name, value in SPOOFED.items()}):
        async with other_front.browser.get(url, headers=headers) as response:
            assert response.status == 403, "signed in, and of no group"
