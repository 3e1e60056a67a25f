"""DNS discovery: a sandbox is where its Service's name says, without any Kubernetes API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from router.errors import SandboxNotReady
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.generation import Generation
from router.routing.waiting import Waiter

_CACHED_NAMES = 4096


class DnsSource:
    """Stands in for the table where names can't be listed: every valid name leads to `<name>.<namespace>.svc.<cluster-domain>`.

    Nothing is known of state or UID here. Whoever dials resolves the name, and must refuse answers for which
    addresses.is_never_a_sandbox(answer, allow_loopback=False) holds: a name in DNS may point anywhere.
    """

    def __init__(self, *, cluster_domain: str, trust_pod_ip_header: bool) -> None:
        """With `trust_pod_ip_header` a client's X-Sandbox-Pod-IP decides where bytes go: any pod it can name is reached."""
        self._suffix = f"svc.{cluster_domain.strip('.')}"
        self._trust_pod_ip_header = trust_pod_ip_header
        self.names_generation = Generation()
        self._made: dict[SandboxRef, Endpoint] = {}

    def __repr__(self) -> str:
        return f"<DnsSource *.{self._suffix} trust_pod_ip_header={self._trust_pod_ip_header}>"

    async def run(self) -> None:
        """Has nothing to follow: waits until cancelled."""
        await asyncio.Event().wait()

    def missing(self) -> list[str]:
        """Returns what keeps this discovery from being ready: nothing ever does."""
        return []

    def find(self, ref: SandboxRef, pod_ip: str | None = None) -> Endpoint:
        """Returns the endpoint of this name: at `pod_ip` where that is trusted, else where the name leads to.

        Whether it exists shows when it is dialled.
        """
        if self._trust_pod_ip_header and pod_ip is not None:
            return _ready_at(ref, pod_ip)
        endpoint = self._made.get(ref)
        if endpoint is None:
            if len(self._made) >= _CACHED_NAMES:
                self._made.clear()
            endpoint = _ready_at(ref, f"{ref.name}.{ref.namespace}.{self._suffix}")
            self._made[ref] = endpoint
        return endpoint

    def is_complete(self, namespace: str | None = None) -> bool:
        """Returns True: there is no table to wait for."""
        return True

    def is_catching_up(self) -> bool:
        """Returns False: each question is answered as of now."""
        return False

    def names(self, endpoint: Endpoint, asked: SandboxRef) -> tuple[SandboxRef, ...]:
        """Returns every name that leads to `endpoint`: DNS knows no claims."""
        return (endpoint.ref,)

    def is_current(self, endpoint: Endpoint) -> bool:
        """Returns True: no route is ever lost, because none is known."""
        return True

    def wait(self, ref: SandboxRef, wake: Callable[[], None], caller: Hashable = None) -> Waiter:
        """Raises SandboxNotReady: nobody would ever ring."""
        raise SandboxNotReady(reason="DNS tells of no changes")

    def hold_ends_in_s(self, ref: SandboxRef) -> float | None:
        """Returns None: nothing is held back."""
        return None

    def evict(self, endpoint: Endpoint, address: str) -> tuple[Endpoint, ...]:
        """Returns no endpoint: the next request asks DNS again anyway."""
        return ()

    def is_stale(self, max_staleness_s: float) -> bool:
        """Returns False: there is no table that could age."""
        return False


def _ready_at(ref: SandboxRef, address: str) -> Endpoint:
    return Endpoint(ref, "", State.READY, (address,))
