"""A Reflector that runs against the fake API server and fills a store of names."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from router.discovery.listing import Listing
from router.discovery.objects import identity
from router.discovery.pace import Pace
from router.discovery.recovery import Recovery
from router.discovery.reflector import Phase, Reflector
from router.discovery.resources import Resource
from router.kube.api_client import KubernetesApi
from router.kube.cluster_access import ClusterAccess
from tests.fakes.cluster_objects import pod, sandbox
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import PODS

PACE = Pace(
    page_size=2,
    read_timeout_s=0.3,
    watch_timeout_s=60.0,
    silence_limit_s=0.4,
    first_retry_s=0.01,
    retry_limit_s=0.05,
    short_watch_s=0.05,
    relist_jitter_s=0.02,
)
POD_RESOURCE = Resource("pods", ("/api/v1",), label_selector="agents.x-k8s.io/sandbox-name-hash")
SANDBOX_RESOURCE = Resource(
    "sandboxes", ("/apis/agents.x-k8s.io/v1beta1", "/apis/agents.x-k8s.io/v1alpha1")
)


class Names:
    """A store that keeps names, and every call it got."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.calls: list[tuple[str, Any]] = []

    def begin_list(self) -> Listing[str, str]:
        return Listing(key=str, is_known=lambda _: False, commit=self._replace)

    def _replace(self, _: set[str], records: list[str]) -> None:
        self.names = set(records)
        self.calls.append(("replace", sorted(self.names)))

    def upsert(self, record: str) -> None:
        if record == "poison":
            raise RuntimeError("a bug in the store")
        self.names.add(record)
        self.calls.append(("upsert", record))

    def remove(self, record: str) -> None:
        self.names.discard(record)
        self.calls.append(("remove", record))


class Watching:
    """A reflector that runs against a fake API server."""

    def __init__(self, api: FakeKubernetes, client: KubernetesApi, **change: Any) -> None:
        self.api = api
        self.store = Names()
        self.lists_told = 0
        self.restarts: Counter[tuple[str, str]] = Counter()
        arguments = {
            "api": client,
            "resource": POD_RESOURCE,
            "namespace": None,
            "parse": lambda item: identity(item)[2],
            "store": self.store,
            "pace": PACE,
            "on_list": self._told,
            "restarts": self.restarts,
            "recovery": Recovery(),
        }
        self.reflector: Reflector[str] = Reflector(**(arguments | change))

    def _told(self) -> None:
        self.lists_told += 1

    async def until_names(self, *names: str) -> None:
        await until(lambda: self.store.names == set(names))

    async def until_watching(self) -> None:
        await until(lambda: bool(self.api.faults.open(self.reflector.resource.name)))
        await until(lambda: self.reflector.phase is Phase.WATCHING)

    def lists(self) -> int:
        return self.api.requests.count(("list", self.reflector.resource.name, None))


async def until(is_true: Callable[[], bool], timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_true():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def watching(
    *pods: str, streams_lists: bool = False, **change: Any
) -> AsyncIterator[Watching]:
    async with FakeKubernetes(bookmark_interval_s=0.1, streams_lists=streams_lists) as api:
        for name in pods:
            api.store.create(PODS, pod(name, of=sandbox(name)))
        async with running(api, **change) as watch:
            yield watch


@asynccontextmanager
async def running(api: FakeKubernetes, **change: Any) -> AsyncIterator[Watching]:
    async with KubernetesApi(access=ClusterAccess(server=api.url)) as client:
        watch = Watching(api, client, **change)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(watch.reflector.run())
            try:
                yield watch
            finally:
                task.cancel()


def add(watch: Watching, name: str) -> None:
    watch.api.store.create(PODS, pod(name, of=sandbox(name)))
