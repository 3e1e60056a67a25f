"""What a router that goes away does with each connection: the whole data plane in this process, real sockets."""

import asyncio
import contextlib
import socket

import pytest

from router.proxy.wire.websocket import CloseCode, close_frame
from router.routing.endpoint import State
from router.server.drain import drain
from tests.integration.proxy.clock import Clock
from tests.integration.proxy.messages import answer, chunked, request
from tests.integration.proxy.pod import Pod, pod_listening, serving
from tests.integration.proxy.running_router import Plan, RunningRouter
from tests.integration.proxy.wire import until

UPGRADE = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
)
SWITCHED = answer(
    "101 Switching Protocols",
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    length=False,
)


@pytest.fixture
async def pod():
    async with pod_listening() as pod:
        yield pod


@pytest.fixture
async def router(pod: Pod):
    async with RunningRouter(Plan(), Clock()).serving() as router:
        router.knows(pod)
        yield router


@contextlib.asynccontextmanager
async def draining(router, *, shutdown_timeout_s=20.0):
    """Yields the drain under way: nothing is accepted any more."""
    stopped = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(
            drain(
                router.clients,
                stop_accepting=stopped.set,
                drain_delay_s=0,
                shutdown_timeout_s=shutdown_timeout_s,
            )
        )
        await stopped.wait()
        yield task


async def test_a_request_that_has_arrived_when_the_drain_begins_is_answered(router, pod):
    async with serving(pod):
        client = await router.connect()
        client.send(request("GET", "/first"))
        await client.answer()

        client.send(request("GET", "/second"))  # is in the router's socket, unread
        router.clients.drain()
        told = await client.answer()

    assert (told.body, told.get("Connection")) == (b"/second", b"close")


async def test_a_client_whose_stream_has_ended_gets_a_moment_for_its_next_request(router, pod):
    client = await router.connect()
    client.send(request("GET", "/stream"))
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(200, ("Transfer-Encoding", "chunked"), length=False))
    await client.head()
    async with draining(router) as under_way:
        sandbox.send(chunked(b"the end"))
        await client.read_through(b"0\r\n\r\n")
        await asyncio.sleep(0.15)  # a client that thinks for a moment; the drain looks every 0.05 s
        client.send(request("GET", "/next"))
        await sandbox.request()
        sandbox.send(answer(body=b"next"))
        told = await client.answer()

    assert (told.body, told.get("Connection")) == (b"next", b"close")
    assert under_way.result() == 0


async def test_an_idle_client_does_not_hold_the_drain_up(router, pod):
    client = await router.connect()
    async with draining(router) as under_way:
        assert await client.end() == "eof"

    assert under_way.result() == 0


async def test_the_drain_waits_for_an_answer_that_its_client_still_reads(router, pod):
    size = 50_000
    client = await router.connect(buffers=4096)
    client.stop_reading()
    small_send_buffer(router)
    client.send(request("GET", "/download"))
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(body=bytes(size)))
    await router.outcome()
    assert unsent(router) > 0, "the exchange is over, its bytes are still here"

    async with draining(router) as under_way:
        await asyncio.sleep(1.0)
        assert not under_way.done()
        client.start_reading()
        told = await client.answer()

    assert len(told.body) == size
    assert under_way.result() == 0


async def test_a_websocket_client_that_never_stops_talking_reads_why_it_ends(router, pod):
    client = await router.connect()
    client.send(request("GET", "/socket", *UPGRADE))
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.stop_reading()
    sandbox.send(SWITCHED)
    await client.answer()
    flood = bytes((0x82, 0xFE, 0x10, 0x00)) + bytes(4 + 4096)
    while (
        client.is_writable
    ):  # until nobody takes anything any more: input waits unread in the router's socket
        client.send(flood)
        await asyncio.sleep(0)

    async with draining(router, shutdown_timeout_s=1.0):
        rest, how = await client.rest()

    assert rest == close_frame(CloseCode.GOING_AWAY, "the router is shutting down")
    assert how == "eof", "a reset would have torn the reason out of many a client's hands"


async def test_a_request_that_still_waits_at_the_end_is_told_to_try_elsewhere(router, pod):
    router.knows(pod, state=State.STARTING)
    client = await router.connect()
    client.send(request("GET", "/"))
    await until(lambda: router.index.waiting() == 1)

    async with draining(router, shutdown_timeout_s=0.2):
        told = await client.answer()

    assert (told.status, told.code) == (503, "draining")
    assert told.get("Connection") == b"close"


async def test_an_answer_cut_by_the_end_does_not_look_whole(router, pod):
    client = await router.connect()
    client.send(request("GET", "/"))
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(200, ("Content-Length", "10"), length=False), b"half")
    await client.head()

    async with draining(router, shutdown_timeout_s=0.2) as under_way:
        body, how = await client.rest()

    # Its length tells that the rest is missing, so it needs no reset, which could destroy what has come.
    assert (body, how) == (b"half", "eof")
    assert under_way.result() == 1


def transports(router):
    return [connection.transport for connection in router.clients._connections]


def small_send_buffer(router):
    for transport in transports(router):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


def unsent(router):
    return sum(transport.get_write_buffer_size() for transport in transports(router))
