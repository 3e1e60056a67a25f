"""The suspender beside a real router: what the router tells is what the suspender goes by."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import aiohttp
import pytest

from router.discovery.idle_timeout import IDLE_TIMEOUT_ANNOTATION
from tests.chaos.pods import ListeningPod
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import SANDBOXES
from tests.fakes.router_process import router
from tests.fakes.running_discovery import launch, until
from tests.integration.suspender.test_suspend_idle import PATIENCE_S, suspending


def mode(fake: FakeKubernetes, name: str) -> str:
    return str(fake.store.get(SANDBOXES, "default", name)["spec"]["operatingMode"])


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_sandbox_stays_up_while_it_is_asked_and_is_suspended_when_it_isn_t(
    tmp_path: Path, workers: str
) -> None:
    pod = ListeningPod("pod", "127.98.0.1")
    await pod.start()
    async with FakeKubernetes() as fake:
        for name, address in (("asked", pod.address), ("unasked", "127.98.0.2")):
            launch(fake, name, address=address, annotations={IDLE_TIMEOUT_ANNOTATION: "2s"})
        kubeconfig = fake.write_kubeconfig(tmp_path / "kubeconfig")
        flags = ("--discovery=kubernetes", f"--kubeconfig={kubeconfig}", "--auth=none")
        try:
            async with (
                router(*flags, f"--workers={workers}") as running,
                aiohttp.ClientSession() as http,
            ):
                await running.until_ready()
                url = f"http://127.0.0.1:{running.http_port}/"

                async def ask() -> None:
                    while True:
                        async with http.get(url, headers={"X-Sandbox-ID": "asked"}) as answer:
                            assert answer.status == 200
                        await asyncio.sleep(0.2)

                admin = f"127.0.0.1:{running.admin_port}"
                async with suspending(kubeconfig, "--routers", admin) as suspender:
                    async with asyncio.TaskGroup() as tasks:
                        asking = tasks.create_task(ask())
                        await until(
                            lambda: mode(fake, "unasked") == "Suspended", timeout_s=PATIENCE_S
                        )
                        asked_on = mode(fake, "asked")
                        asking.cancel()
                        with contextlib.suppress(asyncio.CancelledError):
                            await asking
                    await until(lambda: mode(fake, "asked") == "Suspended", timeout_s=PATIENCE_S)
                assert asked_on == "Running"
                assert len(suspender.said("sandbox suspended")) == 2
        finally:
            pod.stop()
