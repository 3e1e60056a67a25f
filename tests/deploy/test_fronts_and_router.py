"""Tests the whole way that docs/gateway.md describes: client, real front, real router, sandbox."""

import asyncio
import json

import pytest

from tests.deploy import fronts


@pytest.fixture(params=fronts.COMMANDS)
async def way(request, tmp_path):
    """Yields (sandbox, front, client), with the router between front and sandbox."""
    async with (
        fronts.behind() as sandbox,
        fronts.router(sandbox.port, tmp_path) as router,
        fronts.running(request.param, router.port, tmp_path) as front,
        front.client() as client,
    ):
        yield sandbox, front, client


async def test_a_request_reaches_the_sandbox_that_its_host_names(way):
    _, front, client = way
    async with client.get(front.url("/download/a%2Fb?x=%2F")) as response:
        told = json.loads(await response.text())

    headers = dict(told["headers"])
    assert told["target"] == "/download/a%2Fb?x=%2F"
    assert headers["host"] == fronts.HOST
    assert headers["x-forwarded-proto"] == "https"
    assert headers["x-forwarded-host"] == fronts.HOST


async def test_an_answer_of_the_routers_own_passes_with_its_code(way):
    _, front, client = way
    async with client.get(
        front.url("/"), headers={"Host": "8888-nobody.sandbox.example.com"}
    ) as response:
        body = await response.json()

    assert (response.status, body["code"]) == (404, "sandbox_not_found")
    assert response.headers["X-Sandbox-Router-Error"] == "sandbox_not_found"


async def test_an_event_arrives_before_the_stream_ends(way):
    sandbox, front, client = way
    async with asyncio.timeout(20), client.get(front.url("/stream")) as response:
        first = await response.content.readline()
        sandbox.go_on.set()
        rest = await response.content.read()

    assert first == b"data: first\n"
    assert rest == b"\ndata: second\n\n"


async def test_an_upload_arrives_while_it_is_being_sent_and_whole(way):
    sandbox, front, client = way
    piece = bytes(1 << 20)

    async def body():
        yield piece
        await sandbox.first_piece.wait()
        for _ in range(15):
            yield piece

    async with asyncio.timeout(30), client.post(front.url("/upload"), data=body()) as response:
        assert await response.text() == str(16 << 20)


async def test_a_websocket_works(way):
    _, front, client = way
    async with asyncio.timeout(20), client.ws_connect(front.url("/socket", "wss")) as socket:
        await socket.send_str("hello")
        answer = await socket.receive_str()

    assert answer == f"{fronts.HOST} hello"
