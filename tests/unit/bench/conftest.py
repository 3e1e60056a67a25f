"""The harness's sandbox inside the test's own event loop, reached without any proxy."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import cast

import pytest

from bench.heads import Caller
from bench.loads import Aim
from bench.plane_stage import Wire
from bench.sandbox import SandboxConnection
from bench.usage import Meter

CALLER = Caller("box-a", "secret")


@pytest.fixture
async def sandbox_port() -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(SandboxConnection, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


class _Answering(asyncio.Protocol):
    """Gives every request the same answer, then closes."""

    def __init__(self, answer: bytes, open_ones: set[asyncio.Transport]) -> None:
        self._answer = answer
        self._open_ones = open_ones

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open_ones.add(self._transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._answer)
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_ones.discard(self._transport)


@pytest.fixture
async def answering() -> AsyncIterator[Callable[[bytes], Awaitable[int]]]:
    """Starts servers that give every request the same answer and close; returns the port."""
    servers: list[asyncio.Server] = []
    open_ones: set[asyncio.Transport] = set()

    async def start(answer: bytes) -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Answering(answer, open_ones), "127.0.0.1", 0)
        servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()
    while open_ones:
        for transport in open_ones:
            transport.abort()
        await asyncio.sleep(0)


@pytest.fixture
def noted() -> list[Wire]:
    """The wires that were written to."""
    return []


@pytest.fixture
def quiet(noted: list[Wire]) -> Iterator[Wire]:
    """A wire that belongs to no stage."""
    ours, other = socket.socketpair()
    with ours, other:
        yield Wire(noted, ours)


def aim_at(port: int) -> Aim:
    return Aim(port, CALLER, Meter(os.getpid(), core=0))
