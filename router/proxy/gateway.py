"""Gateway: the order of one request. Read this first.

    downstream.py parsed the head
    1 target        which sandbox is asked for            TargetParser.parse
    2 authenticate  who calls                             Authenticator.authenticate
    3 find          where that sandbox lives, or wait     EndpointSource.find / wait
    4 authorize     may this caller reach this very pod   Authorizer.authorize -> Permit
    5 connect       an idle connection, or a new one      Pool.take / connect(Permit)
    6 relay         exchange.py, then tunnel.py

When nothing has to be waited for, all of it happens at once in begin(), without a task; otherwise dialling.py awaits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from router.auth.authenticator import (
    Authenticated,
    Authenticator,
    CertificateIdentity,
    Credentials,
)
from router.auth.authorizer import Authorizer, Permit
from router.auth.principal import Principal
from router.errors import (
    BodyTooLarge,
    Draining,
    Forbidden,
    IndexStale,
    MethodNotSupported,
    RouterError,
    SandboxReplaced,
    TooManyRequests,
)
from router.proxy.answers import health_answer
from router.proxy.deadlines import NEVER, Deadlines
from router.proxy.downstream import Downstream
from router.proxy.exchange import Exchange
from router.proxy.forwarding import Network, Peer, client_address, subprotocol_token
from router.proxy.head import RequestHead
from router.proxy.outcome import Outcome, Telemetry
from router.proxy.pool import Pool
from router.proxy.websocket import CloseCode
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.target import Target, TargetParser
from router.tasks import TaskSet

logger = logging.getLogger("sandbox_router.proxy")

_NOT_PROXIED: Final = frozenset({b"CONNECT", b"TRACE"})
_HEALTH_PATH: Final = b"/healthz"


class Waiter(Protocol):
    """A place in the waiting room."""

    def cancel(self) -> None:
        """Gives the place up; may be called any number of times."""


class EndpointSource(Protocol):
    """Where the gateway learns where sandboxes live: the index behind a watch or a file, or DNS."""

    def find(self, target: Target) -> Endpoint | None:
        """Returns the sandbox as far as it is known, at once; None when there is none of that name."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds requests. Durations in seconds, sizes in bytes; NEVER or 0 mean off, as noted."""

    header_timeout_s: float = NEVER
    proxy_timeout_s: float = NEVER
    stream_idle_timeout_s: float = NEVER
    keepalive_timeout_s: float = NEVER
    tunnel_idle_timeout_s: float = NEVER
    tunnel_max_lifetime_s: float = NEVER
    connect_budget_s: float = NEVER
    wait_for_ready_s: float = 0.0
    max_staleness_s: float = 0.0
    max_header_bytes: int = 65_536
    max_request_line_bytes: int = 16_384
    max_body_bytes: int = 0
    max_connections: int = 0
    max_requests_per_sandbox: int = 0
    max_tunnels_per_client: int = 0


class Gateway:
    """Knows every client connection, and takes each request from its head to a connection to the right pod."""

    def __init__(
        self,
        *,
        targets: TargetParser,
        authenticator: Authenticator,
        source: EndpointSource,
        authorizer: Authorizer,
        rights: RightsWatch,
        pool: Pool,
        telemetry: Telemetry,
        deadlines: Deadlines,
        tasks: TaskSet,
        limits: Limits,
        trusted_proxies: Sequence[Network],
        preserve_host: bool,
        origin_policy: str,
        identity_of: Callable[[Any], CertificateIdentity | None],
        identity_in_header: Callable[[bytes], CertificateIdentity | None],
    ) -> None:
        self.targets = targets
        self.authenticator = authenticator
        self.source = source
        self.authorizer = authorizer
        self.pool = pool
        self.telemetry = telemetry
        self.deadlines = deadlines
        self.limits = limits
        self.trusted_proxies = trusted_proxies
        self.preserve_host = preserve_host
        self.origin_policy = origin_policy
        self.identity_of = identity_of
        self._identity_in_header = identity_in_header
        self._rights = rights
        self._tasks = tasks
        # Plain attributes: read for every request or chunk.
        self.header_timeout_s = limits.header_timeout_s
        self.proxy_timeout_s = limits.proxy_timeout_s
        self.stream_idle_timeout_s = limits.stream_idle_timeout_s
        self.keepalive_timeout_s = limits.keepalive_timeout_s
        self.tunnel_idle_timeout_s = limits.tunnel_idle_timeout_s
        self.tunnel_max_lifetime_s = limits.tunnel_max_lifetime_s
        self.max_header_bytes = limits.max_header_bytes
        self.max_request_line_bytes = limits.max_request_line_bytes
        self.max_body_bytes = limits.max_body_bytes
        self.is_draining = False
        self._connections: set[Downstream] = set()
        self._requests_by_sandbox: dict[str, int] = {}
        self._tunnels_by_client: dict[str, int] = {}
        self._next_rights_check = 0.0
        deadlines.sweep_with(pool.sweep)
        deadlines.sweep_with(self.end_streams_without_right)

    def __repr__(self) -> str:
        return f"<Gateway connections={len(self._connections)} draining={self.is_draining}>"

    # --- connections ---

    @property
    def connections(self) -> frozenset[Downstream]:
        return frozenset(self._connections)

    def accept(self, downstream: Downstream) -> bool:
        """Returns False when there is no place for another connection: it is told so and closed."""
        self.deadlines.watch(downstream)
        limit = self.limits.max_connections
        if limit and len(self._connections) >= limit:
            self.telemetry.connection_refused()
            return False
        self._connections.add(downstream)
        self.telemetry.connection_opened()
        return True

    def closed(self, downstream: Downstream) -> None:
        self.deadlines.forget(downstream)
        if downstream in self._connections:
            self._connections.discard(downstream)
            self.telemetry.connection_closed()

    def peer_of(self, address: str, *, is_tls: bool) -> Peer:
        return Peer(address, is_tls=is_tls, trusted=self.trusted_proxies)

    def outcome_of(self, head: RequestHead, downstream: Downstream) -> Outcome:
        """Returns the Outcome that this request begins with."""
        peer = downstream.peer
        outcome = Outcome(
            method=head.method,
            path=head.target,
            client=client_address(head, peer, self.trusted_proxies)
            if peer.is_trusted
            else peer.address,
            started_at=time.time(),
        )
        outcome.traceparent = head.traceparent
        return outcome

    # --- requests ---

    def begin(self, exchange: Exchange) -> None:
        """Finds the exchange its upstream, now or in a task; every failure becomes the exchange's answer."""
        self.telemetry.request_started()
        try:
            self._begin(exchange)
        except RouterError as exc:
            exchange.fail(exc)
        except Exception as exc:
            logger.exception("a request failed for a reason that nobody foresaw")
            exchange.bug(exc)

    def _begin(self, exchange: Exchange) -> None:
        head = exchange.head
        if head.method in _NOT_PROXIED:
            raise MethodNotSupported
        if head.target.startswith(_HEALTH_PATH) and self._answered_health(exchange):
            return
        target = exchange.target = self.targets.parse(head.asked, head.host, head.target)
        outcome = exchange.outcome
        outcome.sandbox = target.ref.name
        outcome.port = target.port
        if target.timeout_s is not None:
            exchange.timeout_s = target.timeout_s
        authenticated = self.authenticator.authenticate(self._credentials(exchange))
        if not isinstance(authenticated, Authenticated):
            self._open_later(exchange, authenticating=authenticated)
            return
        self.authenticated(exchange, authenticated)
        endpoint = self.source.find(target)
        if endpoint is None or endpoint.state is not State.READY:
            self._open_later(exchange)
            return
        permit = self.authorize(exchange, endpoint)
        if not isinstance(permit, Permit):
            self._open_later(exchange, authorizing=permit)
            return
        self.permitted(exchange, permit)
        upstream = self.pool.take(permit, must_be_open=not exchange.is_repeatable)
        if upstream is None:
            self._open_later(exchange)
        else:
            exchange.attach(upstream, is_reused=True)

    def _open_later(
        self,
        exchange: Exchange,
        *,
        authenticating: Awaitable[Authenticated] | None = None,
        authorizing: Awaitable[Permit] | None = None,
    ) -> None:
        from router.proxy.dialling import open_slowly

        exchange.task = self._tasks.start(
            open_slowly(self, exchange, authenticating=authenticating, authorizing=authorizing),
            name="open",
        )

    def dial_again(self, exchange: Exchange) -> None:
        """Opens a new connection for an exchange whose reused one had just been closed by the sandbox."""
        exchange.permit = None
        self._open_later(exchange)

    def authenticated(self, exchange: Exchange, authenticated: Authenticated) -> None:
        """Notes who calls, and refuses what can be refused before anything costly."""
        exchange.authenticated = authenticated
        exchange.outcome.principal = authenticated.principal.subject
        length = exchange.head.content_length
        if self.max_body_bytes and length is not None and length > self.max_body_bytes:
            raise BodyTooLarge(f"The request body is larger than {self.max_body_bytes} bytes.")
        if self.limits.max_staleness_s and self.source.is_stale(self.limits.max_staleness_s):
            raise IndexStale

    def authorize(self, exchange: Exchange, endpoint: Endpoint) -> Permit | Awaitable[Permit]:
        """Returns the Permit for this very pod, or what will become it. Raises Forbidden."""
        target, authenticated = exchange.target, exchange.authenticated
        assert target is not None
        assert authenticated is not None
        return self.authorizer.authorize(
            authenticated.principal,
            endpoint,
            self.source.names(endpoint, target.ref),
            target.port,
            exchange.head.method,
        )

    def permitted(self, exchange: Exchange, permit: Permit) -> None:
        """Notes the pod, and holds the request to what was asked of it. Raises SandboxReplaced, TooManyRequests."""
        exchange.permit = permit
        endpoint = permit.endpoint
        outcome = exchange.outcome
        outcome.authz = "allowed"
        outcome.namespace = endpoint.ref.namespace
        outcome.pod_uid = endpoint.uid
        target = exchange.target
        assert target is not None
        if target.uid and not endpoint.answers_to_uid(target.uid):
            raise SandboxReplaced
        self._take_slots(exchange, endpoint)

    def ended(self, exchange: Exchange) -> None:
        self.telemetry.request_finished(exchange.outcome)

    def refused(self, downstream: Downstream, error: RouterError, head: bytes | None) -> None:
        """Tells of bytes that made no request."""
        parts = (head or b"").partition(b"\r\n")[0].split(b" ", 2)
        outcome = Outcome(
            method=parts[0][:32],
            path=parts[1] if len(parts) > 1 else b"",
            client=downstream.peer.address,
            started_at=time.time(),
        )
        outcome.status = error.status
        outcome.code = error.code
        outcome.error_reason = error.reason or error.detail
        self.telemetry.request_started()
        self.telemetry.request_finished(outcome)

    # --- the parts of a request's beginning ---

    def _answered_health(self, exchange: Exchange) -> bool:
        """Answers a load balancer's check; returns False for a request that means a sandbox's own /healthz."""
        head = exchange.head
        if (
            head.target.partition(b"?")[0] != _HEALTH_PATH
            or head.method not in (b"GET", b"HEAD")
            or self.targets.names_sandbox(head.asked, head.host, head.target)
        ):
            return False
        if self.is_draining:
            raise Draining
        exchange.answered_here(200, health_answer)
        return True

    def _credentials(self, exchange: Exchange) -> Credentials:
        head, downstream = exchange.head, exchange.downstream
        certificate = downstream.certificate
        if head.client_cert is not None and downstream.peer.is_trusted:
            certificate = self._identity_in_header(head.client_cert) or certificate
        return Credentials(
            head.authorization,
            head.sandbox_token,
            subprotocol_token(head.subprotocols),
            certificate,
        )

    def _take_slots(self, exchange: Exchange, endpoint: Endpoint) -> None:
        if exchange.release_slots is not None:
            return
        limits = self.limits
        slots: list[tuple[dict[str, int], str]] = []
        exchange.release_slots = slots if limits.max_requests_per_sandbox else None
        if limits.max_requests_per_sandbox:
            _take_slot(
                slots,
                self._requests_by_sandbox,
                str(endpoint.ref),
                limits.max_requests_per_sandbox,
                "This sandbox has too many open requests (max-requests-per-sandbox).",
            )
        if limits.max_tunnels_per_client and exchange.head.upgrade is not None:
            exchange.release_slots = slots
            _take_slot(
                slots,
                self._tunnels_by_client,
                exchange.outcome.client,
                limits.max_tunnels_per_client,
                "This client has too many open tunnels (max-tunnels-per-client).",
            )

    def release_slots(self, exchange: Exchange) -> None:
        for counts, key in exchange.release_slots or ():
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
        exchange.release_slots = None

    # --- the end of connections ---

    def drain(self) -> int:
        """From now on every answer says close; idle connections end. Returns how many still carry something."""
        self.is_draining = True
        return sum(not connection.close_if_idle() for connection in list(self._connections))

    def end_tunnels(self, reason: str) -> None:
        """Tells every tunnel that the router is going away (WebSockets: 1001, as soon as a frame has ended)."""
        for connection in list(self._connections):
            connection.end_tunnel(CloseCode.GOING_AWAY, reason, "tunnel_drained")

    def end_now(self) -> None:
        """Ends every connection, whatever it carries."""
        for connection in list(self._connections):
            connection.end_now()

    def end_streams_without_right(self, now: float) -> None:
        """Ends streams and tunnels whose caller's credential has expired or was revoked; looks about once a second."""
        if now < self._next_rights_check:
            return
        self._next_rights_check = now + 1.0
        wall = time.time()
        for connection in list(self._connections):
            tunnel, exchange = connection.tunnel, connection.exchange
            if tunnel is not None:
                exchange = tunnel.exchange
            if exchange is None or exchange.permit is None:
                continue
            if self._has_right(exchange.permit, wall):
                continue
            exchange.outcome.error_reason = "the right to this stream ended"
            if tunnel is not None:
                tunnel.close(
                    CloseCode.POLICY_VIOLATION, "the right has ended", "tunnel_right_ended"
                )
            else:
                exchange.fail(Forbidden("The right to this stream has ended."))

    def _has_right(self, permit: Permit, wall: float) -> bool:
        ends_at = self._rights.end_of_right(permit.principal)
        if ends_at is not None and ends_at <= wall:
            return False
        return not self._rights.is_revoked(permit.principal, permit.endpoint)


def _take_slot(
    slots: list[tuple[dict[str, int], str]],
    counts: dict[str, int],
    key: str,
    limit: int,
    detail: str,
) -> None:
    taken = counts.get(key, 0)
    if taken >= limit:
        raise TooManyRequests(detail)
    counts[key] = taken + 1
    slots.append((counts, key))
