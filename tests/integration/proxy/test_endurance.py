"""What thousands of connections leave behind: nothing."""

import asyncio
import contextlib
import gc

import pytest

from router.proxy.client_connection import ClientConnection
from router.proxy.exchange import Exchange
from router.proxy.sandbox_connection import SandboxConnection
from router.proxy.tunnel import Tunnel
from tests.integration.proxy.conftest import open_descriptors
from tests.integration.proxy.faults import silent_port
from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.pod import bound_socket
from tests.integration.proxy.upgrades import switching, upgrade
from tests.integration.proxy.wire import until

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

CONNECTIONS = 10_000
DIALS = 2_000
AT_A_TIME = 50

GET = request("GET", "/short")
OK = answer(body=b"ok")
WAYS = [
    (GET, "answered"),
    (GET * 3, "pipelined"),
    (request("POST", "/", body=b"x" * 2000), "answered"),
    (GET, "left at once"),
    (GET, "reset at once"),
    (GET[:40], "left at once"),
    (request("POST", "/", ("Content-Length", "5000")) + b"some", "left at once"),
    (b"nonsense\r\n\r\n", "answered"),
    (request(token="wrong"), "answered"),
    (upgrade(), "switched"),
]


class Sandbox(asyncio.Protocol):
    """Answers as fast as it can, agrees to upgrades, and echoes in tunnels."""

    def connection_made(self, transport):
        self.transport = transport
        self.is_tunnel = False

    def data_received(self, data):
        if self.is_tunnel:
            self.transport.write(data)
        elif b"Upgrade: websocket" in data:
            self.is_tunnel = True
            self.transport.write(switching(protocol="websocket"))
        elif b"\r\n\r\n" in data:
            self.transport.write(OK)


class Client(asyncio.Protocol):
    """Sends one thing, and goes once enough has come."""

    def __init__(self, raw, how, done):
        self.raw, self.how, self.done = raw, how, done
        self.got = 0

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.raw)
        if self.how == "left at once":
            transport.close()
        elif self.how == "reset at once":
            transport.abort()

    def data_received(self, data):
        self.got += data.count(b"HTTP/1.1 ")
        if self.how == "switched" and self.got == 1:
            self.transport.write(b"echo")
            self.got = 2
        elif self.got >= {"pipelined": 3, "switched": 2}.get(self.how, 1):
            self.transport.close()

    def connection_lost(self, exc):
        if not self.done.done():
            self.done.set_result(None)


async def come_and_go(address, ways) -> None:
    loop = asyncio.get_running_loop()
    for raw, how in ways:
        done = loop.create_future()
        await loop.create_connection(lambda: Client(raw, how, done), *address)  # noqa: B023
        await done


@pytest.fixture
async def fast_sandbox(router):
    """The sandbox `box`, which answers by itself."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Sandbox, "127.0.0.1", 0, backlog=4096)
    router.knows(port=server.sockets[0].getsockname()[1], uid="fast")
    yield
    server.close()


def connections_in_memory() -> int:
    """Returns how many objects of connections and requests there are, ended or not."""
    gc.collect()
    kinds = (ClientConnection, Exchange, Tunnel, SandboxConnection)
    return sum(isinstance(thing, kinds) for thing in gc.get_objects())


@contextlib.asynccontextmanager
async def leaving_nothing(router):
    """Holds the router to having neither descriptors nor objects of clients that have left."""
    descriptors, connections = open_descriptors(), connections_in_memory()
    async with asyncio.timeout(100):
        yield
    await router.emptied()
    router.pool.close()
    await until(lambda: open_descriptors() <= descriptors, what="descriptors to be closed")
    assert connections_in_memory() <= connections


async def all_come_and_go(address, ways) -> None:
    """Lets clients come and go in these ways, some at a time."""
    await asyncio.gather(
        *(come_and_go(address, ways[part::AT_A_TIME]) for part in range(AT_A_TIME))
    )


async def test_10_000_short_connections_leave_nothing(router, fast_sandbox):
    ways = [WAYS[number % len(WAYS)] for number in range(CONNECTIONS)]
    async with leaving_nothing(router):
        await all_come_and_go(router.address, ways)
    assert len(router.outcomes) > CONNECTIONS * 0.7
    assert {outcome.status for outcome in router.outcomes} <= {101, 200, 400, 401, 499}


async def test_2_000_failed_dials_leave_nothing(router):
    asked = [(GET, "answered")] * (DIALS // 2)
    with bound_socket() as closed:
        router.knows(port=closed.getsockname()[1])
        async with leaving_nothing(router), asyncio.TaskGroup() as group:
            coming = group.create_task(all_come_and_go(router.address, asked))
            while not coming.done():
                await asyncio.sleep(0.005)
                router.clock.added_s += 0.5  # a refused port is given up after 2 s
    assert {outcome.code for outcome in router.outcomes} == {"sandbox_unreachable"}
    assert len(router.outcomes) + router.metric("upstream_retries_total") >= DIALS


async def test_dials_that_are_given_up_leave_nothing(start_router):
    router = await start_router(connect_timeout_s=0.05, wait_for_ready_s=0.01)
    names = [f"silent-{number}" for number in range(200)]
    async with silent_port() as port, leaving_nothing(router):
        for name in names:
            router.knows(name=name, uid=name, port=port)
        await all_come_and_go(router.address, [(request(sandbox=n), "answered") for n in names])
    assert {outcome.code for outcome in router.outcomes} == {"sandbox_not_ready"}
    assert router.metric("cache_invalidations_total") == 200
