"""Tests that the fronts we document hand on to the router what a client said, piece by piece, over real sockets."""

import asyncio
import json

import pytest

from tests.deploy import fronts

FRONTS = tuple(fronts.COMMANDS)


@pytest.fixture(params=FRONTS)
async def front(request, tmp_path):
    async with (
        fronts.behind() as behind,
        fronts.running(request.param, behind.port, tmp_path) as front,
        front.client() as client,
    ):
        yield behind, front, client


def lines(told, name):
    return [value for key, value in told["headers"] if key == name]


async def ask(front, client, target, **more):
    async with client.get(front.url(target), **more) as response:
        return response.status, json.loads(await response.text())


@pytest.mark.parametrize(
    "target",
    [
        "/download/a%2Fb%20c",
        "/a//b/./c/../d",
        "/snow%E2%98%83?x=%2F&empty=&plus=a+b",
        "/percent%25/hash%23/semi%3B/back%5C/question%3F",
    ],
)
async def test_the_request_target_arrives_byte_for_byte(front, target):
    _, at, client = front

    status, told = await ask(at, client, target)

    assert (status, told["target"], told["version"]) == (200, target, "1.1")


@pytest.mark.parametrize("target", ["/%7Euser/%41/%2E%2E?x=1;y=2"])
async def test_only_traefik_respells_what_means_the_same(front, target):
    _, at, client = front

    _, told = await ask(at, client, target)

    respelled = "/~user/A/..?x=1%3By=2"
    assert told["target"] == (respelled if at.kind == "traefik" else target)


async def test_the_host_of_the_client_arrives_so_that_host_routing_works(front):
    _, at, client = front

    _, told = await ask(at, client, "/")

    assert lines(told, "host") == [fronts.HOST]


async def test_a_client_that_names_the_port_too_is_routed_all_the_same(front):
    _, at, client = front
    named = f"{fronts.HOST}:8443"

    status, told = await ask(at, client, "/", headers={"Host": named})

    assert status == 200
    assert lines(told, "host") == [named], "with its port, for the page's Origin has it too"
    assert lines(told, "x-forwarded-host") == [named]


async def test_routing_and_credential_headers_arrive(front):
    _, at, client = front
    headers = {"X-Sandbox-ID": "box", "X-Sandbox-Namespace": "team-a", "Authorization": "Bearer t"}

    _, told = await ask(at, client, "/", headers=headers)

    assert lines(told, "x-sandbox-id") == ["box"]
    assert lines(told, "x-sandbox-namespace") == ["team-a"]
    assert lines(told, "authorization") == ["Bearer t"]


async def test_a_client_can_not_say_where_it_comes_from(front):
    _, at, client = front
    forged = {
        "X-Forwarded-For": "203.0.113.9",
        "X-Forwarded-Proto": "http",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Client-Cert": "Subject=admin",
        "Forwarded": "for=203.0.113.9",
    }

    _, told = await ask(at, client, "/", headers=forged)

    # Envoy appends (for a peer on this machine, its own address); the router reads from the right.
    (forwarded,) = lines(told, "x-forwarded-for")
    assert forwarded.rpartition(",")[2] != "203.0.113.9"
    assert at.kind == "envoy" or forwarded == "127.0.0.1"
    assert lines(told, "x-forwarded-proto") == ["https"]
    assert lines(told, "x-forwarded-host") == [fronts.HOST]
    assert lines(told, "x-forwarded-client-cert") == []
    assert lines(told, "forwarded") == []


async def test_an_event_arrives_before_the_stream_ends(front):
    behind, at, client = front
    async with asyncio.timeout(20), client.get(at.url("/stream")) as response:
        first = await response.content.readline()
        behind.go_on.set()
        rest = await response.content.read()

    assert first == b"data: first\n"
    assert rest == b"\ndata: second\n\n"


async def test_an_upload_arrives_while_it_is_being_sent_and_whole(front):
    behind, at, client = front
    piece = bytes(1 << 20)

    async def body():
        yield piece
        await behind.first_piece.wait()  # never comes when the front collects the body first
        for _ in range(15):
            yield piece

    async with asyncio.timeout(30), client.post(at.url("/upload"), data=body()) as response:
        assert await response.text() == str(16 << 20)


async def test_a_websocket_works(front):
    _, at, client = front
    async with asyncio.timeout(20), client.ws_connect(at.url("/socket", "wss")) as socket:
        await socket.send_str("hello")
        answer = await socket.receive_str()

    assert answer == f"{fronts.HOST} hello"


async def test_a_header_of_60_kilobytes_passes_for_the_router_has_the_limit(front):
    _, at, client = front

    status, told = await ask(at, client, "/", headers={"X-Long": "x" * 60_000})

    assert status == 200
    assert lines(told, "x-long") == ["x" * 60_000]
