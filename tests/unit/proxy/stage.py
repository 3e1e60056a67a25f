"""A gateway between a client and a sandbox whose bytes the test plays itself: no sockets, no clock, no turns of a loop."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Any

from router.auth.anonymous import AnonymousAuthenticator
from router.auth.authorizer import Permit
from router.auth.grant_authorizer import GrantAuthorizer
from router.auth.policy import CurrentPolicy
from router.proxy.admission import Admission
from router.proxy.budget import Budget
from router.proxy.connections import Connections
from router.proxy.connector import Connector
from router.proxy.deadlines import Deadlines
from router.proxy.exchange import Exchange
from router.proxy.gateway import Gateway
from router.proxy.options import ProxyOptions
from router.proxy.places import Places
from router.proxy.request import Outcome
from router.proxy.sandbox_connection import SandboxConnection
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex
from router.routing.source import IndexSource
from router.routing.target import TargetParser
from router.tasks import TaskSet

BOX = Endpoint(SandboxRef("default", "box"), "pod-1", State.READY, ("10.0.0.5",))
TO_BOX = b"Host: router\r\nX-Sandbox-ID: box\r\n"
GET = b"GET / HTTP/1.1\r\n" + TO_BOX + b"\r\n"


class Wire(asyncio.Transport):
    """A transport that keeps what is written; its other end is the test."""

    def __init__(self, *, peer: str = "198.51.100.9", can_write_eof: bool = True) -> None:
        super().__init__()
        self.sent = b""
        self.is_paused = False
        self.has_ended = False
        """The end was written."""
        self.is_aborted = False
        self.unsent_bytes = 0
        self._peer = peer
        self._is_closing = False
        self._can_write_eof = can_write_eof

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._peer, 40_000) if name == "peername" else default

    def write(self, data: Any) -> None:
        assert not self.has_ended, "nothing can follow the end"
        if not self._is_closing:
            self.sent += bytes(data)

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

    def can_write_eof(self) -> bool:
        return self._can_write_eof

    def write_eof(self) -> None:
        assert self._can_write_eof
        self.has_ended = True

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        assert not self.is_paused, "paused twice"
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused, "resumed twice"
        self.is_paused = False

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = True
        self.is_aborted = True

    def set_write_buffer_limits(self, high: Any = None, low: Any = None) -> None:
        pass

    def taken(self) -> bytes:
        """Returns what was sent since the last call."""
        sent, self.sent = self.sent, b""
        return sent


class Records:
    """A Telemetry that notes everything."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.outcomes: list[Outcome] = []
        self.started = 0

    def request_started(self) -> None:
        self.started += 1

    def request_finished(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda: self.events.append(name)

    @property
    def outcome(self) -> Outcome:
        """The only request so far, ended."""
        (outcome,) = self.outcomes
        assert self.started == 1
        return outcome


class Shelf:
    """In the Pool's place: always has an idle connection, unless it is told otherwise."""

    max_head_bytes = 1024

    def __init__(self) -> None:
        self.has_idle = True
        self.budget = Budget(limit_bytes=2**30)
        self.opened: list[SandboxConnection] = []
        self.taken: list[Permit] = []
        self.dialled: list[Permit] = []
        self.released: list[SandboxConnection] = []
        self.retired: list[Endpoint] = []
        self.connects: list[BaseException | Callable[[], None] | None] = []
        """What the next attempts to connect come to: an error, something to do first, or None; then they succeed."""

    def take(self, permit: Permit) -> SandboxConnection | None:
        self.taken.append(permit)
        return self._open(permit) if self.has_idle else None

    async def connect(self, permit: Permit, *, limit_s: float) -> SandboxConnection:
        assert limit_s > 0
        self.dialled.append(permit)
        await asyncio.sleep(0)
        step = self.connects.pop(0) if self.connects else None
        if isinstance(step, BaseException):
            raise step
        if step is not None:
            step()
        return self._open(permit)

    def release(self, upstream: SandboxConnection) -> None:
        self.released.append(upstream)

    def forget(self, upstream: SandboxConnection) -> None:
        pass

    def closes(self, upstream: SandboxConnection) -> None:
        pass

    def closed(self, upstream: SandboxConnection) -> None:
        pass

    def retire(self, endpoint: Endpoint) -> None:
        self.retired.append(endpoint)

    def sweep(self, now: float) -> None:
        pass

    def _open(self, permit: Permit) -> SandboxConnection:
        address = permit.endpoint.addresses[0]
        host = f"{address}:{permit.port}".encode()
        upstream = SandboxConnection(self, permit.key, address, host, self.budget)
        upstream.connection_made(Wire())
        self.opened.append(upstream)
        return upstream


class Rights:
    """A CredentialStatus that the test changes."""

    def __init__(self) -> None:
        self.ends_at: float | None = None
        self.revoked = False

    def end_of_right(self, principal: Any) -> float | None:
        return self.ends_at

    def is_revoked(self, principal: Any, endpoint: Any) -> bool:
        return self.revoked


class Client:
    """A client's connection, from the client's side."""

    def __init__(self, gateway: Gateway, wire: Wire, *, is_tls: bool = False) -> None:
        self.wire = wire
        self.connection = gateway.connection(is_tls=is_tls)
        self.connection.connection_made(wire)

    @property
    def exchange(self) -> Exchange:
        exchange = self.connection.exchange
        assert exchange is not None
        return exchange

    @property
    def is_closed(self) -> bool:
        """The router has said that it says no more."""
        return self.wire.has_ended or self.wire.is_closing()

    def send(self, data: bytes) -> None:
        assert not self.wire.is_paused, "a client is not read from while it is paused"
        self.connection.data_received(data)

    def received(self) -> bytes:
        """Returns what came since the last call."""
        return self.wire.taken()

    def leave(self) -> None:
        self.connection.connection_lost(None)


class Sandbox:
    """A connection to a sandbox, from the sandbox's side."""

    def __init__(self, upstream: SandboxConnection) -> None:
        self.upstream = upstream
        assert isinstance(upstream.transport, Wire)
        self.wire = upstream.transport

    def received(self) -> bytes:
        return self.wire.taken()

    def send(self, data: bytes) -> None:
        self.upstream.data_received(data)

    def end(self) -> None:
        """Says that no more comes; the transport closes unless the router wants it kept."""
        if not self.upstream.eof_received():
            self.wire.close()

    def break_off(self, error: Exception | None = None) -> None:
        self.upstream.connection_lost(error or ConnectionResetError("reset by peer"))


class Stage:
    """Everything of one gateway. Its table knows `default/box`."""

    def __init__(
        self,
        *,
        limits: ProxyOptions = ProxyOptions(),  # noqa: B008 - it never changes
        authenticator: Any = None,
        authorizer: Any = None,
        source: Any = None,
        max_connections: int = 0,
        places: Places | None = None,
        base_domain: str = "",
        path_prefix: str = "",
        **options: Any,
    ) -> None:
        self.records = Records()
        self.shelf = Shelf()
        self.rights = Rights()
        self.deadlines = Deadlines()
        self.index = EndpointIndex(waiting_room=8, waiting_room_per_namespace=8)
        self.index.upsert(BOX)
        self.tasks = TaskSet()
        self.clients = Connections(
            places=places or Places(limit=max_connections),
            first_request_s=limits.header_timeout_s,
            deadlines=self.deadlines,
            telemetry=self.records,  # type: ignore[arg-type]
            rights=self.rights,
        )
        how = {
            name: options.pop(name)
            for name in ("trusted_proxies", "preserve_host", "origin_policy")
            if name in options
        }
        proxy_options = dataclasses.replace(limits, **how)
        source = source or IndexSource(self.index)
        self.admission = Admission(
            targets=TargetParser(
                base_domain=base_domain,
                path_prefix=path_prefix,
                default_port=8888,
                default_namespace="default",
                proxy_timeout_s=180.0,
            ),
            authenticator=authenticator or AnonymousAuthenticator(),
            source=source,
            authorizer=authorizer or GrantAuthorizer(policy=CurrentPolicy()),
            identity_in_header=options.pop("identity_in_header", lambda value: None),
            options=proxy_options,
        )
        self.deadlines.sweep_with(self.shelf.sweep)
        self.deadlines.sweep_with(self.shelf.budget.look)
        self.gateway = Gateway(
            admission=self.admission,
            connector=Connector(
                admission=self.admission,
                source=source,
                pool=self.shelf,  # type: ignore[arg-type]
                telemetry=self.records,
                options=proxy_options,
                wakes=options.pop("wakes", None),
                own_paths=options.pop("own_paths", None),
            ),
            connections=self.clients,
            pool=self.shelf,  # type: ignore[arg-type]
            telemetry=self.records,
            tasks=self.tasks,
            budget=self.shelf.budget,
            options=proxy_options,
            identity_of=options.pop("identity_of", lambda ssl_object: None),
            **options,
        )

    def client(self, *, peer: str = "198.51.100.9", is_tls: bool = False) -> Client:
        """Returns a client that has just connected."""
        return Client(self.gateway, Wire(peer=peer, can_write_eof=not is_tls), is_tls=is_tls)

    def sandbox(self) -> Sandbox:
        """Returns the sandbox's side of the connection that was opened last."""
        return Sandbox(self.shelf.opened[-1])

    def talk(self, request: bytes = GET) -> tuple[Client, Sandbox]:
        """Returns a client that has sent this, and the sandbox that has taken it."""
        client = self.client()
        client.send(request)
        return client, self.sandbox()

    def tunnel(self, protocol: bytes = b"websocket") -> tuple[Client, Sandbox]:
        """Returns both ends of a tunnel."""
        client, sandbox = self.talk(
            b"GET / HTTP/1.1\r\n%bConnection: upgrade\r\nUpgrade: %b\r\n\r\n" % (TO_BOX, protocol)
        )
        sandbox.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: %b\r\n\r\n"
            % protocol
        )
        sandbox.received()
        assert client.received().startswith(b"HTTP/1.1 101 ")
        return client, sandbox

    async def until(self, condition: Callable[[], object]) -> None:
        """Gives way to tasks until the condition holds."""
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.001)


def later(seconds: float) -> float:
    """Returns a time of the deadlines' clock."""
    return time.monotonic() + seconds
