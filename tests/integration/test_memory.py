"""The router's memory while one side doesn't read: as it was, whatever is offered."""

import asyncio

import pytest

from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.pod import Pod, pod_listening
from tests.integration.proxy.upgrades import switching, upgrade
from tests.integration.proxy.wire import Wire, dial
from tests.integration.serve import served

pytestmark = pytest.mark.alone

OFFERED = 500_000_000
PIECE = b"x" * 1_000_000
GROWTH_AT_MOST = 12_000_000
TAKEN_AT_MOST = 40_000_000
"""What the router and every buffer of the kernel on both ways may take before nothing moves any more."""


class Offer:
    """Sends 500 MB as fast as they are taken, without keeping them."""

    def __init__(self, source: Wire) -> None:
        self.source = source
        self.sent = 0

    async def run(self) -> None:
        while self.sent < OFFERED:
            await self.source.until(lambda: self.source.is_writable)
            self.source.send(PIECE)
            self.sent += len(PIECE)

    async def stalled(self) -> int:
        """Returns how much was taken, once nothing moves any more."""
        before = -1
        while self.sent != before:
            before = self.sent
            await asyncio.sleep(0.3)
        return self.sent


@pytest.fixture
async def pod():
    async with pod_listening() as pod:
        yield pod


@pytest.fixture
async def router(tmp_path):
    async with served(tmp_path, "box") as router:
        yield router


async def met(router, pod: Pod, raw: bytes) -> tuple[Wire, Wire]:
    """Returns a client's connection that has sent this, and the sandbox's where it came out."""
    raw = raw.replace(b"\r\n\r\n", b"\r\nX-Sandbox-Port: %d\r\n\r\n" % pod.port, 1)
    client = await dial(router.address)
    client.send(raw)
    sandbox = await pod.accept()
    await sandbox.head()
    return client, sandbox


async def warmed_up(router, pod: Pod) -> int:
    """Returns the router's memory after some ordinary traffic."""
    for _ in range(3):
        client, sandbox = await met(router, pod, request("POST", "/", body=b"x" * 300_000))
        await sandbox.read(300_000)
        sandbox.send(answer(200, ("Connection", "close"), body=b"y" * 3_000_000))
        await client.answer("POST")
        client.close()
    return router.memory_bytes()


async def assert_constant(router, offer: Offer, sink: Wire, before: int) -> None:
    """Holds the router's memory to what it was while the sink doesn't read, and while it does."""
    sink.stop_reading()
    sink.keeps = False
    start = sink.total
    async with asyncio.timeout(100), asyncio.TaskGroup() as group:
        group.create_task(offer.run())
        taken = await offer.stalled()
        assert taken < TAKEN_AT_MOST
        assert router.memory_bytes() - before < GROWTH_AT_MOST
        sink.start_reading()
        while sink.total - start < OFFERED:
            await asyncio.sleep(0.05)
            assert router.memory_bytes() - before < GROWTH_AT_MOST


async def test_a_client_that_reads_nothing_of_500_mb(router, pod):
    before = await warmed_up(router, pod)
    client, sandbox = await met(router, pod, request())
    sandbox.send(answer(200, ("Content-Length", str(OFFERED))))
    await client.head()
    await assert_constant(router, Offer(sandbox), client, before)
    client.close()


async def test_a_sandbox_that_reads_nothing_of_500_mb(router, pod):
    before = await warmed_up(router, pod)
    client, sandbox = await met(router, pod, request("PUT", "/", ("Content-Length", str(OFFERED))))
    await assert_constant(router, Offer(client), sandbox, before)
    client.close()


@pytest.mark.parametrize("direction", ["to the client", "to the sandbox"])
async def test_a_tunnel_of_which_one_end_reads_nothing_of_500_mb(router, pod, direction):
    before = await warmed_up(router, pod)
    client, sandbox = await met(router, pod, upgrade(protocol="other"))
    sandbox.send(switching(protocol="other"))
    await client.head()
    source, sink = (sandbox, client) if direction == "to the client" else (client, sandbox)
    await assert_constant(router, Offer(source), sink, before)
    client.close()
