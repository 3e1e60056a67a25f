"""Whoever doesn't read is not sent more than a bounded amount, in every direction."""

import asyncio

import pytest

from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.upgrades import opened
from tests.integration.proxy.wire import Wire

OFFERED = 32_000_000
HELD_AT_MOST = 10_000_000
"""What the router and the kernel's buffers of two connections may hold, generously."""
CHUNKED = ("Transfer-Encoding", "chunked")


async def stalls(source: Wire) -> int:
    """Returns how much of what was offered has been taken, once no more is."""
    before = -1
    while (left := source.transport.get_write_buffer_size()) != before:
        before = left
        await asyncio.sleep(0.03)
    return OFFERED - left


@pytest.fixture
async def slow(router):
    """A router whose connections have small buffers."""
    router.shrink_buffers()
    return router


def offer(framing: str) -> bytes:
    data = b"x" * OFFERED
    return b"%x\r\n%b\r\n0\r\n\r\n" % (OFFERED, data) if framing == "chunked" else data


@pytest.mark.parametrize("framing", ["length", "chunked", "until close"])
async def test_a_client_that_reads_nothing_stops_the_sandbox(slow, pod, framing):
    client = await slow.connect(buffers=8192)
    client.stop_reading()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    headers = {"length": ("Content-Length", str(OFFERED)), "chunked": CHUNKED}.get(framing)
    sandbox.send(answer(200, *([headers] if headers else []), length=False), offer(framing))
    assert await stalls(sandbox) < HELD_AT_MOST
    if framing == "until close":
        sandbox.close()
    client.start_reading()
    assert len((await client.answer()).body) == OFFERED


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_sandbox_that_reads_nothing_stops_the_client(slow, pod, framing):
    client = await slow.connect(buffers=8192)
    headers = ("Content-Length", str(OFFERED)) if framing == "length" else CHUNKED
    client.send(request("POST", "/", headers))
    sandbox = await pod.accept()
    await sandbox.head()
    sandbox.stop_reading()
    client.send(offer(framing))
    assert await stalls(client) < HELD_AT_MOST
    sandbox.start_reading()
    await sandbox.until(lambda: sandbox.total > OFFERED)
    sandbox.send(answer(body=b"thanks"))
    assert (await client.answer("POST")).body == b"thanks"


async def test_a_client_that_reads_nothing_stops_a_tunnel(slow, pod):
    client, sandbox = await opened(slow, pod, protocol="other", buffers=8192)
    client.stop_reading()
    sandbox.send(b"x" * OFFERED)
    assert await stalls(sandbox) < HELD_AT_MOST
    client.start_reading()
    assert len(await client.read(OFFERED)) == OFFERED


async def test_a_sandbox_that_reads_nothing_stops_a_tunnel(slow, pod):
    client, sandbox = await opened(slow, pod, protocol="other", buffers=8192)
    sandbox.stop_reading()
    client.send(b"x" * OFFERED)
    assert await stalls(client) < HELD_AT_MOST
    sandbox.start_reading()
    assert len(await sandbox.read(OFFERED)) == OFFERED


async def test_one_direction_of_a_tunnel_flows_while_the_other_is_stopped(slow, pod):
    client, sandbox = await opened(slow, pod, protocol="other", buffers=8192)
    sandbox.stop_reading()
    client.send(b"x" * OFFERED)
    await stalls(client)
    for _ in range(5):
        sandbox.send(b"event")
        assert await client.read(5) == b"event"
    sandbox.start_reading()
    assert len(await sandbox.read(OFFERED)) == OFFERED


async def test_an_answer_flows_while_its_upload_is_stopped(slow, pod):
    client = await slow.connect(buffers=8192)
    client.send(request("POST", "/", ("Content-Length", str(OFFERED))))
    sandbox = await pod.accept()
    await sandbox.head()
    sandbox.stop_reading()
    client.send(b"x" * OFFERED)
    await stalls(client)
    sandbox.send(answer(200, CHUNKED))
    assert (await client.head()).status == 200
    for _ in range(5):
        sandbox.send(b"5\r\nevent\r\n")
        assert await client.read(10) == b"5\r\nevent\r\n"
    sandbox.start_reading()
    assert len(await sandbox.read(OFFERED)) == OFFERED
    sandbox.send(b"0\r\n\r\n")
    assert await client.read(5) == b"0\r\n\r\n"


async def test_others_are_served_while_somebody_reads_nothing(slow, pod):
    stuck = await slow.connect(buffers=8192)
    stuck.stop_reading()
    stuck.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(200, ("Content-Length", str(OFFERED))), b"x" * OFFERED)
    await stalls(sandbox)
    client = await slow.connect()
    client.send(request("GET", "/other"))
    other = await pod.accept()
    await other.request()
    other.send(answer(body=b"ok"))
    assert (await client.answer()).body == b"ok"
