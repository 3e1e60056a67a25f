"""Asks for sandboxes at a steady pace and notes how long each answer took and who gave it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from bench.index_objects import FLIPPING, STABLE, address_of, sandbox_name

PORT = 8888
REQUESTS_PER_S = 500
CONNECTIONS = 8


class _Named(asyncio.Protocol):
    """A sandbox's app: answers with its own address."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        own = transport.get_extra_info("sockname")[0].encode()
        self._answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(own), own)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(self._answer * data.count(b"\r\n\r\n"))


async def start_sandboxes() -> asyncio.Server:
    """Returns the server behind the stable and the flipping sandboxes."""
    hosts = [address_of(number, 0) for number in range(STABLE)]
    hosts += [address_of(FLIPPING, life) for life in (0, 1)]
    return await asyncio.get_running_loop().create_server(_Named, hosts, PORT)


@dataclass
class Readings:
    """What was measured in one window."""

    latencies_s: list[float] = field(default_factory=list)
    wrong: int = 0
    answered_by: list[tuple[float, str]] = field(default_factory=list)
    """When which of the flipping sandbox's pods answered."""

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3 if ordered else 0.0


async def probe(port: int, window_s: float) -> Readings:
    """Asks the stable sandboxes 500 times a second, and the flipping one too, for so long."""
    readings = Readings()
    ends_at = time.monotonic() + window_s
    async with asyncio.TaskGroup() as tasks:
        for number in range(CONNECTIONS):
            tasks.create_task(_ask_stable(port, number, ends_at, readings))
        tasks.create_task(_ask_flipping(port, ends_at, readings))
    return readings


async def _ask_stable(port: int, number: int, ends_at: float, readings: Readings) -> None:
    """Open loop: a request is due at a fixed time, and its latency counts from then."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    interval_s = CONNECTIONS / REQUESTS_PER_S
    due_at = time.monotonic() + interval_s * number / CONNECTIONS
    asked = number
    while due_at < ends_at:
        await asyncio.sleep(max(0.0, due_at - time.monotonic()))
        asked = (asked + 1) % STABLE
        body = await _ask(reader, writer, asked)
        readings.latencies_s.append(time.monotonic() - due_at)
        readings.wrong += body != address_of(asked, 0)
        due_at += interval_s
    writer.close()


async def _ask_flipping(port: int, ends_at: float, readings: Readings) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < ends_at:
        body = await _ask(reader, writer, FLIPPING)
        readings.answered_by.append((time.monotonic(), body))
        await asyncio.sleep(0.002)
    writer.close()


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> str:
    namespace, name = sandbox_name(number)
    writer.write(
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Sandbox-ID: %s\r\nX-Sandbox-Namespace: %s\r\n\r\n"
        % (name.encode(), namespace.encode())
    )
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return (await reader.readexactly(length)).decode()


def route_delays_ms(flips: list[float], readings: Readings) -> list[float]:
    """Returns for each flip how long after it was written the first answer of another pod came."""
    delays = []
    changes = [
        at
        for (_, before), (at, after) in zip(
            readings.answered_by, readings.answered_by[1:], strict=False
        )
        if before != after
    ]
    for flip in flips:
        following = [at for at in changes if at >= flip]
        if following:
            delays.append((following[0] - flip) * 1e3)
    return delays
