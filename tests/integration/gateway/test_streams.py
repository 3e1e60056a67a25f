"""Streams, uploads and downloads over HTTP/2 through a real Envoy: piece by piece, and never held in the router's memory."""

import asyncio
import contextlib
import hashlib
from pathlib import Path

import pytest

from tests.integration.gateway.conftest import AUTHORIZATION, CLIENT, MAX_BODY_BYTES
from tests.integration.gateway.http2 import PATIENCE_S, StreamReset, connected
from tests.integration.gateway.sandbox import PIECE

pytestmark = pytest.mark.asyncio(loop_scope="module")

BODY = PIECE * (MAX_BODY_BYTES // len(PIECE))
"""50 MiB, the most that this router takes."""
MAX_GROWTH_BYTES = 12 << 20


async def opened(gate):
    async with asyncio.timeout(PATIENCE_S):
        await gate.wait()


class Memory:
    """The most memory that a process has had since this was made."""

    def __init__(self, pid):
        self._proc = Path(f"/proc/{pid}")
        (self._proc / "clear_refs").write_text("5")  # the peak begins anew
        self._before = self._read("VmRSS")

    def growth(self):
        return self._read("VmHWM") - self._before

    def _read(self, name):
        (line,) = [
            line for line in (self._proc / "status").read_text().splitlines() if name in line
        ]
        return int(line.split()[1]) * 1024


async def test_an_event_arrives_before_the_stream_ends(way, client):
    stream = await client.request("GET", "/events?gate=events", [AUTHORIZATION])

    first = await stream.piece()
    way.sandbox.gate("events").set()
    rest = await stream.body()

    assert (first, rest) == (b"data: first\n\n", b"data: second\n\n")


async def test_a_stream_that_its_client_cancels_ends_at_the_sandbox(way, client):
    stream = await client.request("GET", "/events?gate=cancelled", [AUTHORIZATION])
    await stream.piece()

    stream.cancel()

    await opened(way.sandbox.gate("cancelled.left"))


async def test_many_streams_share_a_connection_and_none_waits_for_another(way, client):
    streams = [
        await client.request("GET", f"/events?gate=many{number}", [AUTHORIZATION])
        for number in range(20)
    ]
    firsts = [await stream.piece() for stream in streams]
    for number in reversed(range(20)):
        way.sandbox.gate(f"many{number}").set()
        assert await streams[number].body() == b"data: second\n\n"

    assert firsts == [b"data: first\n\n"] * 20


async def test_an_upload_arrives_while_it_is_being_sent(way, client):
    stream = await client.request("POST", "/digest?gate=early", [AUTHORIZATION], has_body=True)
    await stream.send(PIECE)

    await opened(way.sandbox.gate("early.begun"))
    way.sandbox.gate("early").set()
    await stream.send(PIECE, end=True)

    assert await stream.body() == hashlib.sha256(PIECE * 2).hexdigest().encode()


async def test_an_upload_of_50_megabytes_to_a_slow_sandbox_takes_the_router_no_memory(way, client):
    memory = Memory(way.router.process.pid)
    stream = await client.request("POST", "/digest?gate=slow", [AUTHORIZATION], has_body=True)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(stream.send(BODY, end=True))
        await opened(way.sandbox.gate("slow.begun"))
        await asyncio.sleep(0.5)  # everything between client and sandbox fills, as far as it goes
        way.sandbox.gate("slow").set()

    assert await stream.body() == hashlib.sha256(BODY).hexdigest().encode()
    print(f"the router grew by {memory.growth() / 1e6:.1f} MB for {len(BODY) / 1e6:.0f} MB")
    assert memory.growth() < MAX_GROWTH_BYTES


async def test_a_download_of_50_megabytes_to_a_slow_client_takes_the_router_no_memory(way, client):
    memory = Memory(way.router.process.pid)
    stream = await client.request("GET", f"/download?size={len(BODY)}", [AUTHORIZATION])
    head = await stream.head()
    await asyncio.sleep(0.5)  # what isn't read gives no room for more
    body = await stream.body()

    assert head.headers["content-length"] == str(len(BODY))
    assert hashlib.sha256(body).digest() == hashlib.sha256(BODY).digest()
    print(f"the router grew by {memory.growth() / 1e6:.1f} MB for {len(BODY) / 1e6:.0f} MB")
    assert memory.growth() < MAX_GROWTH_BYTES


async def test_a_body_that_turns_out_too_large_is_answered_while_it_is_being_sent(client):
    stream = await client.request("POST", "/digest", [AUTHORIZATION], has_body=True)

    async def send_for_ever():
        with contextlib.suppress(StreamReset):  # the front may end the stream behind the answer
            while True:
                await stream.send(PIECE)

    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(send_for_ever())
        head = await stream.head()
        sending.cancel()

    assert (head.status, head.headers["x-sandbox-router-error"]) == (413, "body_too_large")


async def test_a_client_that_leaves_in_its_upload_leaves_the_sandbox_too(way):
    async with connected(way.front, address=CLIENT) as client:
        stream = await client.request("POST", "/digest?gate=gone", [AUTHORIZATION], has_body=True)
        await stream.send(PIECE)
        await opened(way.sandbox.gate("gone.begun"))

    await opened(way.sandbox.gate("gone.left"))
