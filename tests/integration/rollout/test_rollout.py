"""Rolling restarts under load: nothing fails, streams end by themselves, WebSockets are told to go."""

import asyncio
import contextlib

import pytest

from tests.integration.proxy.wire import until
from tests.integration.rollout.front import HEALTHZ, READYZ, envoy
from tests.integration.rollout.load import Load
from tests.integration.rollout.replicas import (
    Service,
    ended,
    replicas,
    until_it_carries,
)
from tests.integration.rollout.sandbox import sandbox


async def roll(fleet, service):
    """Replaces two replicas under load as a Deployment does: the next one is ready before an old one has to go. Returns the load."""
    old = [await fleet.start(), await fleet.start()]
    await service.add(*old)
    carried_sockets = 0
    async with Load(service.pick) as load:
        await load.goes_on()
        for replica in old:
            await service.add(await fleet.start())
            requests, sockets = await until_it_carries(replica)
            print(
                f"replica {replica.process.pid} goes with {requests} requests, {sockets} WebSockets"
            )
            carried_sockets += sockets
            replica.process.terminate()
        for replica in old:
            assert await ended(replica) == 0
            service.remove(replica)
        await load.goes_on()
        await until(
            lambda: load.tally.closes.total() >= carried_sockets,
            what=f"the end of {carried_sockets} WebSockets: {load.tally}",
        )
    return load


def assert_nobody_was_harmed(load):
    print(load.tally)
    assert load.tally.failed == []
    assert set(load.tally.closes) == {1001}


@contextlib.asynccontextmanager
async def service_of_probes():
    """Yields a Service that keeps looking who is ready."""
    service = Service()
    async with asyncio.TaskGroup() as tasks:
        probing = tasks.create_task(service.run())
        yield service
        probing.cancel()


@pytest.mark.parametrize(("check", "workers"), [(READYZ, 1), (HEALTHZ, 2)])
async def test_a_rollout_behind_envoy_harms_nobody(tmp_path, check, workers):
    async with (
        sandbox() as box,
        envoy(tmp_path, check) as front,
        replicas(box.write_table(tmp_path), f"--workers={workers}") as fleet,
    ):
        load = await roll(fleet, front)
        assert await front.counted("upstream_rq_retry") == 0, "nothing was hidden"

    assert_nobody_was_harmed(load)


async def test_a_rollout_without_any_front_harms_nobody(tmp_path):
    async with (
        sandbox() as box,
        replicas(box.write_table(tmp_path)) as fleet,
        service_of_probes() as service,
    ):
        load = await roll(fleet, service)

    assert_nobody_was_harmed(load)
    assert load.tally.told_to_close > 0, "keep-alive clients were told"
