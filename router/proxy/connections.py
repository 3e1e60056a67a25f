"""Connections: every open client connection, who may still come, and how they all end."""

from __future__ import annotations

import time
from typing import Final

from router.auth.authorizer import Permit
from router.errors import Draining, Forbidden, Overloaded
from router.proxy.client_connection import ClientConnection
from router.proxy.closing_connection import State
from router.proxy.deadlines import Deadlines
from router.proxy.door import Door
from router.proxy.places import Places
from router.proxy.ports import CredentialStatus, Newcomer, Telemetry
from router.proxy.wire.websocket import CloseCode
from router.routing.endpoint import Endpoint

_RIGHTS_INTERVAL_S: Final = 1.0
_LOOK_INTERVAL_S: Final = 1.0
_CHECK_S: Final = 0.25
"""For a load balancer's check that finds no place to be asked."""
_CHECK_HANDSHAKE_S: Final = 1.0
_MOMENT_S: Final = 0.5
"""In which a client that has read the end of a stream begins its next request, if it has one."""


class Connections:
    """Counts connections in and out, drains them, and ends the streams whose right has ended."""

    def __init__(
        self,
        *,
        places: Places,
        first_request_s: float,
        deadlines: Deadlines,
        telemetry: Telemetry,
        rights: CredentialStatus,
    ) -> None:
        """A connection that asks for nothing within `first_request_s` is closed."""
        self.is_draining = False
        """From then on every answer says close."""
        self._deadlines = deadlines
        self._telemetry = telemetry
        self._rights = rights
        self._connections: set[ClientConnection] = set()
        self._handshakes: set[Newcomer] = set()
        """TLS clients whose handshakes are under way; each becomes a connection, or ends."""
        self._door = Door(
            places=places,
            inside=self._connections,
            first_request_s=first_request_s,
            telemetry=telemetry,
        )
        self._may_stay_until: dict[ClientConnection, float] | None = None
        """What is idle while draining, and until when it is left open; None before."""
        self._next_rights_check = 0.0
        self._next_look = 0.0
        deadlines.sweep_with(self._door.give_back)
        deadlines.sweep_with(self.notice_who_left)
        deadlines.sweep_with(self.end_streams_without_right)

    def __repr__(self) -> str:
        return f"<Connections open={len(self)} draining={self.is_draining}>"

    def __len__(self) -> int:
        return len(self._connections) + len(self._handshakes)

    def accept(self, client: ClientConnection) -> None:
        """Takes in a connection; in a full house others give way to it, or it waits outside for a moment."""
        client.idle_since = 0.0
        self._deadlines.watch(client)
        self._connections.add(client)
        self._telemetry.connection_opened()
        self._door.enter(client, time.monotonic(), extra_s=_CHECK_S)

    def closed(self, client: ClientConnection) -> None:
        """Notes that a connection has ended."""
        self._deadlines.forget(client)
        if client in self._connections:
            self._connections.discard(client)
            self._door.left(client)
            self._telemetry.connection_closed()

    def admit(self, client: ClientConnection) -> None:
        """Lets in a connection that waits outside and asks for something. Raises Overloaded when there is still no place."""
        if not self._door.admit(client):
            self._door.turned_away(client)
            raise Overloaded

    def turned_away(self, client: Newcomer) -> None:
        """Notes that who waited outside is told that there is no place."""
        self._door.turned_away(client)

    def handshake_begins(self, handshake: Newcomer) -> None:
        """Takes in a TLS client at once: from the accept on it costs what a connection costs."""
        self._deadlines.watch(handshake)
        self._handshakes.add(handshake)
        self._telemetry.connection_opened()
        self._door.enter(handshake, time.monotonic(), extra_s=_CHECK_HANDSHAKE_S)

    def greeted(self, handshake: Newcomer) -> None:
        """Notes that a TLS client has said its hello: it is silent no more."""
        self._door.greeted(handshake, time.monotonic())

    def handshake_ends(self, handshake: Newcomer) -> None:
        """Notes that a handshake is over; the connection that comes of it is accepted as any other."""
        self._deadlines.forget(handshake)
        if handshake in self._handshakes:
            self._handshakes.discard(handshake)
            self._door.left(handshake)
            self._telemetry.connection_closed()

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
        silent = [handshake for handshake in self._handshakes if not handshake.has_asked]
        left = sum(connection.close_if_idle() for connection in due)
        return len(self) - left - sum(handshake.give_way() for handshake in silent)

    def end_tunnels(self, reason: str) -> None:
        """Tells every tunnel that the router is going away (WebSockets: 1001, as soon as a frame has ended)."""
        for connection in list(self._connections):
            if connection.tunnel is not None:
                connection.tunnel.close(CloseCode.GOING_AWAY, reason, "tunnel_drained")

    def end_now(self) -> None:
        """Ends every connection, whatever it carries; who still waits for an answer is told to ask elsewhere."""
        self.is_draining = True
        for handshake in list(self._handshakes):
            handshake.abort()
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
        self._door.look()

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
