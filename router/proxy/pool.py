"""Pool: connections to sandboxes; who may open one, and who may use one again."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import time
from collections.abc import Callable, Iterable
from typing import Final

from router.auth.authorizer import Permit, PoolKey
from router.errors import Forbidden, Overloaded
from router.proxy.sandbox_connection import SandboxConnection, State
from router.routing.endpoint import Endpoint
from router.routing.names import NameNotResolved, Resolver, Unresolved

logger = logging.getLogger("sandbox_router.proxy")

_FLUSH_S: Final = 30.0

_DEAD_HOST: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN})
_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class ConnectFailed(Exception):
    """One round of dialling an endpoint's addresses failed.

    `reason` is from UPSTREAM_ERRORS. `dead_address` is the address of a host that does not answer at all, "" when the
    host is alive (a refused port) or was not given its time.
    """

    def __init__(
        self,
        reason: str,
        detail: str,
        *,
        dead_address: str = "",
        unresolved: Unresolved | None = None,
    ) -> None:
        self.unresolved = unresolved
        """Why the sandbox's name has no address to dial, where that is what failed."""
        self.reason = reason
        self.detail = detail
        self.dead_address = dead_address
        super().__init__(detail)


class Pool:
    """Keeps idle connections per pod and dials new ones. Accepts only a Permit, so what is dialled was authorised."""

    def __init__(
        self,
        *,
        max_idle: int,
        idle_timeout_s: float,
        connect_timeout_s: float,
        max_head_bytes: int,
        own_listeners: Callable[[], Iterable[tuple[str, int]]],
        resolver: Resolver,
    ) -> None:
        self._max_idle = max_idle
        self._idle_timeout_s = idle_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self.max_head_bytes = max_head_bytes
        self._own_listeners = own_listeners
        self._resolver = resolver
        self._idle: dict[PoolKey, list[SandboxConnection]] = {}
        self._open: dict[str, set[SandboxConnection]] = {}
        """Every connection by pod, idle or not, to retire them."""
        self._closing: dict[SandboxConnection, float] = {}
        """Connections whose last bytes are on their way, and until when (monotonic seconds) they may be."""
        self._idle_count = 0
        self._open_count = 0
        self._next_sweep = 0.0

    def __repr__(self) -> str:
        return f"<Pool idle={self._idle_count} open={self._open_count}>"

    @property
    def idle_count(self) -> int:
        return self._idle_count

    @property
    def active_count(self) -> int:
        return self._open_count - self._idle_count

    def take(self, permit: Permit, *, must_be_open: bool = False) -> SandboxConnection | None:
        """Returns an idle connection to the permitted pod, the one used last, or None.

        `must_be_open` is for requests that can't be sent again: the kernel is asked whether the sandbox is just closing it.
        """
        key = permit.key
        idle = self._idle.get(key)
        while idle:
            connection = idle.pop()
            self._idle_count -= 1
            if not idle:
                del self._idle[key]
            if not connection.is_closed and not (must_be_open and connection.has_unread()):
                return connection
            connection.close()
        return None

    def release(self, connection: SandboxConnection) -> None:
        """Takes back a connection whose exchange has ended cleanly on both sides."""
        connection.idle_since = time.monotonic()
        connection.resume_reading()
        if connection.is_retired or self._max_idle == 0:
            connection.close()
            return
        idle = self._idle.setdefault(connection.key, [])
        idle.append(connection)
        self._idle_count += 1
        if len(idle) > self._max_idle:
            idle[0].close()

    def forget(self, connection: SandboxConnection) -> None:
        """Called by a connection that has closed."""
        self._closing.pop(connection, None)
        connections = self._open.get(connection.key[0])
        if connections is None or connection not in connections:
            return
        connections.discard(connection)
        self._open_count -= 1
        if not connections:
            del self._open[connection.key[0]]
        idle = self._idle.get(connection.key)
        if idle is not None and connection in idle:
            idle.remove(connection)
            self._idle_count -= 1
            if not idle:
                del self._idle[connection.key]

    def retire(self, endpoint: Endpoint) -> None:
        """Closes the idle connections of a pod that left the table; those in use are not used again."""
        pod = endpoint.uid or str(endpoint.ref)
        for connection in list(self._open.get(pod, ())):
            if connection.key[1] == endpoint.addresses:
                connection.is_retired = True
                if connection.state is State.IDLE:
                    connection.close()

    def closes(self, connection: SandboxConnection) -> None:
        """Bounds a close that waits for the sandbox to read: on one that doesn't it would wait for ever."""
        self._closing[connection] = time.monotonic() + _FLUSH_S

    def sweep(self, now: float) -> None:
        """Closes connections that have been idle, or have been closing, for too long; call it about once a second."""
        for connection in [u for u, end in self._closing.items() if end <= now]:
            connection.abort()
        if not self._idle_timeout_s or now < self._next_sweep:
            return
        self._next_sweep = now + min(1.0, self._idle_timeout_s / 2)
        limit = now - self._idle_timeout_s
        for idle in list(self._idle.values()):
            for connection in [u for u in idle if u.idle_since <= limit]:
                connection.close()

    def close(self) -> None:
        """Closes every connection, at once."""
        for connections in list(self._open.values()):
            for connection in list(connections):
                connection.close()
        for connection in list(self._closing):
            connection.abort()

    async def connect(self, permit: Permit, *, limit_s: float) -> SandboxConnection:
        """Returns a new connection to the permitted pod, trying its addresses in order.

        `limit_s` bounds the round. Raises ConnectFailed, Forbidden (the router itself), Overloaded (no descriptors).
        """
        endpoint = permit.endpoint
        port = endpoint.dialled_port(permit.port)
        failure = ConnectFailed("connect_error", "the sandbox has no address")
        end = time.monotonic() + limit_s
        for name in endpoint.addresses:
            for address in await self._resolve(name, end):
                try:
                    return await self._dial(endpoint, name, address, port, end)
                except ConnectFailed as exc:
                    self._resolver.forget(name)
                    if exc.reason != "connect_timeout" or not failure.dead_address:
                        failure = exc
        raise failure

    async def _resolve(self, name: str, end: float) -> list[str]:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            pass
        else:
            return [name]
        try:
            deadline = time.monotonic() + self._limit_s(end)
            return await self._resolver.resolve(name, deadline=deadline)
        except NameNotResolved as exc:
            raise ConnectFailed("resolve_error", str(exc), unresolved=exc.why) from exc

    async def _dial(
        self, endpoint: Endpoint, name: str, address: str, port: int, end: float
    ) -> SandboxConnection:
        if self.is_own_listener(address, port):
            raise Forbidden("The router does not connect to itself.", reason=f"{address}:{port}")
        host = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        key = (endpoint.uid or str(endpoint.ref), endpoint.addresses, port)
        loop = asyncio.get_running_loop()
        limit_s = self._limit_s(end)
        try:
            async with asyncio.timeout(limit_s):
                _, connection = await loop.create_connection(
                    lambda: SandboxConnection(self, key, address, host.encode()), address, port
                )
        except TimeoutError as exc:
            # A client in a hurry must not take the route away from others: only silence for the whole
            # connect-timeout, or for as long as the kernel tries, means a dead host.
            is_dead = bool(exc.errno) or limit_s == self._connect_timeout_s
            raise ConnectFailed(
                "connect_timeout",
                f"{address}:{port} did not answer",
                dead_address=name if is_dead else "",
            ) from exc
        except OSError as exc:
            raise _failure(exc, name, f"{address}:{port}") from exc
        self._open.setdefault(key[0], set()).add(connection)
        self._open_count += 1
        return connection

    def _limit_s(self, end: float) -> float:
        left = max(0.0, end - time.monotonic())
        return min(self._connect_timeout_s, left) if self._connect_timeout_s else left

    def is_own_listener(self, address: str, port: int) -> bool:
        """Returns True when a connection to address:port would reach a listener of this very process."""
        for own_address, own_port in self._own_listeners():
            if port == own_port and (
                _same_address(address, own_address)
                or (_is_wildcard(own_address) and _is_local(address))
                or (_is_wildcard(address))
            ):
                return True
        return False


def _failure(exc: OSError, name: str, where: str) -> ConnectFailed:
    if exc.errno in _OUT_OF_DESCRIPTORS:
        raise Overloaded("The router is out of file descriptors.", reason=str(exc)) from exc
    if isinstance(exc, ConnectionRefusedError):
        return ConnectFailed("connect_refused", f"{where} refused the connection")
    if exc.errno in _DEAD_HOST or isinstance(exc, TimeoutError):
        return ConnectFailed("connect_unreachable", f"{where}: {exc.strerror}", dead_address=name)
    return ConnectFailed("connect_error", f"{where}: {exc}")


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    ip = ipaddress.ip_address(address)
    return ip.ipv4_mapped or ip if isinstance(ip, ipaddress.IPv6Address) else ip


def _same_address(one: str, other: str) -> bool:
    # A zone id makes an address unequal to its plain form, and leads to the same host.
    return _plain(one.partition("%")[0]) == _plain(other.partition("%")[0])


def _is_wildcard(address: str) -> bool:
    return _plain(address).is_unspecified


def _is_local(address: str) -> bool:
    """Returns True when the address is this host's: only then can a socket be bound to it."""
    ip = _plain(address)
    family = socket.AF_INET6 if ip.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(ip), 0))
        except OSError:
            return False
    return True
