"""Envoy carries the bytes and the router decides: the shipped configuration with the real programs."""

import asyncio
import json

import aiohttp
import pytest
import pytest_asyncio

from tests.deploy.fronts import HOST, Here
from tests.integration.envoy.conftest import AUTHORIZATION, TOKEN
from tests.integration.gateway.http2 import connected

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEARER = f"Bearer {TOKEN}"


async def told(response):
    """Returns the request's headers as the sandbox saw them."""
    assert response.status == 200, await response.text()
    return [(name, value) for name, value in json.loads(await response.text())["headers"]]


async def raw(port, *lines, method="GET", target="/"):
    """Returns status, headers and body of one request by plain HTTP/1.1."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = [f"{method} {target} HTTP/1.1", *lines, "Connection: close", "", ""]
    writer.write("\r\n".join(head).encode())
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *headers = head.decode().split("\r\n")
    pairs = [line.split(": ", 1) for line in headers]
    return int(status.split()[1]), {name.lower(): value for name, value in pairs}, body


# --- the same decision on both ports --------------------------------------------------------

REFUSED = {
    "no credential": ([f"Host: {HOST}"], 401, "unauthenticated"),
    "a wrong credential": (
        [f"Host: {HOST}", "Authorization: Bearer nobody-knows-this-token"],
        401,
        "unauthenticated",
    ),
    "a sandbox that nobody knows": (
        ["Host: 8888-nobody.sandbox.example.com", f"Authorization: {BEARER}"],
        404,
        "sandbox_not_found",
    ),
    "a suspended sandbox": (
        ["Host: 8888-asleep.sandbox.example.com", f"Authorization: {BEARER}"],
        409,
        "sandbox_suspended",
    ),
    "no sandbox named": (["Host: other.example.org", f"Authorization: {BEARER}"], 421, None),
    "a port that is none": (
        ["Host: router", "X-Sandbox-ID: box", "X-Sandbox-Port: 0", f"Authorization: {BEARER}"],
        400,
        None,
    ),
    "one header twice": (
        ["Host: router", "X-Sandbox-ID: box", "X-Sandbox-ID: deaf", f"Authorization: {BEARER}"],
        400,
        None,
    ),
}


@pytest.mark.parametrize(("lines", "status", "code"), REFUSED.values(), ids=REFUSED)
async def test_a_no_is_the_same_on_the_check_port_as_on_the_proxy_port(way, lines, status, code):
    proxied = await raw(way.router.http_port, *lines)
    checked = await raw(way.router.checks_port, *lines)

    assert checked == proxied
    assert checked[0] == status
    assert code in (None, json.loads(checked[2])["code"])


@pytest.mark.parametrize("name", ["box", "named"])
async def test_a_yes_names_the_address_that_the_proxy_port_would_dial(way, name):
    lines = [f"Host: 8888-{name}.sandbox.example.com", f"Authorization: {BEARER}"]

    status, headers, body = await raw(way.router.checks_port, *lines)

    assert (status, body) == (200, b"")
    assert headers["x-sandbox-upstream"] == f"127.0.0.1:{way.sandbox.port}"


# --- through Envoy --------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="module")
async def client(way):
    async with way.front.client() as client:
        yield client


async def test_an_http_1_request_reaches_the_sandbox_without_its_credential(way, client):
    async with client.get(way.front.url("/a%2Fb/../c?x=%2F")) as response:
        seen = dict(await told(response))

    assert seen["host"] == HOST
    assert "authorization" not in seen
    assert seen["x-forwarded-host"] == HOST
    assert seen["x-forwarded-proto"] == "https"


async def test_an_http_2_request_reaches_the_sandbox(way):
    async with connected(way.front) as client:
        stream = await client.request("GET", "/", [("authorization", BEARER)])
        assert (await stream.head()).status == 200


async def test_what_a_client_forges_neither_decides_nor_arrives(way, client):
    forged = [
        ("X-Sandbox-Upstream", "127.0.0.1:1"),
        ("x-sandbox-upstream", "127.0.0.1:2"),
        ("X_Sandbox_Upstream", "127.0.0.1:3"),
        ("X-Envoy-Original-Dst-Host", "127.0.0.1:1"),
        ("X-Forwarded-Client-Cert", "URI=spiffe://forged"),
        ("Forwarded", "for=192.0.2.1"),
        ("X-Real-IP", "192.0.2.1"),
        ("X-Auth-Request-User", "root"),
        ("Remote-User", "root"),
        ("X-Corporate-Secret", "s3cret"),
        ("X-Sandbox-Token", TOKEN),
        ("X-App", "kept"),
    ]
    async with client.get(way.front.url("/"), headers=forged) as response:
        names = [name for name, _ in await told(response)]

    assert "x-app" in names
    kept = {name.lower().replace("_", "-") for name, _ in forged} & set(names)
    assert kept == {"x-app"}


async def test_the_routers_own_credentials_are_cut_out_of_what_they_came_in(way, client):
    cookies = "a=1; front_session=secret; b=2"
    async with client.get(way.front.url("/"), headers={"Cookie": cookies}) as response:
        assert dict(await told(response))["cookie"] == "a=1; b=2"
    async with client.get(way.front.url("/"), headers={"Cookie": "front_session=x"}) as response:
        assert "cookie" not in dict(await told(response))


async def test_a_cookie_that_comes_in_two_lines_is_cut_as_well(way):
    headers = [("Cookie", "a=1"), ("Cookie", "front_session=secret"), *AUTHORIZATION.items()]
    connector = aiohttp.TCPConnector(ssl=way.front.tls(), resolver=Here())
    async with (
        aiohttp.ClientSession(connector=connector) as client,
        client.get(way.front.url("/"), headers=[("Host", HOST), *headers]) as response,
    ):
        seen = [value for name, value in await told(response) if name == "cookie"]

    assert seen == ["a=1"]


async def test_a_refusal_arrives_as_the_router_made_it(way, client):
    async with client.get(
        way.front.url("/"), headers={"Host": "8888-nobody.sandbox.example.com"}
    ) as response:
        assert response.status == 404
        assert response.headers["X-Sandbox-Router-Error"] == "sandbox_not_found"
        assert (await response.json())["code"] == "sandbox_not_found"


async def test_a_sandbox_that_refuses_the_connection_is_told_in_the_routers_form(way, client):
    async with client.get(
        way.front.url("/"), headers={"Host": "8888-deaf.sandbox.example.com"}
    ) as response:
        assert response.status == 502
        assert (await response.json())["code"] == "sandbox_unreachable"


async def test_naming_by_path_is_refused_with_words(way, client):
    async with client.get(way.front.url("/s/default/box/8888/x")) as response:
        assert response.status == 400
        assert "path-prefix" in (await response.json())["detail"]


async def test_the_routers_own_paths_go_to_its_own_port(way, client):
    async with client.get(way.front.url("/.sandbox-router/nothing")) as response:
        assert response.status == 404
        assert (await response.json())["code"] == "router_path_not_found"


async def test_events_arrive_when_they_are_sent(way, client):
    async with client.get(way.front.url("/events?gate=decided")) as response:
        assert await response.content.readline() == b"data: first\n"
        way.sandbox.gate("decided").set()
        assert b"data: second\n" in await response.content.read()


async def test_a_websocket_works_by_http_1(way, client):
    async with client.ws_connect(way.front.url("/socket", "wss")) as socket:
        await socket.send_str("hello")
        assert "hello" in (await socket.receive()).data


async def test_a_yes_is_logged_as_the_use_of_the_sandbox(way, client):
    async with client.get(way.front.url("/")) as response:
        await told(response)

    status, page = await way.router.admin("/activity")

    assert status == 200
    assert "box" in page
