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
from functools import partial
from typing import Any, Final

from router.auth.authenticator import (
    Authenticated,
    Authenticator,
    CertificateIdentity,
    Credentials,
)
from router.auth.authorizer import Authorizer, Permit
from router.errors import (
    BodyTooLarge,
    Draining,
    IndexStale,
    InternalError,
    MethodNotSupported,
    RouterError,
    SandboxReplaced,
)
from router.proxy.clients import Clients
from router.proxy.deadlines import Deadlines
from router.proxy.dialling import no_table_yet, open_slowly
from router.proxy.downstream import Downstream
from router.proxy.exchange import Exchange
from router.proxy.needs import EndpointSource, Limits, Tracer
from router.proxy.outcome import Outcome, Telemetry
from router.proxy.pool import Pool
from router.proxy.slots import Slots
from router.proxy.upstream import Upstream
from router.proxy.wire.forwarding import subprotocol_token
from router.proxy.wire.local_responses import health_answer, redirect_answer
from router.proxy.wire.navigation import missing_slash
from router.proxy.wire.partial_head import PartialHead, check_sizes
from router.proxy.wire.peer import Network, Peer, client_address
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.stripping import Stripped
from router.routing.elsewhere import ALONE, Elsewhere
from router.routing.endpoint import Endpoint, State
from router.routing.target import TargetParser
from router.tasks import TaskSet

logger = logging.getLogger("sandbox_router.proxy")

_NOT_PROXIED: Final = frozenset({b"CONNECT", b"TRACE"})
_HEALTH_PATH: Final = b"/healthz"


class Gateway:
    """Knows every client connection, and takes each request from its head to a connection to the right pod."""

    def __init__(
        self,
        *,
        targets: TargetParser,
        authenticator: Authenticator,
        source: EndpointSource,
        authorizer: Authorizer,
        clients: Clients,
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
        path_mode: str = "strip",
        stripped: Stripped | None = None,
        tracer: Tracer | None = None,
        requests_elsewhere: Elsewhere = ALONE,
        tunnels_elsewhere: Elsewhere = ALONE,
    ) -> None:
        self.targets = targets
        self.authenticator = authenticator
        self.source = source
        self.authorizer = authorizer
        self.pool = pool
        self.telemetry = telemetry
        self.clients = clients
        self.limits = limits
        self.trusted_proxies = trusted_proxies
        self.preserve_host = preserve_host
        self.origin_policy = origin_policy
        self.path_mode = path_mode
        self.stripped = stripped
        self.identity_of = identity_of
        self._identity_in_header = identity_in_header
        self._tasks = tasks
        self._tracer = tracer
        # Plain attributes: read for every request or chunk.
        self.header_timeout_s = limits.header_timeout_s
        self.proxy_timeout_s = limits.proxy_timeout_s
        self.stream_idle_timeout_s = limits.stream_idle_timeout_s
        self.keepalive_timeout_s = limits.keepalive_timeout_s
        self.tunnel_idle_timeout_s = limits.tunnel_idle_timeout_s
        self.tunnel_max_lifetime_s = limits.tunnel_max_lifetime_s
        self.max_body_bytes = limits.max_body_bytes
        self._requests_by_sandbox = Slots(
            limit=limits.max_requests_per_sandbox,
            refusal="This sandbox has too many open requests (max-requests-per-sandbox).",
            elsewhere=requests_elsewhere,
        )
        self._tunnels_by_client = Slots(
            limit=limits.max_tunnels_per_client,
            refusal="This client has too many open tunnels (max-tunnels-per-client).",
            elsewhere=tunnels_elsewhere,
        )
        self._has_slots = bool(limits.max_requests_per_sandbox or limits.max_tunnels_per_client)
        deadlines.sweep_with(pool.sweep)

    def __repr__(self) -> str:
        return f"<Gateway {self.clients!r} {self.pool!r}>"

    # --- connections ---

    def peer_of(self, address: str, *, is_tls: bool) -> Peer:
        return Peer(address, is_tls=is_tls, trusted=self.trusted_proxies)

    def partial_head(self) -> PartialHead:
        """Returns what collects a head that comes in pieces."""
        return PartialHead(
            max_request_line_bytes=self.limits.max_request_line_bytes,
            max_header_bytes=self.limits.max_header_bytes,
        )

    def check_sizes(self, data: bytes, end: int) -> None:
        """Holds a whole head, data[:end], to the limits. Raises UriTooLong, HeadersTooLarge."""
        check_sizes(
            data,
            end,
            max_request_line_bytes=self.limits.max_request_line_bytes,
            max_header_bytes=self.limits.max_header_bytes,
        )

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
            exchange.fail(InternalError(reason=f"{type(exc).__name__}: {exc}"))

    def _begin(self, exchange: Exchange) -> None:
        head = exchange.head
        if head.target.startswith(_HEALTH_PATH) and self._answered_health(exchange):
            return
        if self._tracer is not None:
            self._tracer.begin(
                head, exchange.downstream.peer, exchange.outcome, exchange.started_at
            )
        if head.method in _NOT_PROXIED:
            raise MethodNotSupported
        target = exchange.target = self.targets.parse(head.asked, head.host, head.target)
        outcome = exchange.outcome
        outcome.asked_namespace = target.ref.namespace
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
        head = exchange.head
        if head.sandbox_token and head.sandbox_token in (head.authorization or b""):
            # The app's own Authorization may pass beside X-Sandbox-Token, but not our token in its place.
            authenticated = authenticated._replace(consumed_authorization=True)
        exchange.authenticated = authenticated
        exchange.outcome.principal = authenticated.principal.subject
        length = head.content_length
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
        if self._has_slots:
            self._take_slots(exchange, endpoint)

    def keeps_path(self, exchange: Exchange) -> bool:
        """Returns True when an app that was named by path sees the whole of it."""
        said = "" if exchange.permit is None else exchange.permit.endpoint.path_mode
        return (said or self.path_mode) == "keep"

    def sent_to_slash(self, exchange: Exchange, upstream: Upstream) -> bool:
        """Sends a browser that opens a sandbox's root without its slash there; returns False for any other request."""
        assert exchange.target is not None
        where = missing_slash(exchange.target, exchange.head, exchange.downstream.peer)
        if where is None:
            return False
        self.pool.release(upstream)
        exchange.answered_here(308, partial(redirect_answer, where))
        return True

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
        if self.clients.is_draining:
            raise Draining
        if not self.source.is_complete():
            raise no_table_yet()
        exchange.answered_here(200, health_answer)
        return True

    def _credentials(self, exchange: Exchange) -> Credentials:
        head, downstream = exchange.head, exchange.downstream
        certificate = downstream.certificate
        if head.client_cert is not None and downstream.peer.is_trusted:
            certificate = self._identity_in_header(head.client_cert)
        return Credentials(
            head.authorization,
            head.sandbox_token,
            subprotocol_token(head.subprotocols),
            certificate,
        )

    def _take_slots(self, exchange: Exchange, endpoint: Endpoint) -> None:
        """Takes the places that the request needs; once, however often it is dialled for."""
        if exchange.slots is not None:
            return
        exchange.slots = []
        slot = self._requests_by_sandbox.take(str(endpoint.ref))
        if slot is not None:
            exchange.slots.append(slot)
        if exchange.head.upgrade is not None:
            slot = self._tunnels_by_client.take(exchange.outcome.client)
            if slot is not None:
                exchange.slots.append(slot)
