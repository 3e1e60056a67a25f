"""DNS discovery: a sandbox is where its Service's name says, without any Kubernetes API."""

from __future__ import annotations

import asyncio

from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.target import Target

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
        self._made: dict[SandboxRef, Endpoint] = {}

    def __repr__(self) -> str:
        return f"<DnsSource *.{self._suffix} trust_pod_ip_header={self._trust_pod_ip_header}>"

    async def run(self) -> None:
        """Has nothing to follow: waits until cancelled."""
        await asyncio.Event().wait()

    def missing(self) -> list[str]:
        """Returns what keeps this discovery from being ready: nothing ever does."""
        return []

    def find(self, ref: SandboxRef) -> Endpoint:
        """Returns the endpoint by its DNS name; whether it exists shows when it is dialled."""
        endpoint = self._made.get(ref)
        if endpoint is None:
            if len(self._made) >= _CACHED_NAMES:
                self._made.clear()
            endpoint = _ready_at(ref, f"{ref.name}.{ref.namespace}.{self._suffix}")
            self._made[ref] = endpoint
        return endpoint

    def endpoint_for(self, target: Target) -> Endpoint:
        """Returns the endpoint that `target` asks for: at its pod IP where that is trusted, else by name."""
        if self._trust_pod_ip_header and target.pod_ip is not None:
            return _ready_at(target.ref, target.pod_ip)
        return self.find(target.ref)

    def names(self, endpoint: Endpoint, asked: SandboxRef) -> tuple[SandboxRef, ...]:
        """Returns every name that leads to `endpoint`: DNS knows no claims."""
        return (endpoint.ref,)

    def is_current(self, endpoint: Endpoint) -> bool:
        """Returns True: no route is ever lost, because none is known."""
        return True


def _ready_at(ref: SandboxRef, address: str) -> Endpoint:
    return Endpoint(ref, "", State.READY, (address,))
