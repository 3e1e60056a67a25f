"""Requests over HTTP/2 and TLS through a real Envoy: what arrives, what comes back, and whose error it was."""

import asyncio
import json

import pytest

from tests.deploy.fronts import HOST
from tests.integration.gateway.conftest import AUTHORIZATION, CLIENT, MAX_BODY_BYTES
from tests.integration.gateway.http2 import connected
from tests.integration.proxy.wire import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


def lines(told, name):
    return [value for key, value in told["headers"] if key == name]


async def tell(client, target, *headers, method="GET"):
    head, body = await client.ask(method, target, [AUTHORIZATION, *headers])
    assert head.status == 200, body
    return json.loads(body)


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS", "PATCH", "PROPFIND"])
async def test_a_request_arrives_as_it_was_said(client, method):
    target = "/download/a%2Fb//c/../d?x=%2F&empty="

    told = await tell(client, target, ("x-app", "one"), ("x-app", "two"), method=method)

    assert (told["method"], told["target"]) == (method, target)
    assert lines(told, "host") == [HOST]
    assert lines(told, "x-app") == ["one", "two"]
    assert lines(told, "authorization") == [], "the router consumed it"


async def test_cookies_that_http2_takes_apart_are_one_header_again(client):
    told = await tell(client, "/", ("cookie", "a=1"), ("cookie", "b=2"))

    assert lines(told, "cookie") == ["a=1; b=2"]


async def test_many_requests_at_once_on_one_connection_get_each_its_own_answer(client):
    targets = [f"/item/{number}" for number in range(100)]

    told = await asyncio.gather(*(tell(client, target) for target in targets))

    assert [one["target"] for one in told] == targets


async def test_early_hints_come_before_the_answer(client):
    head, body = await client.ask("GET", "/hints", [AUTHORIZATION])

    assert (head.interim, head.status, body) == ([103], 200, b"hinted")


async def test_the_sandbox_is_told_the_whole_way_and_what_the_client_claims_stays_left(client):
    forged = ("x-forwarded-for", "198.51.100.7, 10.0.0.1")

    told = await tell(client, "/", forged, ("x-forwarded-proto", "http"))

    (chain,) = lines(told, "x-forwarded-for")
    assert [address.strip() for address in chain.split(",")] == [
        "198.51.100.7",  # what the client claims
        "10.0.0.1",
        CLIENT,  # what Envoy saw
        "127.0.0.1",  # what the router saw
    ]
    assert lines(told, "x-forwarded-proto") == ["https"]
    assert lines(told, "x-forwarded-host") == [HOST]


async def test_the_client_is_the_first_stranger_from_the_right(way, client):
    await tell(client, "/who-was-it", ("x-forwarded-for", "198.51.100.7, 127.0.0.1"))

    await until(lambda: logged(way, "/who-was-it"), what="the access log's line")
    (line,) = logged(way, "/who-was-it")
    assert line["client"] == CLIENT


def logged(way, path):
    entries = [json.loads(line) for line in way.router.log if f'"{path}"' in line]
    return [entry for entry in entries if entry.get("path") == path]


@pytest.mark.parametrize(
    ("host", "headers", "status", "code"),
    [
        ("8888-nobody.sandbox.example.com", [AUTHORIZATION], 404, "sandbox_not_found"),
        ("8888-asleep.sandbox.example.com", [AUTHORIZATION], 409, "sandbox_suspended"),
        ("8888-deaf.sandbox.example.com", [AUTHORIZATION], 502, "sandbox_unreachable"),
        ("www.sandbox.example.com", [AUTHORIZATION], 421, "misdirected"),
        (HOST, [], 401, "unauthenticated"),
        (HOST, [AUTHORIZATION, ("x-long", "x" * 70_000)], 431, "headers_too_large"),
        (HOST, [AUTHORIZATION, ("x-sandbox-port", "+80")], 400, "invalid_port"),
    ],
)
async def test_an_error_of_the_routers_own_comes_through(client, host, headers, status, code):
    head, body = await client.ask("GET", "/", headers, host=host)

    assert (head.status, head.headers["x-sandbox-router-error"]) == (status, code)
    assert json.loads(body)["code"] == code


async def test_a_401_says_how_to_authenticate(client):
    head, _ = await client.ask("GET", "/")

    # Envoy hands both lines on; this client keeps the last.
    assert head.headers["www-authenticate"].startswith(("Bearer", "Basic"))


async def test_a_sandbox_that_does_not_answer_in_time_is_a_504_of_the_routers(client):
    head, body = await client.ask("GET", "/slow", [AUTHORIZATION, ("x-sandbox-timeout", "0.2")])

    assert (head.status, head.headers["x-sandbox-router-error"]) == (504, "sandbox_timeout")
    assert json.loads(body)["detail"] == "Timed out waiting for the backend sandbox: box"


async def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(client):
    length = ("content-length", str(MAX_BODY_BYTES + 1))
    stream = await client.request("POST", "/digest", [AUTHORIZATION, length], has_body=True)

    head = await stream.head()

    assert (head.status, head.headers["x-sandbox-router-error"]) == (413, "body_too_large")


async def test_http_1_clients_of_the_front_are_served_too(way):
    async with way.front.client() as client, client.get(way.front.url("/plain")) as response:
        told = await response.json()

    assert told["target"] == "/plain"


async def test_two_connections_do_not_disturb_each_other(way, client):
    async with connected(way.front, address=CLIENT) as other:
        stream = await other.request("GET", "/events?gate=two", [AUTHORIZATION])
        await stream.head()
        stream.cancel()

        assert (await tell(client, "/still-here"))["target"] == "/still-here"
