"""A simulated controller, kubelet and network plugin: they give sandboxes a restless life."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.chaos.history import History, Name
from tests.chaos.pods import Addresses, ListeningPod
from tests.fakes.cluster_objects import EXTENSIONS, claim, owner, pod, ready_condition, sandbox
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import CLAIMS, PODS, SANDBOXES, JsonObject, Kind

POOL_LABEL = "agents.x-k8s.io/warm-pool-sandbox"
POOL = owner("SandboxWarmPool", "pool", "pool-uid", group=EXTENSIONS)


@dataclass
class Box:
    """One sandbox as its controller sees it."""

    name: Name
    pod: ListeningPod | None = None
    pod_name: str = ""
    is_busy: bool = False
    """Something is being done with it."""
    is_pooled: bool = False
    alias: Name | None = None


@dataclass
class Controller:
    """Does things to sandboxes. `grace_s` lies between a pod's deletion mark and the end of its containers."""

    api: FakeKubernetes
    history: History
    addresses: Addresses
    rng: random.Random
    grace_s: float
    namespaces: tuple[str, ...]
    boxes: list[Box] = field(default_factory=list)
    names: list[Name] = field(default_factory=list)
    """Every name that ever was, of sandboxes and claims."""
    done: Counter[str] = field(default_factory=Counter)
    made: int = 0

    async def fill(self, count: int) -> None:
        """Starts with this many sandboxes, a tenth of them in a pool."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                tasks.create_task(self.launch(is_pooled=number % 10 == 0))

    async def run(self, *, actions_per_s: float, until: float) -> None:
        """Does one thing after another; each takes its time, beside the others."""
        async with asyncio.TaskGroup() as tasks:
            while time.monotonic() < until:
                await asyncio.sleep(self.rng.expovariate(actions_per_s))
                tasks.create_task(self.act())

    async def act(self) -> None:
        idle = [
            box for box in self.rng.sample(self.boxes, min(20, len(self.boxes))) if not box.is_busy
        ]
        if not idle:
            return
        box = idle[0]
        box.is_busy = True
        try:
            await self._life(box)
        finally:
            box.is_busy = False

    async def _life(self, box: Box) -> None:
        if box.is_pooled:
            await self.adopt(box)
            return
        deed = self.rng.choice(
            [
                self.replace,
                self.replace,
                self.replace,
                self.suspend_and_resume,
                self.restart,
                self.unready,
            ]
        )
        await deed(box)

    # --- deeds ------------------------------------------------------------------------------

    async def launch(self, *, is_pooled: bool = False, name: Name | None = None) -> None:
        """A new sandbox, up and ready."""
        self.made += 1
        namespace = self.rng.choice(self.namespaces)
        name = name or (namespace, f"{'pool' if is_pooled else 'box'}-{self.made}")
        box = Box(name, is_busy=True, is_pooled=is_pooled)
        self.boxes.append(box)
        self.names.append(name)
        controlled_by = POOL if is_pooled else None
        self.api.store.create(
            SANDBOXES, sandbox(name[1], namespace=name[0], controlled_by=controlled_by)
        )
        await self.start_pod(box)
        box.is_busy = False

    async def replace(self, box: Box) -> None:
        """The sandbox goes, and another one, mostly of another name and tenant, takes its place and its address at once."""
        self.done["deleted"] += 1
        self.history.not_ready(box.name)
        if box.alias is not None:
            self.api.store.delete(CLAIMS, *box.alias)
        self.api.store.delete(SANDBOXES, *box.name)
        await self.end_pod(box)
        self.boxes.remove(box)
        is_namesake = box.alias is None and not box.is_pooled and self.rng.random() < 0.3
        await self.launch(
            is_pooled=not is_namesake and self.rng.random() < 0.2,
            name=box.name if is_namesake else None,
        )

    async def suspend_and_resume(self, box: Box) -> None:
        self.done["suspended"] += 1
        self.history.not_ready(box.name)
        self._change(
            SANDBOXES, box.name, lambda item: item["spec"].update(operatingMode="Suspended")
        )
        await self.end_pod(box)
        await asyncio.sleep(self.rng.uniform(0.0, 1.0))
        self._change(SANDBOXES, box.name, lambda item: item["spec"].update(operatingMode="Running"))
        await self.start_pod(box)

    async def restart(self, box: Box) -> None:
        """Its pod is evicted and comes back elsewhere."""
        self.done["restarted"] += 1
        await self.end_pod(box)
        await self.start_pod(box)

    async def unready(self, box: Box) -> None:
        """Its readiness probe fails for a while."""
        self.done["unready"] += 1
        assert box.pod is not None
        self.history.not_ready(box.name)
        self._condition(box, is_ready=False)
        await asyncio.sleep(self.rng.uniform(0.05, 0.5))
        self._condition(box, is_ready=True)
        self.history.ready(box.name, box.pod.uid)

    async def adopt(self, box: Box) -> None:
        """A claim takes a pooled sandbox; the pod's label goes a moment later."""
        self.done["adopted"] += 1
        assert box.pod is not None
        alias = (box.name[0], f"claim-{box.name[1]}")
        made = self.api.store.create(
            CLAIMS, claim(alias[1], namespace=alias[0], bound_to=box.name[1])
        )
        by = owner("SandboxClaim", alias[1], made["metadata"]["uid"], group=EXTENSIONS)
        self._change(
            SANDBOXES, box.name, lambda item: item["metadata"].update(ownerReferences=[by])
        )
        box.alias, box.is_pooled = alias, False
        self.history.alias_made(alias, box.name)
        self.names.append(alias)
        self.history.ready(box.name, box.pod.uid)
        await asyncio.sleep(self.rng.uniform(0.0, 0.5))
        self._change(
            PODS,
            (box.name[0], box.pod_name),
            lambda item: item["metadata"]["labels"].pop(POOL_LABEL),
        )

    # --- pods -------------------------------------------------------------------------------

    async def start_pod(self, box: Box) -> None:
        while (address := self.addresses.take()) is None:
            await asyncio.sleep(0.05)
        self.made += 1
        box.pod_name = f"{box.name[1]}-{self.made}"
        item = pod(
            box.pod_name,
            of=self.api.store.get(SANDBOXES, *box.name),
            address=address,
            is_pooled=box.is_pooled,
            created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        uid = item["metadata"]["uid"]
        box.pod = ListeningPod(uid, address)
        self.history.pod_made(uid, box.name)
        await box.pod.start()
        self.api.store.create(PODS, item)
        await asyncio.sleep(self.rng.uniform(0.0, 0.2))
        self._condition(box, is_ready=True)
        if not box.is_pooled:
            self.history.ready(box.name, uid)

    async def end_pod(self, box: Box) -> None:
        """Marks it deleted, lets it serve out its grace, kills it, frees its address, and removes it."""
        assert box.pod is not None
        self.history.not_ready(box.name)
        gone = (box.name[0], box.pod_name)
        mark = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._change(PODS, gone, lambda item: item["metadata"].update(deletionTimestamp=mark))
        await asyncio.sleep(self.grace_s)
        box.pod.stop()
        self.addresses.give_back(box.pod.address)
        # The removal comes last, and only after others may have got the address.
        asyncio.get_running_loop().call_later(
            self.rng.uniform(0.0, 0.5), self.api.store.delete, PODS, *gone
        )
        box.pod = None

    def _condition(self, box: Box, *, is_ready: bool) -> None:
        conditions = [ready_condition(is_ready, "")]
        self._change(
            PODS,
            (box.name[0], box.pod_name),
            lambda item: item["status"].update(conditions=conditions),
        )

    def _change(self, kind: Kind, name: Name, how: Callable[[JsonObject], Any]) -> None:
        def changed(item: JsonObject) -> JsonObject:
            how(item)
            return item

        self.api.store.update(kind, *name, changed)

    def stop(self) -> None:
        for box in self.boxes:
            if box.pod is not None:
                box.pod.stop()
