"""TCP connections through a WebSocket, over sockets, on both event loops, with a client that is not ours."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import resource
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Response

from router.proxy.own_paths import OwnPaths
from tests.integration.proxy.running_router import TOKEN, RunningRouter
from tests.integration.proxy.wire import until
from tests.unit.proxy.test_raw_tunnel import NoWishes

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
MIB = 2**20


@contextlib.asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[int]:
    """A TCP server in a sandbox; returns its port."""

    async def serving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    listening = await asyncio.start_server(serving, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


@pytest.fixture
async def router(start_router: Any) -> RunningRouter:
    started: RunningRouter = await start_router(
        connects=True,
        connect_per_sandbox=4,
        own_paths=lambda tasks: OwnPaths(
            awake=NoWishes(), awake_limit_s=1.0, tasks=tasks, connects=True
        ),
    )
    return started


def opening(router: RunningRouter, **options: Any) -> Any:
    host, port = router.address
    return connect(
        f"ws://{host}:{port}/.sandbox-router/tcp",
        additional_headers={"Authorization": f"Bearer {TOKEN}", "X-Sandbox-ID": "box"},
        compression=None,
        proxy=None,
        max_size=None,
        ping_interval=None,
        **options,
    )


async def refusal(router: RunningRouter) -> Response:
    with pytest.raises(InvalidStatus) as caught:
        await opening(router)
    return caught.value.response


async def everything(client: ClientConnection) -> tuple[bytes, int]:
    """Returns all bytes until the end, and the close code."""
    got = bytearray()
    with contextlib.suppress(ConnectionClosed):
        while True:
            data = await client.recv()
            assert isinstance(data, bytes)
            got += data
    assert client.close_code is not None
    return bytes(got), client.close_code


async def test_bytes_go_there_and_back(router: RunningRouter) -> None:
    async with server(echo) as port:
        router.knows(port=port)
        async with opening(router, subprotocols=["binary"]) as client:
            assert client.subprotocol == "binary"
            await client.send(b"hello")
            assert await client.recv() == b"hello"
            assert router.metrics.counters.open_tunnels == 1


async def test_a_server_that_speaks_first_and_closes_is_heard_whole(router: RunningRouter) -> None:
    async def banner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-box\r\n" + bytes(3 * MIB))

    async with server(banner) as port:
        router.knows(port=port)
        for _ in range(4):
            async with opening(router) as client:
                assert await everything(client) == (b"SSH-2.0-box\r\n" + bytes(3 * MIB), 1000)


async def test_a_reset_is_told_as_1011(router: RunningRouter) -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        writer.transport.abort()

    async with server(reset) as port:
        router.knows(port=port)
        async with opening(router) as client:
            await client.send(b"x")
            assert (await everything(client))[1] == 1011


async def test_a_client_that_is_gone_is_a_reset_to_the_server(router: RunningRouter) -> None:
    ended: list[BaseException | None] = []

    async def reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
            ended.append(None)
        except ConnectionError as exc:
            ended.append(exc)

    async with server(reads) as port:
        router.knows(port=port)
        client = await opening(router)
        await client.send(b"half")
        client.transport.abort()
        await until(lambda: ended)
        assert isinstance(ended[0], ConnectionResetError)


async def test_frames_of_16_mib_cross_and_the_router_stays_small(router: RunningRouter) -> None:
    digest, total = hashlib.sha256(), 0

    async def sums(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal total
        while data := await reader.read(65_536):
            digest.update(data)
            total += len(data)
        writer.write(digest.digest())

    piece = os.urandom(16 * MIB)
    expected = hashlib.sha256()
    async with server(sums) as port:
        router.knows(port=port)
        async with opening(router, write_limit=MIB) as client:
            await client.send(piece)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for _ in range(7):
                await client.send(piece)
            after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for _ in range(8):
                expected.update(piece)
            await until(lambda: total == 8 * len(piece))
            assert digest.digest() == expected.digest()
            # The client's own copies of one frame are in this process too; eight would be 128 MiB more.
            assert after - before < 64 * 1024


async def test_a_server_that_reads_nothing_holds_the_client_back(router: RunningRouter) -> None:
    stop = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await stop.wait()

    router.shrink_buffers()
    async with server(deaf) as port:
        router.knows(port=port)
        client = await opening(router)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(client.send(bytes(64 * MIB)))
            await until(lambda: any(not c._reading for c in router.clients._connections))
            assert not sending.done()
            sending.cancel()
        client.transport.abort()
        stop.set()


async def test_a_client_that_reads_nothing_holds_the_server_back(router: RunningRouter) -> None:
    written = 0

    async def talks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        while True:
            writer.write(bytes(65_536))
            await writer.drain()
            written += 65_536

    router.shrink_buffers()
    async with server(talks) as port:
        router.knows(port=port)
        client = await opening(router)
        client.transport.pause_reading()
        await until(lambda: any(not c.is_writable for c in router.clients._connections))
        await asyncio.sleep(0)
        assert written < 64 * MIB
        client.transport.abort()


async def test_a_port_that_nobody_listens_on_is_told_with_a_hint(router: RunningRouter) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        router.knows(port=closed.getsockname()[1])
        async with asyncio.TaskGroup() as group:
            answered = group.create_task(refusal(router))
            while not answered.done():
                router.pass_time(1)
                await asyncio.sleep(0.05)
    response = answered.result()
    assert response.status_code == 502
    assert b"0.0.0.0" in (response.body or b"")


async def test_the_router_itself_is_no_sandbox(router: RunningRouter) -> None:
    router.knows(host="127.0.0.1", port=router.address[1])
    assert (await refusal(router)).status_code == 403
