"""A KubernetesDiscovery that runs against an API server, the fake or a real one, with its index beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from router.discovery.kubernetes import KubernetesDiscovery
from router.discovery.pace import Pace
from router.discovery.reflector import Phase
from router.kube.api_client import KubernetesApi
from router.kube.cluster_access import ClusterAccess
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex
from tests.fakes.cluster_objects import pod, sandbox
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import PODS, SANDBOXES, JsonObject

FAST = Pace(
    page_size=50,
    read_timeout_s=0.5,
    silence_limit_s=0.5,
    first_retry_s=0.01,
    retry_limit_s=0.05,
    short_watch_s=0.05,
    relist_jitter_s=0.02,
)


@dataclass
class RunningDiscovery:
    """The parts, for tests to look at."""

    discovery: KubernetesDiscovery
    index: EndpointIndex
    retired: list[Endpoint] = field(default_factory=list)

    def found(self, name: str, namespace: str = "default") -> tuple[State, str] | None:
        """Returns the state, with the address if it is ready and the reason if not."""
        endpoint = self.index.find(SandboxRef(namespace, name))
        if endpoint is None:
            return None
        return endpoint.state, ",".join(endpoint.addresses) or endpoint.reason

    def state(self, name: str, namespace: str = "default") -> State | None:
        found = self.found(name, namespace)
        return None if found is None else found[0]

    async def until_ready(self) -> None:
        await until(lambda: self.discovery.missing() == [])

    async def until_watching(self) -> None:
        """Returns once every watch is served."""
        reflectors = self.discovery.reflectors()
        await until(lambda: all(each.phase is Phase.WATCHING for each in reflectors))


async def until(is_true: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Returns when `is_true()`. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not is_true():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def discovery_of(
    access: ClusterAccess, *, namespaces: tuple[str, ...] = (), pace: Pace = FAST
) -> AsyncIterator[RunningDiscovery]:
    """Runs discovery while the block runs."""
    index = EndpointIndex(waiting_room=100, waiting_room_per_namespace=50)
    async with KubernetesApi(access=access) as client:
        retired: list[Endpoint] = []
        discovery = KubernetesDiscovery(
            api=client,
            namespaces=namespaces,
            index=index,
            on_retired=retired.append,
            pace=pace,
        )
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(discovery.run())
            try:
                yield RunningDiscovery(discovery, index, retired)
            finally:
                task.cancel()


@asynccontextmanager
async def discovering(
    api: FakeKubernetes,
    *,
    namespaces: tuple[str, ...] = (),
    access: ClusterAccess | None = None,
    pace: Pace = FAST,
) -> AsyncIterator[RunningDiscovery]:
    """Runs discovery against the fake while the block runs."""
    access = access or ClusterAccess(server=api.url)
    async with discovery_of(access, namespaces=namespaces, pace=pace) as running:
        yield running


def launch(
    api: FakeKubernetes,
    name: str,
    *,
    namespace: str = "default",
    address: str = "10.0.0.1",
    is_ready: bool = True,
    **shape: Any,
) -> JsonObject:
    """Creates a Sandbox with its pod. Returns the Sandbox."""
    box = api.store.create(
        SANDBOXES, sandbox(name, namespace=namespace, is_ready=is_ready, **shape)
    )
    api.store.create(PODS, pod(name, of=box, address=address, is_ready=is_ready))
    return box
