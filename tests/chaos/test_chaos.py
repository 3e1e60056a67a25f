"""Sandboxes come, go, sleep and change addresses under load while watches break: nobody ever gets another's sandbox.

The short form runs with the other tests. The long form: `CHAOS_SANDBOXES=3000 CHAOS_SECONDS=120 pytest -s tests/chaos`.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.clients import Client, Verdicts
from tests.chaos.controller import Controller
from tests.chaos.history import History
from tests.chaos.pods import Addresses
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_faults import Refusal
from tests.fakes.router_process import RouterProcess, router

SANDBOXES = int(os.environ.get("CHAOS_SANDBOXES", "150"))
SECONDS = float(os.environ.get("CHAOS_SECONDS", "15"))
GRACE_S = float(os.environ.get("CHAOS_GRACE", "2"))
"""Between a pod's deletion mark and the reuse of its address. Shorter than a watch takes to heal, no router can know in time."""
SEED = int(os.environ.get("CHAOS_SEED", "0")) or int(time.time())
CLIENTS = int(os.environ.get("CHAOS_CLIENTS", "64"))
RESOURCES = ("pods", "sandboxes", "sandboxclaims")


class Breaker:
    """Breaks watches, in every way that a watch can break."""

    def __init__(self, api: FakeKubernetes, rng: random.Random) -> None:
        self.api = api
        self.rng = rng
        self.done: Counter[str] = Counter()

    async def run(self, until: float) -> None:
        ways: list[Callable[[], None]] = [
            self.cut,
            self.cut_after_a_rest,
            self.truncate,
            self.expire,
            self.expire_by_status,
            self.refuse,
        ]
        while time.monotonic() < until:
            await asyncio.sleep(self.rng.uniform(0.3, 1.2))
            way = self.rng.choice(ways)
            way()
            self.done[way.__name__] += 1

    def cut(self) -> None:
        self.api.faults.cut(self.rng.choice((*RESOURCES, None)))

    def cut_after_a_rest(self) -> None:
        """As an idle load balancer does: whatever stood for a while without a byte."""
        asyncio.get_running_loop().call_later(1.5, self.api.faults.cut, self.rng.choice(RESOURCES))

    def truncate(self) -> None:
        for watch in self.api.faults.open(self.rng.choice(RESOURCES)):
            watch.truncate = True

    def expire(self) -> None:
        for watch in self.api.faults.open(self.rng.choice(RESOURCES)):
            watch.expire = True
        self.api.store.wake_watches()

    def expire_by_status(self) -> None:
        self.api.faults.expires_by_status = self.rng.random() < 0.5
        self.api.store.compact()
        self.api.faults.cut(self.rng.choice(RESOURCES))

    def refuse(self) -> None:
        """The next requests are throttled or fail, one after a cut watch's."""
        resource = self.rng.choice(RESOURCES)
        self.api.faults.refusals[:] = [
            Refusal(self.rng.choice((429, 500, 503)), resource=resource, times=1)
        ]
        self.api.faults.cut(resource)


@pytest.mark.alone
@pytest.mark.timeout(SECONDS + 240)
async def test_under_chaos_no_answer_is_wrong_and_no_ready_sandbox_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(SEED)
    history = History()
    verdicts = Verdicts(history)
    async with FakeKubernetes(bookmark_interval_s=1.0, streams_lists=SEED % 2 == 0) as api:
        controller = Controller(
            api=api,
            history=history,
            addresses=Addresses(SANDBOXES + SANDBOXES // 20 + 5),
            rng=rng,
            grace_s=GRACE_S,
            namespaces=tuple(f"team-{number}" for number in range(7)),
        )
        await controller.fill(SANDBOXES)
        breaker = Breaker(api, rng)
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        async with router(
            "--discovery=kubernetes", f"--kubeconfig={kubeconfig}", "--auth=none"
        ) as running:
            await running.until_ready(60.0)
            await _storm(controller, breaker, verdicts, running, rng)
            traces = running.logged("error") + running.logged("critical")
        controller.stop()

    _report(controller, breaker, verdicts, capsys)
    assert verdicts.wrong == []
    assert verdicts.unknown_though_there == []
    assert verdicts.failed_though_ready == []
    assert verdicts.broken == []
    assert traces == []
    assert verdicts.statuses[200] > 20 * SECONDS
    assert controller.addresses.reused > 0


async def _storm(
    controller: Controller,
    breaker: Breaker,
    verdicts: Verdicts,
    running: RouterProcess,
    rng: random.Random,
) -> None:
    until = time.monotonic() + SECONDS
    is_over = False
    async with asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            client = Client(running.http_port, controller.names, verdicts, rng, pause_s=0.02)
            tasks.create_task(client.run(lambda: is_over))
        tasks.create_task(breaker.run(until))
        await controller.run(actions_per_s=max(10.0, SANDBOXES / 20), until=until)
        is_over = True


def _report(
    controller: Controller,
    breaker: Breaker,
    verdicts: Verdicts,
    capsys: pytest.CaptureFixture[str],
) -> None:
    statuses = " ".join(f"{status}:{count}" for status, count in sorted(verdicts.statuses.items()))
    with capsys.disabled():
        print(
            f"\nchaos (seed {SEED}): {SANDBOXES} sandboxes, {SECONDS:.0f} s, {CLIENTS} clients\n"
            f"  deeds: {dict(controller.done)}; addresses used again: {controller.addresses.reused}\n"
            f"  watches broken: {dict(breaker.done)}\n"
            f"  answers: {sum(verdicts.statuses.values())} ({statuses})\n"
            f"  from a wrong sandbox: {len(verdicts.wrong)}; "
            f"404 for one that was there: {len(verdicts.unknown_though_there)}; "
            f"failed for a sandbox that was ready throughout: {len(verdicts.failed_though_ready)}; "
            f"connections broken: {len(verdicts.broken)}"
        )
