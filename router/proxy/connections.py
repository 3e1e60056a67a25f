"""Connections: every open client connection, who may still come, and how they all end."""

from __future__ import annotations

import time
from typing import Final

from router.auth.authorizer import Permit
from router.errors import Draining, Forbidden
from router.proxy.client_connection import ClientConnection
from router.proxy.closing_connection import State
from router.proxy.deadlines import Deadlines
from router.proxy.ports import CredentialStatus, Telemetry
from router.proxy.wire.websocket import CloseCode
from router.routing.endpoint import Endpoint

_RIGHTS_INTERVAL_S: Final = 1.0
_LOOK_INTERVAL_S: Final = 1.0
_MAX_EXTRA: Final = 64
"""Connections beyond the limit that may turn out to be a load balancer's check."""
_CHECK_S: Final = 0.25
_SEARCH_INTERVAL_S: Final = 0.05
"""A search looks at every connection; floods must not have one for each newcomer."""
_MOMENT_S: Final = 0.5
"""In which a client that has read the end of a stream begins its next request, if it has one."""


class Connections:
    """Counts connections in and out, drains them, and ends the streams whose right has ended."""

    def __init__(
        self,
        *,
        max_connections: int,
        first_request_s: float,
        deadlines: Deadlines,
        telemetry: Telemetry,
        rights: CredentialStatus,
    ) -> None:
        """`max_connections` 0 means no limit; a connection that asks for nothing within `first_request_s` is closed."""
        self.is_draining = False
        """From then on every answer says close."""
        self._max_connections = max_connections
        self._first_request_s = first_request_s
        self._idlest: list[tuple[float, int, ClientConnection]] = []
        """Who was idle when that was looked at last, the first to go at the end."""
        self._next_search = 0.0
        self._extra = 0
        self._deadlines = deadlines
        self._telemetry = telemetry
        self._rights = rights
        self._connections: set[ClientConnection] = set()
        self._may_stay_until: dict[ClientConnection, float] | None = None
        """What is idle while draining, and until when it is left open; None before."""
        self._next_rights_check = 0.0
        self._next_look = 0.0
        deadlines.sweep_with(self.notice_who_left)
        deadlines.sweep_with(self.end_streams_without_right)

    def __repr__(self) -> str:
        return f"<Connections open={len(self._connections)} draining={self.is_draining}>"

    def __len__(self) -> int:
        return len(self._connections)

    def accept(self, client: ClientConnection) -> bool:
        """Returns False when there is no place for another connection: it is told so and closed.

        A full house gives up who has never asked for anything, then who has been idle longest. When all are busy, a newcomer
        may still be a load balancer that checks: it has a moment to say so.
        """
        self._deadlines.watch(client)
        now = time.monotonic()
        client.idle_since = 0.0
        client.deadline_at = now + self._first_request_s
        if (
            self._max_connections
            and len(self._connections) - self._extra >= self._max_connections
            and not self._give_up_one(now)
        ):
            self._telemetry.connection_refused()
            if self._extra >= _MAX_EXTRA:
                return False
            self._extra += 1
            client.is_extra = True
            client.deadline_at = now + _CHECK_S
        self._connections.add(client)
        self._telemetry.connection_opened()
        return True

    def closed(self, client: ClientConnection) -> None:
        """Notes that a connection has ended."""
        self._deadlines.forget(client)
        if client in self._connections:
            self._connections.discard(client)
            self._extra -= client.is_extra
            self._telemetry.connection_closed()

    def _give_up_one(self, now: float) -> bool:
        """Closes the connection that is missed least. Returns False when every one carries something."""
        for search in (False, True):
            if search:
                if now < self._next_search:
                    return False
                self._next_search = now + _SEARCH_INTERVAL_S
                self._idlest = sorted(
                    ((c.idle_since, id(c), c) for c in self._connections if c.state is State.IDLE),
                    reverse=True,
                )
            while self._idlest:
                idle_since, _, connection = self._idlest.pop()
                if connection.idle_since == idle_since and connection.close_if_idle():
                    return True
        return False

    def drain(self) -> int:
        """Ends idle connections. Returns how many still carry something.

        The first call ends all that are idle; one whose stream ends later gets a moment, for its head came too early to say close.
        """
        self.is_draining = True
        now = time.monotonic()
        moment_s = 0.0 if self._may_stay_until is None else _MOMENT_S
        known = self._may_stay_until or {}
        self._may_stay_until = {
            connection: known.get(connection, now + moment_s)
            for connection in self._connections
            if connection.state is State.IDLE
        }
        due = [connection for connection, until in self._may_stay_until.items() if until <= now]
        return len(self._connections) - sum(connection.close_if_idle() for connection in due)

    def end_tunnels(self, reason: str) -> None:
        """Tells every tunnel that the router is going away (WebSockets: 1001, as soon as a frame has ended)."""
        for connection in list(self._connections):
            if connection.tunnel is not None:
                connection.tunnel.close(CloseCode.GOING_AWAY, reason, "tunnel_drained")

    def end_now(self) -> None:
        """Ends every connection, whatever it carries; who still waits for an answer is told to ask elsewhere."""
        self.is_draining = True
        for connection in list(self._connections):
            exchange = connection.exchange
            if exchange is not None and not exchange.response_started:
                exchange.fail(Draining())
                continue
            if exchange is not None and connection.tunnel is None:
                exchange.outcome.code = "stream_drained"
            connection.end_now()

    def under_way(self) -> list[tuple[Endpoint, float | None]]:
        """Returns the sandbox of each request that one was sent; for a tunnel with its `moved_at`, else with None.

        Asked now and then, so that requests don't have to count themselves in and out.
        """
        found: list[tuple[Endpoint, float | None]] = []
        for connection in self._connections:
            exchange, tunnel = connection.exchange, connection.tunnel
            if (
                exchange is not None
                and exchange.sandbox is not None
                and exchange.permit is not None
            ):
                moved_at = None if tunnel is None else tunnel.moved_at
                found.append((exchange.permit.endpoint, moved_at))
        return found

    def notice_who_left(self, now: float) -> None:
        """Ends what clients have left behind while their connections weren't read; looks about once a second.

        Those that are there and read nothing of their last response get a deadline.
        """
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_INTERVAL_S
        for connection in list(self._connections):
            if connection.has_left():
                connection.end_now()
            else:
                connection.limit_unread(now)

    def end_streams_without_right(self, now: float) -> None:
        """Ends streams and tunnels whose caller's credential has expired or was revoked; looks about once a second."""
        if now < self._next_rights_check:
            return
        self._next_rights_check = now + _RIGHTS_INTERVAL_S
        wall = time.time()
        for connection in list(self._connections):
            exchange = connection.exchange
            permit = None if exchange is None else exchange.permit
            if exchange is None or permit is None or self._has_right(permit, wall):
                continue
            exchange.outcome.error_reason = "the right to this stream ended"
            if connection.tunnel is not None:
                connection.tunnel.close(
                    CloseCode.POLICY_VIOLATION, "the right has ended", "tunnel_right_ended"
                )
            else:
                exchange.fail(Forbidden("The right to this stream has ended."))

    def _has_right(self, permit: Permit, wall: float) -> bool:
        ends_at = self._rights.end_of_right(permit.principal)
        if ends_at is not None and ends_at <= wall:
            return False
        return not self._rights.is_revoked(permit.principal, permit.endpoint)
