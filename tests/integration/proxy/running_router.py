"""The data plane in this process, composed as router/app/worker.py does, with its parts in reach of the test."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import orjson

from router.auth.authenticator import Authenticator, CertificateIdentity
from router.auth.authorizer import Authorizer
from router.auth.chain import AuthenticatorChain
from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.mtls import identity_of, parse_xfcc
from router.auth.policy import CurrentPolicy
from router.auth.revocation import Revocation
from router.auth.static import StaticTokenAuthenticator
from router.discovery.name_servers import NameServers
from router.discovery.resolver import CachingResolver
from router.proxy.admission import Admission
from router.proxy.budget import Budget
from router.proxy.client_connection import ClientConnection
from router.proxy.connections import Connections
from router.proxy.connector import Connector
from router.proxy.deadlines import Deadlines
from router.proxy.gateway import Gateway
from router.proxy.options import NEVER, ProxyOptions
from router.proxy.own_paths import OwnPaths
from router.proxy.places import Places
from router.proxy.pool import Pool
from router.proxy.ports import CredentialStatus, EndpointSource
from router.proxy.request import Outcome
from router.proxy.wire.stripping import Stripped
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex
from router.routing.source import IndexSource
from router.routing.target import TargetParser
from router.server.handshakes import TlsAcceptor
from router.server.listeners import Listener, addresses_of, bind
from router.settings import Address
from router.tasks import TaskSet
from router.telemetry.access_log import AccessLog
from router.telemetry.metrics import Metrics
from router.telemetry.recorder import RouterTelemetry
from tests.integration.proxy.clock import Clock
from tests.integration.proxy.messages import TOKEN, Message
from tests.integration.proxy.pod import Pod
from tests.integration.proxy.wire import Wire, dial, settled, until

DEFAULT_PORT = 8888
BOX = SandboxRef("default", "box")
NO_SERIES = 0.0


class Told:
    """The router's own telemetry, which may be compiled and so can't be extended; this also keeps each outcome."""

    def __init__(self, *, metrics: Metrics, access_log: AccessLog) -> None:
        self._telemetry = RouterTelemetry(counters=metrics.counters, access_log=access_log)
        self.outcomes: list[Outcome] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._telemetry, name)

    def request_finished(self, outcome: Outcome) -> None:
        self._telemetry.request_finished(outcome)
        self.outcomes.append(outcome)


@dataclass(frozen=True)
class Plan:
    """How a router differs from the usual: limits that never bite, one static token, header routing alone."""

    limits: ProxyOptions = field(
        default_factory=lambda: ProxyOptions(connect_budget_s=10, wait_for_ready_s=10)
    )
    max_connections: int = 0
    max_handshakes: int = 1000
    max_idle: int = 64
    max_idle_total: int = 4096
    idle_timeout_s: float = 60
    connect_timeout_s: float = 5
    base_domain: str = ""
    path_prefix: str = ""
    waiting_room: int = 64
    waiting_room_per_namespace: int = 64
    preserve_host: bool = False
    origin: str = "rewrite"
    stripped: Stripped | None = None
    path_mode: str = "strip"
    source: EndpointSource | None = None
    """Where sandboxes live; None for the router's own table."""
    trusted_proxies: tuple[str, ...] = ()
    authenticator: Authenticator | None = None
    authorizer: Authorizer | None = None
    rights: CredentialStatus | None = None
    tls: ssl.SSLContext | None = None
    also_own: Sequence[tuple[str, int]] = ()
    host: str = "127.0.0.1"
    resolver: CachingResolver | None = None
    deadline_interval_s: float = 0.01
    max_buffered_bytes: int = 2**28
    own_paths: Callable[[TaskSet], OwnPaths] | None = None


class RunningRouter:
    """A router that serves, and how to talk to it."""

    def __init__(self, plan: Plan, clock: Clock) -> None:
        self.plan = plan
        self.clock = clock
        proxy_timeout_s = plan.limits.proxy_timeout_s
        self.index = EndpointIndex(
            waiting_room=plan.waiting_room,
            waiting_room_per_namespace=plan.waiting_room_per_namespace,
            clock=clock.monotonic,
        )
        self.is_catching_up = False
        """Whether a watch was interrupted just now."""
        self.deadlines = Deadlines(interval_s=plan.deadline_interval_s, clock=clock.monotonic)
        self.tasks = TaskSet()
        self.metrics = Metrics(version="test")
        self._log = BytesIO()
        self._access_log = AccessLog(sink=self._log)
        self.telemetry = Told(metrics=self.metrics, access_log=self._access_log)
        self.policy = CurrentPolicy()
        self.sockets = bind(Address(plan.host, 0), setting="http-bind")
        self.own_listeners: Callable[[], list[tuple[str, int]]] = lambda: [
            *addresses_of(self.sockets),
            *plan.also_own,
        ]
        """What the pool takes for the router itself; it looks each time it dials."""
        self.resolver = plan.resolver or CachingResolver(ask=NameServers().ask, allow_loopback=True)
        self.budget = Budget(limit_bytes=plan.max_buffered_bytes)
        self.pool = Pool(
            max_idle=plan.max_idle,
            max_idle_total=plan.max_idle_total,
            idle_timeout_s=plan.idle_timeout_s,
            connect_timeout_s=plan.connect_timeout_s,
            max_head_bytes=plan.limits.max_header_bytes,
            budget=self.budget,
            own_listeners=lambda: self.own_listeners(),
            resolver=self.resolver,
        )
        self.clients = Connections(
            places=Places(limit=plan.max_connections),
            first_request_s=plan.limits.header_timeout_s,
            deadlines=self.deadlines,
            telemetry=self.telemetry,
            rights=plan.rights
            or Revocation(policy=self.policy, auth_grace_s=60, current=self._current),
        )
        options = dataclasses.replace(
            plan.limits,
            trusted_proxies=tuple(map(ipaddress.ip_network, plan.trusted_proxies)),
            preserve_host=plan.preserve_host,
            origin_policy=plan.origin,
            stripped=plan.stripped,
            path_mode=plan.path_mode,
        )
        source = plan.source or IndexSource(self.index, is_catching_up=lambda: self.is_catching_up)
        self.admission = Admission(
            targets=TargetParser(
                base_domain=plan.base_domain,
                path_prefix=plan.path_prefix,
                default_port=DEFAULT_PORT,
                default_namespace="default",
                proxy_timeout_s=0 if proxy_timeout_s == NEVER else proxy_timeout_s,
            ),
            authenticator=plan.authenticator
            or AuthenticatorChain(
                bearer=[StaticTokenAuthenticator(tokens=[TOKEN.encode()])], certificate=None
            ),
            source=source,
            authorizer=plan.authorizer or GrantAuthorizer(policy=self.policy),
            identity_in_header=parse_xfcc,
            options=options,
        )
        self.deadlines.sweep_with(self.pool.sweep)
        self.deadlines.sweep_with(self.budget.look)
        self.gateway = Gateway(
            admission=self.admission,
            connector=Connector(
                admission=self.admission,
                source=source,
                pool=self.pool,
                telemetry=self.telemetry,
                options=options,
                own_paths=plan.own_paths(self.tasks) if plan.own_paths else None,
            ),
            connections=self.clients,
            pool=self.pool,
            telemetry=self.telemetry,
            tasks=self.tasks,
            budget=self.budget,
            options=options,
            identity_of=_identity_of,
        )
        self.acceptor: TlsAcceptor | None = None
        if plan.tls is not None:
            self.acceptor = TlsAcceptor(
                context=plan.tls,
                register=self.clients,
                protocol=self._connection,
                most=plan.max_handshakes,
            )
            self.deadlines.sweep_with(self.acceptor.sweep)
        self._listener = Listener(
            self.sockets,
            protocol=self._connection if self.acceptor is None else self.acceptor.accept,
        )
        self._dialled: list[Wire] = []
        self.address: tuple[str, int] = addresses_of(self.sockets)[0]

    def _connection(self) -> ClientConnection:
        return self.gateway.connection(is_tls=self.plan.tls is not None)

    # --- sandboxes ---

    def _current(self, endpoint: Endpoint) -> Endpoint:
        found = self.index.find(endpoint.ref)
        return endpoint if found is None or found.uid != endpoint.uid else found

    def knows(
        self,
        pod: Pod | None = None,
        *,
        name: str = "box",
        namespace: str = "default",
        uid: str = "pod-1",
        host: str = "127.0.0.1",
        port: int | None = None,
        state: State = State.READY,
        **facts: Any,
    ) -> Endpoint:
        """Tells the table where a sandbox is, as discovery would; what lost its route is retired. Returns the endpoint."""
        dialled = pod.port if pod is not None else port
        endpoint = Endpoint(
            SandboxRef(namespace, name),
            uid,
            state,
            (host,) if state is State.READY else (),
            ports={DEFAULT_PORT: dialled} if dialled is not None else {},
            **facts,
        )
        for lost in self.index.upsert(endpoint):
            self.pool.retire(lost)
        return endpoint

    def forgets(self, name: str = "box", namespace: str = "default") -> None:
        """Takes a sandbox out of the table, as discovery would."""
        for lost in self.index.remove(SandboxRef(namespace, name)):
            self.pool.retire(lost)

    # --- clients ---

    async def connect(self, **options: Any) -> Wire:
        """Returns a client's connection."""
        wire = await dial(self.address, **options)
        self._dialled.append(wire)
        return wire

    async def ask(self, raw: bytes, **options: Any) -> Message:
        """Returns the answer to one request on a connection of its own."""
        wire = await self.connect(**options)
        wire.send(raw)
        message = await wire.answer(raw.partition(b" ")[0].decode("latin-1"))
        wire.close()
        return message

    def shrink_buffers(self, size: int = 8192) -> None:
        """Makes the kernel hold little for each new connection, so that it is soon the router that has to hold back."""
        for sock in self.sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    # --- time ---

    def pass_time(self, seconds: float) -> None:
        """Moves the proxy's time, and lets everything that is due by then happen."""
        self.clock.added_s += seconds
        self.deadlines.check()

    # --- what it tells ---

    @property
    def outcomes(self) -> list[Outcome]:
        return self.telemetry.outcomes

    async def outcome(self, number: int = 1) -> Outcome:
        """Returns the outcome of the number-th request that ended, as soon as it has."""
        await until(lambda: len(self.outcomes) >= number, what=f"the end of request {number}")
        return self.outcomes[number - 1]

    def metric(self, name: str, *labels: str) -> float:
        """Returns a counter's or gauge's value, or how often a histogram was fed."""
        for found, series in self.metrics.snapshot()[f"sandbox_router_{name}"]:
            if found == labels:
                return sum(series[:-1]) if len(series) > 1 else series[0]
        return NO_SERIES

    async def log_lines(self) -> list[dict[str, Any]]:
        """Returns the access log; nothing is logged any more."""
        await self._access_log.close()
        return [orjson.loads(line) for line in self._log.getvalue().splitlines()]

    # --- life ---

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[RunningRouter]:
        """Serves until the end, by which everything must have ended by itself once its clients have left."""
        await self._listener.start()
        background = TaskSet()
        background.start(self.deadlines.run(), name="deadlines")
        try:
            yield self
            for wire in self._dialled:
                wire.reset()  # a FIN would wait behind what the router doesn't read
            await self.emptied()
        finally:
            self._listener.stop()
            if len(self.clients):
                self.clients.end_now()
                await settled()
            await self.tasks.close()
            if self.acceptor is not None:
                await self.acceptor.close()
            await self._access_log.close()
            self.pool.close()
            await self.resolver.close()
            await background.close()

    async def emptied(self) -> None:
        """Holds the router to having nothing left of clients that have left."""
        left: dict[str, object] = {}

        def is_empty() -> bool:
            left.update(self._left())
            return not any(left.values())

        try:
            await until(is_empty)
        except AssertionError:
            kept = {name: value for name, value in left.items() if value}
            carried = [(c, c.exchange, c.tunnel) for c in self.clients._connections]
            raise AssertionError(f"left behind: {kept}; {carried}; {self.pool._open}") from None

    def _left(self) -> dict[str, object]:
        return {
            "clients": len(self.clients),
            "watched": len(self.deadlines._watched),
            "active upstream connections": self.pool.active_count,
            "tasks": len(self.tasks),
            "waiting": self.index.waiting(),
            "in flight": self.metrics.counters.inflight_requests,
            "open tunnels": self.metrics.counters.open_tunnels,
            "client connections": self.metrics.counters.client_connections,
            "requests by sandbox": self.admission.slots.requests_by_sandbox._taken,
            "connects by sandbox": self.admission.slots.connects_by_sandbox._taken,
            "tunnels by client": self.admission.slots.tunnels_by_client._taken,
        }


def _identity_of(ssl_object: Any) -> CertificateIdentity | None:
    return None if ssl_object is None else identity_of(ssl_object.getpeercert())
