"""Clients and servers that others wrote, with the router between them."""

import asyncio
import contextlib

import aiohttp
import pytest
import websockets
from aiohttp import web
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

from tests.integration.proxy.messages import AUTHORIZATION

HEADERS = {"X-Sandbox-ID": "box", "Authorization": AUTHORIZATION}


def url(router, scheme: str, path: str = "/") -> str:
    host, port = router.address
    return f"{scheme}://{host}:{port}{path}"


@contextlib.asynccontextmanager
async def websocket_server(router, handler, **options):
    async with serve(handler, "127.0.0.1", 0, **options) as server:
        router.knows(port=server.sockets[0].getsockname()[1])
        yield


async def echo(connection) -> None:
    with contextlib.suppress(websockets.ConnectionClosed):
        async for message in connection:
            await connection.send(message)


@pytest.mark.parametrize("compression", ["deflate", None])
async def test_messages_of_every_size_come_back(router, compression):
    sizes = (0, 1, 125, 126, 65_535, 65_536, 1_000_000)
    async with (
        websocket_server(router, echo, compression=compression, max_size=None),
        connect(
            url(router, "ws"),
            additional_headers=HEADERS,
            compression=compression,
            max_size=None,
            proxy=None,
        ) as client,
    ):
        for size in sizes:
            await client.send(b"\x00\xff" * size)
            assert await client.recv() == b"\x00\xff" * size
            await client.send("é" * size)
            assert await client.recv() == "é" * size
        await client.send([b"a", b"b", b"c"])
        assert await client.recv() == b"abc"
        pong = await client.ping(b"are you there")
        assert await pong >= 0


async def test_subprotocols_and_close_codes_pass(router):
    async def close_at_once(connection) -> None:
        await connection.close(4321, "enough")

    async with (
        websocket_server(router, close_at_once, subprotocols=["superchat"]),
        connect(
            url(router, "ws"),
            additional_headers=HEADERS,
            subprotocols=["chat", "superchat"],
            proxy=None,
        ) as client,
    ):
        assert client.subprotocol == "superchat"
        with pytest.raises(websockets.ConnectionClosedError):
            await client.recv()
        assert (client.close_code, client.close_reason) == (4321, "enough")
    assert (await router.outcome()).code == ""


async def test_a_refused_handshake_is_told_with_its_body(router):
    def refuse(connection, _request):
        return connection.respond(418, "no websockets for teapots\n")

    async with websocket_server(router, echo, process_request=refuse):
        with pytest.raises(websockets.InvalidStatus) as refused:
            await connect(url(router, "ws"), additional_headers=HEADERS, proxy=None)
    assert refused.value.response.status_code == 418
    assert refused.value.response.body == b"no websockets for teapots\n"


async def test_a_draining_router_says_1001(router):
    async with (
        websocket_server(router, echo),
        connect(url(router, "ws"), additional_headers=HEADERS, proxy=None) as client,
    ):
        router.clients.end_tunnels("the router is shutting down")
        with pytest.raises(websockets.ConnectionClosedOK):
            await client.recv()
        assert client.close_code == 1001


async def show(asked: web.Request) -> web.StreamResponse:
    """Answers with a stream of what was uploaded, each piece as it comes."""
    told = web.StreamResponse(headers={"X-Method": asked.method})
    told.enable_compression()
    await told.prepare(asked)
    async for piece in asked.content.iter_any():
        await told.write(piece)
    await told.write_eof()
    return told


@contextlib.asynccontextmanager
async def aiohttp_server(router):
    app = web.Application(client_max_size=0)
    app.router.add_route("*", "/{rest:.*}", show)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    router.knows(port=runner.addresses[0][1])
    try:
        yield
    finally:
        await runner.cleanup()


async def test_uploads_stream_through_and_come_back_compressed(router):
    async def pieces():
        for number in range(50):
            yield b"%d" % number * 1000
            await asyncio.sleep(0)

    expected = b"".join(b"%d" % number * 1000 for number in range(50))
    async with aiohttp_server(router), aiohttp.ClientSession(headers=HEADERS) as session:
        for method in ("POST", "PUT", "PATCH"):
            async with session.request(method, url(router, "http", "/up"), data=pieces()) as told:
                assert await told.read() == expected
                assert told.headers["X-Method"] == method
                assert told.headers["Content-Encoding"] == "deflate"
        async with session.get(url(router, "http", "/")) as told:
            assert (told.status, await told.read()) == (200, b"")


async def test_many_clients_at_once_get_their_own_answers(router):
    async with aiohttp_server(router), aiohttp.ClientSession(headers=HEADERS) as session:

        async def ask(number: int) -> None:
            body = b"%d," % number * 500
            async with session.post(url(router, "http"), data=body) as told:
                assert await told.read() == body

        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(ask(number))
