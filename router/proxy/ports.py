"""What each part of the data path needs of the others, as narrow Protocols."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from router.auth.principal import Principal
from router.errors import RouterError
from router.proxy.delivery import Delivery
from router.proxy.request import Outcome
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.websocket import CloseCode
from router.routing.endpoint import Endpoint, SandboxRef
from router.routing.generation import Generation

# --- the two sides of an exchange ------------------------------------------------------------


class Writer(Protocol):
    """A transport, as far as it is written to."""

    def write(self, data: bytes) -> None: ...


class Side(Protocol):
    """A connection, as bytes are relayed to and from it."""

    is_writable: bool
    """False while its write buffer is over the high-water mark."""

    @property
    def transport(self) -> Writer | None:
        """None once it is lost. What every request writes goes to it directly: write() would be one call more."""
        ...

    def write(self, data: bytes) -> None: ...

    def writelines(self, pieces: list[bytes]) -> None: ...

    def write_eof(self) -> bool:
        """Returns True when the peer was told that no more comes, False when that can't be said."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None:
        """Reads on, once it is its turn where memory is short."""
        ...

    def resume_if_wanted(self) -> None:
        """Reads on, unless something else says to wait."""
        ...


class ClientSide(Side, Protocol):
    """A client's connection, as an exchange and a tunnel use it."""

    peer: Peer
    keep_alive: bool
    """Whether the connection carries another request after the present response."""
    deadline_at: float
    """Until when (time.monotonic) something must happen."""

    def may_keep_alive(self, head: RequestHead) -> bool:
        """Returns True when the connection can carry another request after this one's response."""
        ...

    def begin_relay(self) -> None:
        """Hands over what has come of the body and reads on: the request has its connection to the sandbox."""
        ...

    def answer_error(self, error: RouterError, head: RequestHead) -> None:
        """Writes the error response of the exchange, which has ended, and goes on or closes."""
        ...

    def exchange_done(self) -> None:
        """The response is written: on to the next request, or to the end."""
        ...

    def cut(self, delivery: Delivery, *, is_delimited: bool) -> None:
        """Ends the connection, and the delivery, once everything was sent; with a reset unless what is missing shows: `is_delimited`."""
        ...

    def start_tunnel(self, tunnel: ClientRelay) -> None: ...

    def put_off(self, rest: bytes) -> None:
        """Leaves the rest of a read to the loop's next turn, and reads no more until then."""
        ...

    def tunnel_done(self, *, client_ended: bool) -> None:
        """The tunnel has ended: closes once everything is sent."""
        ...


class SandboxSide(Side, Protocol):
    """A connection to a sandbox, as an exchange and a tunnel use it."""

    host: bytes
    """The Host header that requests on this connection get."""
    is_retired: bool
    """True: it finishes what it does and is not used again."""

    def release(self) -> None:
        """Gives it back for other requests: the exchange has ended cleanly on both sides."""
        ...

    def close(self) -> None:
        """Closes at once and tells the exchange nothing more."""
        ...

    def close_after_flush(self) -> None:
        """Closes once everything written has been sent."""
        ...

    def reset(self) -> None:
        """Ends so that the sandbox sees a cut, not an end."""
        ...

    def start_tunnel(self, tunnel: SandboxRelay) -> None: ...


class ClientRelay(Protocol):
    """A tunnel, as the client's connection sees it."""

    deadline_at: float
    moved_at: float
    """When (monotonic seconds) anything crossed last that was no ping or pong."""

    @property
    def sandbox_is_writable(self) -> bool: ...

    def from_client(self, data: bytes) -> None: ...

    def client_eof(self) -> bool:
        """The client sends no more. Returns True to keep its connection for what the sandbox still says."""
        ...

    def client_lost(self) -> None: ...

    def client_is_full(self) -> None: ...

    def client_has_room(self) -> None: ...

    def on_deadline(self, now: float) -> None: ...

    def close(self, code: CloseCode, reason: str, outcome_code: str) -> None: ...

    def give_up(self) -> None:
        """Ends it at once, for others need the memory."""
        ...


class SandboxRelay(Protocol):
    """A tunnel, as the sandbox's connection sees it."""

    @property
    def client_is_writable(self) -> bool: ...

    def from_sandbox(self, data: bytes) -> None: ...

    def sandbox_eof(self) -> bool:
        """The sandbox sends no more. Returns True to keep its connection for what the client still says."""
        ...

    def sandbox_lost(self) -> None: ...

    def sandbox_is_full(self) -> None: ...

    def sandbox_has_room(self) -> None: ...

    def give_up(self) -> None:
        """Ends it at once, for others need the memory."""
        ...


# --- what other rooms give -------------------------------------------------------------------


class Waiter(Protocol):
    """A place in the waiting room."""

    def cancel(self) -> None:
        """Gives the place up; may be called any number of times."""


class EndpointSource(Protocol):
    """Where sandboxes live, as far as it is known: the index behind a watch or a file, or DNS."""

    names_generation: Generation
    """Moves on whenever names() may give another answer than before."""

    def find(self, ref: SandboxRef, pod_ip: str | None = None) -> Endpoint | None:
        """Returns the sandbox as far as it is known, at once; None when there is none of that name.

        `pod_ip` is what the client says of its address: a hint, which only a source that was told to trust it believes.
        """
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

    def wait(self, ref: SandboxRef, wake: Callable[[], None], caller: Hashable = None) -> Waiter:
        """Calls `wake` once when the sandbox changes. Raises SandboxNotReady when too many wait, in all or of this caller."""
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


class WakeFailed(Exception):
    """Why a sandbox could not be woken, in the words of whoever refused: for the log.

    `concerns_all` says that nothing else could be woken at the moment either; `at_least_s` is how long the other side wants
    to be left alone.
    """

    def __init__(self, reason: str, *, concerns_all: bool, at_least_s: float = 0.0) -> None:
        self.reason = reason
        self.concerns_all = concerns_all
        self.at_least_s = at_least_s
        super().__init__(reason)


class Waker(Protocol):
    """Makes a suspended sandbox run again, in whatever way its platform has for that."""

    async def wake(self, endpoint: Endpoint) -> bool:
        """Asks for it, once. Returns True when this call did it, False when it needs no waking any more. Raises WakeFailed.

        That the sandbox is ready is heard from the EndpointSource, like everything about it.
        """
        ...


class WakeTicket(Protocol):
    """One request's interest in a wake."""

    def cancel(self) -> None:
        """Gives it up; the wake goes on."""

    def changed(self) -> None:
        """Says that the sandbox changed, before the request goes on: the wake looks at it now."""


class WakeDesk(Protocol):
    """Where wakes are asked for: one call for each sandbox however many ask, at a bounded rate."""

    def want(
        self, endpoint: Endpoint, *, by: str, until: float, failed: Callable[[RouterError], None]
    ) -> WakeTicket:
        """Begins to wake the sandbox, or joins who does. Raises WakeLimited, WakeUnavailable when it can't be before `until`.

        `failed` is called, at most once and synchronously, when it has become certain that it can't.
        """
        ...


class CredentialStatus(Protocol):
    """Whether the right to a stream that goes on still stands."""

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


class Telemetry(Protocol):
    """What the data path tells about itself. Every call is cheap, synchronous and never raises."""

    def request_started(self) -> None:
        """A request head was accepted (sandbox_router_inflight_requests + 1)."""

    def request_finished(self, outcome: Outcome) -> None:
        """A request or tunnel ended; called exactly once for each request_started."""

    def tunnel_opened(self) -> None:
        """A connection became a tunnel; request_finished with is_tunnel closes it."""

    def upstream_retried(self) -> None:
        """A connect was tried again."""

    def route_evicted(self) -> None:
        """A dead host was taken out of the table."""

    def wake_ended(self, outcome: str, duration_s: float | None) -> None:
        """A wake ended, with one of WAKE_OUTCOMES; how long it took from the first request, None where it did not come about."""

    def connection_opened(self) -> None:
        """A client connected."""

    def connection_closed(self) -> None:
        """A client's connection ended."""

    def connection_refused(self) -> None:
        """A client was turned away by `max-connections`."""


# --- who comes -------------------------------------------------------------------------------


class Newcomer(Protocol):
    """A connection, or a handshake that may become one: it has a place, or waits for one."""

    deadline_at: float
    has_place: bool
    is_extra: bool
    """It came when there was no place: only a load balancer's check is answered."""

    @property
    def has_asked(self) -> bool:
        """Whether it ever sent a request's whole head, or a TLS client's hello."""
        ...

    def is_silent(self) -> bool:
        """Returns True when it carries nothing, and nothing that it says waits to be read."""
        ...

    def give_way(self) -> bool:
        """Closes it when it is silent. Returns True when it is closing."""
        ...

    def turn_away(self) -> None:
        """Closes it, and tells it that there is no place."""

    def abort(self) -> None:
        """Ends it at once."""

    def on_deadline(self, now: float) -> None:
        """Called when `deadline_at` has passed."""
