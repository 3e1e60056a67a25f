"""Checks: Envoy carries the bytes of a request, and asks here whether it may pass and where to (ext_authz over HTTP).

A check is the request's head without its body. It goes the way of gateway.py as far as the Permit; a yes names the pod's
address, and a no is the very response that the proxy port gives.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from router.auth.authorizer import Permit
from router.errors import BadRequest, Draining, NoSuchRouterPath, RouterError
from router.proxy.budget import Budget
from router.proxy.caller import Caller
from router.proxy.client_connection import ClientConnection
from router.proxy.connector import Connector
from router.proxy.exchange import Exchange
from router.proxy.gateway import Gateway
from router.proxy.options import ProxyOptions
from router.proxy.request import Pending, error_of
from router.proxy.wire.check_answers import probe_answer, yes_answer
from router.proxy.wire.peer import ClientAddresses
from router.proxy.wire.request_head import RequestHead, offered_protocols
from router.proxy.wire.router_paths import PREFIX
from router.tasks import TaskSet

_BY_PATH: Final = (
    "Behind Envoy's check a sandbox is named by its host or by X-Sandbox-ID: nothing would take its name off the path. "
    "Have Envoy send paths under path-prefix to the router's own port."
)


class Checks:
    """Decides about requests that someone else carries, on connections that only Envoy should be able to make."""

    def __init__(
        self,
        *,
        gateway: Gateway,
        connector: Connector,
        tasks: TaskSet,
        budget: Budget,
        options: ProxyOptions,
    ) -> None:
        self._gateway = gateway
        self._admission = connector.admission
        self._connector = connector
        self._pool = connector.pool
        self._telemetry = connector.telemetry
        self._tasks = tasks
        self._budget = budget
        self._options = options
        self._clients = ClientAddresses(options.trusted_proxies)

    def __repr__(self) -> str:
        return f"<Checks {self._connector!r}>"

    def connection(self) -> ClientConnection:
        """Returns the protocol of a connection that was just accepted; it is counted, bounded and drained as clients' are."""
        return ClientConnection(
            requests=self,
            register=self._gateway.connections,
            options=self._options,
            budget=self._budget,
            is_tls=False,
        )

    def caller(self, transport: asyncio.BaseTransport, *, is_tls: bool) -> Caller:
        """Returns what the connection itself says of who calls: Envoy's address, which may be a trusted proxy's."""
        return self._gateway.caller(transport, is_tls=is_tls)

    def begin(self, client: ClientConnection, head: RequestHead) -> None:
        """Decides about a head; every failure becomes its response."""
        # No check has the Connection line of an upgrade, which is between the client and Envoy.
        head.upgrade = offered_protocols(head)
        exchange = client.exchange = Exchange(
            head,
            client.caller,
            self._clients,
            client=client,
            options=self._options,
            telemetry=self._telemetry,
            reopener=self._gateway,
        )
        self._telemetry.request_started()
        admission = self._admission
        try:
            if admission.is_health_check(head):
                if self._gateway.connections.is_draining:
                    raise Draining
                admission.check_table()
                exchange.answered_here(204, probe_answer)
                return
            if client.is_extra:
                self._gateway.connections.admit(client)
            if head.target.startswith(PREFIX):
                raise NoSuchRouterPath
            decided = admission.step(exchange)
            if exchange.target is not None and exchange.target.path_root:
                raise BadRequest(_BY_PATH)
            if isinstance(decided, Permit) and not admission.is_on_its_way(decided.endpoint):
                address = self._pool.known_address(decided)
                if address is not None:
                    self._passes(exchange, address, decided.key[2])
                    return
            exchange.task = self._tasks.start(self._locate(exchange, decided), name="check")
        except Exception as exc:
            exchange.fail(error_of(exc))

    async def _locate(self, exchange: Exchange, decided: Permit | Pending | None) -> None:
        try:
            address, port = await self._connector.locate(exchange, decided)
            exchange.task = None
            self._passes(exchange, address, port)
        except Exception as exc:
            exchange.task = None
            exchange.fail(error_of(exc))

    def _passes(self, exchange: Exchange, address: str, port: int) -> None:
        """Says yes, which is activity of the sandbox: what follows of the request is not seen here."""
        permit, authenticated = exchange.permit, exchange.authenticated
        assert permit is not None
        assert authenticated is not None
        where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        exchange.outcome.used = permit.endpoint
        answer = partial(
            yes_answer,
            exchange.head,
            where.encode("ascii"),
            keep_authorization=not authenticated.consumed_authorization,
            stripped=exchange.stripped(self._options.stripped),
        )
        exchange.answered_here(200, answer)

    def refused(self, client: ClientConnection, error: RouterError, head: bytes | None) -> None:
        """Tells of bytes that made no request."""
        self._gateway.refused(client, error, head)
