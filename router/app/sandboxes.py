"""Builds where sandboxes live: the index and the discovery that keeps it, or DNS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from router.discovery.dns import DnsSource
from router.discovery.file import FileDiscovery
from router.discovery.kubernetes import KubernetesDiscovery
from router.kube.api_client import KubernetesApi
from router.proxy.ports import EndpointSource
from router.routing.elsewhere import ALONE, Elsewhere
from router.routing.endpoint import Endpoint, SandboxRef
from router.routing.handover import HandedTable
from router.routing.index import EndpointIndex
from router.routing.names import AddressesOnly, Resolver
from router.routing.source import IndexSource
from router.settings import Settings
from router.telemetry import readings
from router.telemetry.lookup_numbers import LookupNumbers
from router.telemetry.metrics import Metrics


class Discovery(Protocol):
    """Keeps the table as its source says."""

    async def run(self) -> None:
        """Runs until cancelled."""

    def missing(self) -> list[str]:
        """Returns what keeps the router from being ready."""
        ...


@dataclass(slots=True)
class Sandboxes:
    """The source that the gateway asks, and what fills it."""

    source: EndpointSource
    discovery: Discovery
    index: EndpointIndex | None
    """None with DNS, where names can't be listed."""
    notes: Callable[[], list[str]] = field(default=list)
    """What works less well than it could."""
    notes_about: Callable[[SandboxRef], Sequence[str]] = lambda ref: ()
    """What stands out about one sandbox."""
    refused: Callable[[], Mapping[str, int]] = dict
    """How many watches of each resource the API server refuses."""
    adopt: Callable[[HandedTable], None] | None = None
    """Takes another worker's table for the start; None where each worker has its own at once."""
    watch_restarts: Mapping[tuple[str, str], int] = field(default_factory=Counter)
    file: FileDiscovery | None = None

    def run(self) -> Coroutine[Any, Any, None]:
        return self.discovery.run()

    def current(self, endpoint: Endpoint) -> Endpoint:
        """Returns the sandbox of `endpoint` as it is known now, or `endpoint` when it is gone or another one."""
        found = self.index.find(endpoint.ref) if self.index is not None else None
        return endpoint if found is None or found.uid != endpoint.uid else found

    def is_gone(self, ref: SandboxRef, sandbox_uid: str) -> bool:
        """Returns True when the Sandbox of this name and UID is certainly no more: the whole table knows it no longer."""
        index = self.index
        if index is None or not index.is_complete(ref.namespace):
            return False
        found = index.find(ref)
        return found is None or found.sandbox_uid not in ("", sandbox_uid)

    def known(self) -> Iterator[Endpoint]:
        """Yields every sandbox that can be listed."""
        return iter(self.index if self.index is not None else ())


class ClosableResolver(Resolver, Protocol):
    """A resolver that may have questions under way."""

    async def close(self) -> None:
        """Gives up what is being asked."""


def build_resolver(settings: Settings, *, metrics: Metrics) -> ClosableResolver:
    """Returns what finds the addresses behind host names, and shows its lookups; only a watch knows no names."""
    mode = settings.discovery.discovery
    if mode == "kubernetes":
        return AddressesOnly()
    from router.discovery.name_servers import NameServers  # seven megabytes that a watch can spare
    from router.discovery.resolver import CachingResolver

    lookups = LookupNumbers()
    readings.read_lookups(metrics, lookups)
    return CachingResolver(
        ask=NameServers().ask, allow_loopback=mode == "file", on_lookup=lookups.ended
    )


def build_sandboxes(
    settings: Settings,
    *,
    api: KubernetesApi | None,
    on_retired: Callable[[Endpoint], None],
    waiting_elsewhere: Elsewhere = ALONE,
) -> Sandboxes:
    """Returns the table and its discovery. Raises ValueError for a sandboxes file that can't be used."""
    discovery = settings.discovery
    if discovery.discovery == "dns":
        dns = DnsSource(
            cluster_domain=discovery.cluster_domain,
            trust_pod_ip_header=discovery.trust_pod_ip_header,
        )
        return Sandboxes(source=dns, discovery=dns, index=None)
    index = EndpointIndex(
        waiting_room=discovery.waiting_room,
        waiting_room_per_namespace=discovery.waiting_room_per_namespace,
        waiting_elsewhere=waiting_elsewhere,
        waiting_room_per_caller=discovery.waiting_room_per_caller,
    )
    if discovery.discovery == "file":
        assert discovery.sandboxes_file is not None
        file = FileDiscovery(
            path=discovery.sandboxes_file,
            index=index,
            on_retired=on_retired,
            default_namespace=settings.routing.default_namespace,
        )
        file.load_once()
        return Sandboxes(source=IndexSource(index), discovery=file, index=index, file=file)
    assert api is not None
    watches = KubernetesDiscovery(
        api=api, namespaces=discovery.namespaces, index=index, on_retired=on_retired
    )
    return Sandboxes(
        source=IndexSource(index, is_catching_up=watches.is_catching_up),
        discovery=watches,
        index=index,
        adopt=watches.adopt,
        notes=watches.notes,
        notes_about=watches.notes_about,
        refused=watches.refused,
        watch_restarts=watches.watch_restarts,
    )
