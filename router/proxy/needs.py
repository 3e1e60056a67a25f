"""What the gateway needs from other rooms: narrow Protocols, and its limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from router.auth.principal import Principal
from router.proxy.deadlines import NEVER
from router.proxy.outcome import Outcome
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead
from router.routing.endpoint import Endpoint, SandboxRef
from router.routing.target import Target


class Waiter(Protocol):
    """A place in the waiting room."""

    def cancel(self) -> None:
        """Gives the place up; may be called any number of times."""


class EndpointSource(Protocol):
    """Where the gateway learns where sandboxes live: the index behind a watch or a file, or DNS."""

    def find(self, target: Target) -> Endpoint | None:
        """Returns the sandbox as far as it is known, at once; None when there is none of that name."""
        ...

    def is_complete(self, namespace: str | None = None) -> bool:
        """Returns False while the first table of the namespace (None: of all) isn't in: what isn't found may exist."""
        ...

    def is_catching_up(self) -> bool:
        """Returns True while it may not have heard of the latest names: they are worth waiting for."""
        ...

    def names(self, endpoint: Endpoint, asked: SandboxRef) -> tuple[SandboxRef, ...]:
        """Returns every name that leads to the endpoint."""
        ...

    def is_current(self, endpoint: Endpoint) -> bool:
        """Returns True while this very pod is still where its name leads."""
        ...

    def wait(self, ref: SandboxRef, wake: Callable[[], None]) -> Waiter:
        """Calls `wake` once when the sandbox changes. Raises SandboxNotReady when too many wait."""
        ...

    def hold_ends_in_s(self, ref: SandboxRef) -> float | None:
        """Returns when an evicted route comes back by itself; None when it isn't evicted."""
        ...

    def evict(self, endpoint: Endpoint, address: str) -> Sequence[Endpoint]:
        """Takes a dead host's route out. Returns the endpoints that lost theirs."""
        ...

    def is_stale(self, max_staleness_s: float) -> bool:
        """Returns True when what it knows is older than allowed."""
        ...


class RightsWatch(Protocol):
    """Says when a long-lived stream's right ends."""

    def end_of_right(self, principal: Principal) -> float | None:
        """Returns the Unix time at which the principal's streams must end; None for never."""
        ...

    def is_revoked(self, principal: Principal, endpoint: Endpoint) -> bool:
        """Returns True when the caller's credential was revoked after the stream began."""
        ...


class Tracer(Protocol):
    """Gives requests their place in a trace."""

    def begin(self, head: RequestHead, peer: Peer, outcome: Outcome, began_at: float) -> None:
        """Puts the context that the sandbox is sent into `head`, and notes it in `outcome`; never raises.

        `began_at` is the request's beginning in monotonic seconds.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds requests. Durations in seconds, NEVER = off; sizes in bytes and counts, 0 = off where it can be."""

    header_timeout_s: float = NEVER
    proxy_timeout_s: float = NEVER
    stream_idle_timeout_s: float = NEVER
    keepalive_timeout_s: float = NEVER
    tunnel_idle_timeout_s: float = NEVER
    tunnel_max_lifetime_s: float = NEVER
    connect_budget_s: float = NEVER
    wait_for_ready_s: float = 0.0
    unknown_grace_s: float = 0.0
    """How long an unknown sandbox is waited for: a watch may learn of it a moment after its client did; 0 = not at all."""
    max_staleness_s: float = 0.0
    max_header_bytes: int = 65_536
    max_request_line_bytes: int = 16_384
    max_body_bytes: int = 0
    max_connections: int = 0
    max_requests_per_sandbox: int = 0
    max_tunnels_per_client: int = 0
