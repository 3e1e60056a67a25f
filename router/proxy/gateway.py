"""Gateway: the order of one request. Read this first.

    client_connection.py  has parsed a head
    1 admission.step      which sandbox, who calls, may they    -> Permit, or what has to be waited for
    2 pool.take           an idle connection to that very pod
    3 connection.carry    exchange.py relays the request and its response, tunnel.py what follows a 101

When nothing has to be waited for, all of it happens in begin(), without a task. Else connector.py waits, asks again, and dials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from router.auth.authenticator import CertificateIdentity
from router.auth.authorizer import Permit
from router.errors import Draining, RouterError
from router.proxy.admission import HEALTH_PATH, Admission
from router.proxy.budget import Budget
from router.proxy.caller import Caller
from router.proxy.client_connection import ClientConnection
from router.proxy.connections import Connections
from router.proxy.connector import Connector
from router.proxy.exchange import Exchange
from router.proxy.options import ProxyOptions
from router.proxy.pool import Pool
from router.proxy.ports import Telemetry, Tracer
from router.proxy.request import Pending, error_of, is_for_router, outcome_of_refused
from router.proxy.wire.local_responses import health_answer
from router.proxy.wire.peer import ClientAddresses
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.router_paths import PREFIX
from router.proxy.wire.trace_context import FIRST_BYTE
from router.tasks import TaskSet


class Gateway:
    """Takes each request from its head to a connection to the right pod."""

    def __init__(
        self,
        *,
        admission: Admission,
        connector: Connector,
        connections: Connections,
        pool: Pool,
        telemetry: Telemetry,
        tasks: TaskSet,
        budget: Budget,
        options: ProxyOptions,
        identity_of: Callable[[Any], CertificateIdentity | None],
        tracer: Tracer | None = None,
    ) -> None:
        self.connections = connections
        self._admission = admission
        self._pool = pool
        self._telemetry = telemetry
        self._tasks = tasks
        self._options = options
        self._budget = budget
        self._clients = ClientAddresses(options.trusted_proxies)
        self._identity_of = identity_of
        self._tracer = tracer
        self._names_by_path = bool(admission.path_root)
        self._connector = connector

    def __repr__(self) -> str:
        return f"<Gateway {self.connections!r} {self._pool!r}>"

    def connection(self, *, is_tls: bool) -> ClientConnection:
        """Returns the protocol of a client's connection that was just accepted."""
        return ClientConnection(
            requests=self,
            register=self.connections,
            options=self._options,
            budget=self._budget,
            is_tls=is_tls,
        )

    def caller(self, transport: asyncio.BaseTransport, *, is_tls: bool) -> Caller:
        """Returns what a connection itself says of who calls."""
        name = transport.get_extra_info("peername")
        address = name[0] if isinstance(name, tuple) else "unknown"
        peer = self._clients.peer(address, is_tls=is_tls)
        if not is_tls:
            return Caller(peer)
        return Caller(peer, self._identity_of(transport.get_extra_info("ssl_object")))

    def begin(self, client: ClientConnection, head: RequestHead) -> None:
        """Begins the exchange of a head; every failure becomes its response."""
        exchange = client.exchange = Exchange(
            head,
            client.caller,
            self._clients,
            client=client,
            options=self._options,
            telemetry=self._telemetry,
            reopener=self,
        )
        self._telemetry.request_started()
        target = head.target
        try:
            if target.startswith(HEALTH_PATH) and self._admission.is_health_check(head):
                if self.connections.is_draining:
                    raise Draining
                self._admission.check_table()
                exchange.answered_here(200, health_answer)
                return
            if client.is_extra:
                self.connections.admit(client)
            if self._tracer is not None:
                self._tracer.begin(head, client.peer, exchange.outcome, exchange.started_at)
            decided = self._admission.step(exchange)
            is_own = (self._names_by_path or target.startswith(PREFIX)) and is_for_router(exchange)
            if isinstance(decided, Permit) and not is_own:
                idle = self._pool.take(decided)
                if idle is not None:
                    idle.carry(exchange, is_reused=True)
                    return
            exchange.task = self._tasks.start(self._open(exchange, decided), name="open")
        except Exception as exc:
            if self._connector.is_at_home(exchange, exc):
                exchange.task = self._tasks.start(self._open(exchange, None), name="home")
            else:
                exchange.fail(error_of(exc))

    def reopen(self, exchange: Exchange) -> None:
        """Opens a new connection for an exchange whose reused one had just been closed by the sandbox."""
        exchange.permit = None
        exchange.task = self._tasks.start(self._open(exchange, None), name="open")

    async def _open(self, exchange: Exchange, decided: Permit | Pending | None) -> None:
        try:
            connection, is_reused = await self._connector.open(exchange, decided)
            exchange.task = None
            if exchange.outcome.trace is not None:
                exchange.outcome.trace.begins(FIRST_BYTE)
            connection.carry(exchange, is_reused=is_reused)
        except Exception as exc:
            exchange.task = None
            exchange.fail(error_of(exc))

    def refused(self, client: ClientConnection, error: RouterError, head: bytes | None) -> None:
        """Tells of bytes that made no request."""
        self._telemetry.request_started()
        self._telemetry.request_finished(outcome_of_refused(error, head or b"", client.peer))
