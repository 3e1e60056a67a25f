"""A worker that is replaced while the API server is away: it has its sibling's table before its first connection."""

import asyncio
import contextlib
import os
import signal

from tests.fakes.cluster_objects import claim, pod, sandbox
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import CLAIMS, PODS, SANDBOXES
from tests.fakes.router_process import router
from tests.integration.proxy.messages import request
from tests.integration.proxy.wire import dial, until
from tests.integration.rollout.sandbox import sandbox as sandbox_server
from tests.integration.rollout.test_workers import workers_of

ASKED = 60
OTHERS = 1200
"""So many more sandboxes that the table takes several pages."""


@contextlib.asynccontextmanager
async def two_workers_that_watch(api, tmp_path, box):
    made = api.store.create(SANDBOXES, sandbox("box", is_ready=True))
    api.store.create(PODS, pod("box", of=made, address="127.0.0.1", is_ready=True))
    api.store.create(CLAIMS, claim("mine", bound_to="box"))
    for number in range(OTHERS):
        api.store.create(SANDBOXES, sandbox(f"other-{number}", mode="Suspended"))
    flags = (
        "--discovery=kubernetes",
        f"--kubeconfig={api.write_kubeconfig(tmp_path / 'kubeconfig')}",
        "--auth=none",
        "--workers=2",
        f"--default-port={box.port}",
    )
    async with router(*flags) as running:
        await running.until_ready()
        yield running


async def ask(running, name):
    wire = await dial(("127.0.0.1", running.http_port))
    wire.send(request("GET", "/get", sandbox=name))
    try:
        return (await wire.answer()).status
    finally:
        wire.close()


async def test_no_sandbox_is_unknown_to_a_worker_that_is_replaced_during_an_outage(tmp_path):
    async with (
        FakeKubernetes() as api,
        sandbox_server() as box,
        two_workers_that_watch(api, tmp_path, box) as running,
    ):
        first, second = workers_of(running)
        async with api.away():
            for victim in (first, second):  # the second is given what the first was given
                os.kill(victim, signal.SIGKILL)
                asked = (ask(running, "box") for _ in range(ASKED))
                statuses = await asyncio.gather(*asked, return_exceptions=True)
                refused = [each for each in statuses if isinstance(each, int) and each != 200]
                assert refused == []
                await until(lambda victim=victim: victim not in workers_of(running))
                await running.until_ready()
            statuses = [await ask(running, name) for name in ("box", "mine") * (ASKED // 2)]
            assert set(statuses) == {200}
            assert await ask(running, "other-1199") == 409
            assert await ask(running, "nobody") == 404

        api.store.delete(SANDBOXES, "default", "other-1199")
        api.store.delete(CLAIMS, "default", "mine")

        async def are_gone():
            names = ("other-1199", "mine") * 6
            return {await ask(running, name) for name in names} == {404}

        async with asyncio.timeout(20):
            while not await are_gone():
                await asyncio.sleep(0.1)
        assert await ask(running, "box") == 200
