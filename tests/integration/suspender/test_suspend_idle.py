"""`sandbox-router suspend-idle` as its operator runs it: processes beside an API server and routers."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from router.discovery.idle_timeout import IDLE_TIMEOUT_ANNOTATION
from tests.fakes.activity_router import ActivityRouter, activity
from tests.fakes.cluster_objects import sandbox
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import LEASES, SANDBOXES
from tests.fakes.running_discovery import until

PATIENCE_S = 30.0


@dataclass
class Running:
    """The process, and what it wrote."""

    process: asyncio.subprocess.Process
    log: list[dict[str, Any]] = field(default_factory=list)
    code: int | None = None

    def said(self, message: str) -> list[dict[str, Any]]:
        return [line for line in self.log if line.get("message") == message]

    async def until_said(self, message: str) -> dict[str, Any]:
        await until(lambda: bool(self.said(message)), timeout_s=PATIENCE_S)
        return self.said(message)[0]

    async def page(self, path: str) -> tuple[int, str]:
        host, port = (await self.until_said("started"))["metrics"][0]
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{host}:{port}{path}") as answer,
        ):
            return answer.status, await answer.text()


@asynccontextmanager
async def suspending(kubeconfig: Path, *args: str) -> AsyncIterator[Running]:
    """Runs the command; it must end with 0 when it is told to."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "suspend-idle", "--kubeconfig", str(kubeconfig)),
        *("--metrics-bind", "127.0.0.1:0", "--interval", "100ms", "--namespace", "system", *args),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    running = Running(process)

    async def follow() -> None:
        assert process.stderr is not None
        while line := await process.stderr.readline():
            running.log.append(json.loads(line))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        try:
            yield running
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_S):
                running.code = await process.wait()
    assert running.code == 0, running.log
    assert not [line for line in running.log if "traceback" in line]


def create(fake: FakeKubernetes, name: str, timeout: str = "1s") -> None:
    annotations = {IDLE_TIMEOUT_ANNOTATION: timeout}
    fake.store.create(SANDBOXES, sandbox(name, is_ready=True, annotations=annotations))


def mode(fake: FakeKubernetes, name: str) -> str:
    return str(fake.store.get(SANDBOXES, "default", name)["spec"]["operatingMode"])


async def test_it_suspends_who_is_idle_and_nobody_else(tmp_path: Path) -> None:
    document = activity(idle_s={"busy": 0.0, "idle": 5000.0}, busy=("busy",))
    async with FakeKubernetes() as fake, ActivityRouter(lambda: document) as router:
        for name in ("idle", "unseen", "busy"):
            create(fake, name)
        create(fake, "patient", timeout="1h")
        create(fake, "odd", timeout="soon")
        kubeconfig = fake.write_kubeconfig(tmp_path / "kubeconfig")
        async with suspending(kubeconfig, "--routers", router.address) as running:
            await until(lambda: len(running.said("sandbox suspended")) == 2, timeout_s=PATIENCE_S)
            metrics = (await running.page("/metrics"))[1]
            health = await running.page("/healthz")

        modes = {name: mode(fake, name) for name in ("idle", "unseen", "busy", "patient", "odd")}
        lease = fake.store.get(LEASES, "system", "sandbox-router-suspend-idle")["spec"]

    assert modes == {
        "idle": "Suspended",
        "unseen": "Suspended",
        "busy": "Running",
        "patient": "Running",
        "odd": "Running",
    }
    assert 'sandbox_router_suspends_total{outcome="suspended"} 2.0' in metrics
    assert "sandbox_router_suspend_leader 1.0" in metrics
    assert health[0] == 200
    assert "holderIdentity" not in lease
    assert running.said("lease given back")
    assert len(running.said("idle timeout can't be read: this sandbox is never suspended")) == 1


async def test_a_router_that_cannot_be_asked_keeps_everybody_and_is_named(tmp_path: Path) -> None:
    async with ActivityRouter() as gone:
        pass
    async with FakeKubernetes() as fake, ActivityRouter() as router:
        create(fake, "box", timeout="50ms")
        kubeconfig = fake.write_kubeconfig(tmp_path / "kubeconfig")
        routers = f"{router.address},{gone.address}"
        async with suspending(kubeconfig, "--routers", routers) as running:
            line = await running.until_said("no sandbox can be suspended for now")
            asked = router.asked
            await until(lambda: router.asked > asked + 5, timeout_s=PATIENCE_S)

        assert mode(fake, "box") == "Running"

    assert line["why"] == "router_silent"
    assert gone.address in line["reason"]
    assert len(running.said("no sandbox can be suspended for now")) == 1


async def test_a_dry_run_says_it_and_does_nothing(tmp_path: Path) -> None:
    async with FakeKubernetes() as fake, ActivityRouter() as router:
        create(fake, "box", timeout="50ms")
        kubeconfig = fake.write_kubeconfig(tmp_path / "kubeconfig")
        async with suspending(kubeconfig, "--routers", router.address, "--dry-run") as running:
            await running.until_said("sandbox would be suspended (dry run)")

        assert mode(fake, "box") == "Running"
        assert {verb for verb, _, _ in fake.requests} <= {"get", "list", "watch"}
        assert "leases" not in {resource for _, resource, _ in fake.requests}


async def test_of_two_one_acts_and_the_other_takes_over_when_it_is_told_to_end(
    tmp_path: Path,
) -> None:
    async with FakeKubernetes() as fake, ActivityRouter() as router:
        kubeconfig = fake.write_kubeconfig(tmp_path / "kubeconfig")
        args = (kubeconfig, "--routers", router.address)
        async with suspending(*args) as second, suspending(*args) as first:
            await until(
                lambda: bool(first.said("lease acquired")) or bool(second.said("lease acquired")),
                timeout_s=PATIENCE_S,
            )
            holder, other = (first, second) if first.said("lease acquired") else (second, first)
            await other.until_said("started")
            create(fake, "box", timeout="50ms")
            await until(lambda: mode(fake, "box") == "Suspended", timeout_s=PATIENCE_S)
            await holder.until_said("sandbox suspended")
            assert not other.said("sandbox suspended")
            holder.process.send_signal(signal.SIGTERM)
            await other.until_said("lease acquired")


async def test_an_outage_of_the_api_server_is_lived_through(tmp_path: Path) -> None:
    async with FakeKubernetes() as fake, ActivityRouter() as router:
        kubeconfig = fake.write_kubeconfig(tmp_path / "kubeconfig")
        async with suspending(kubeconfig, "--routers", router.address) as running:
            await running.until_said("lease acquired")
            async with fake.away():
                await asyncio.sleep(0.5)
            create(fake, "box", timeout="50ms")
            await until(lambda: mode(fake, "box") == "Suspended", timeout_s=PATIENCE_S)
