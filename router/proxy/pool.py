"""Pool: connections to sandboxes; who may open one, and who may use one again."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

from router.auth.authorizer import Permit, PoolKey
from router.errors import Forbidden, Overloaded, RouterError
from router.proxy.addresses import is_address, leads_to
from router.proxy.budget import Budget
from router.proxy.racing import STAGGER_S, ConnectFailed, first_of
from router.proxy.sandbox_connection import SandboxConnection
from router.proxy.sandbox_states import State
from router.proxy.signs_of_life import Dialled, SignsOfLife
from router.routing.endpoint import Endpoint
from router.routing.names import NameNotResolved, Resolver

logger = logging.getLogger("sandbox_router.proxy")

_FLUSH_S: Final = 30.0
_DECAY: Final = 0.98
"""Of what a pod needed at once, a second later: half of it is forgotten after half a minute."""
_SHED_COUNT: Final = 32
_SETTLE_S: Final = 0.1
"""How long a connection rests after a response that had to be without a body: one sent all the same shows up by then."""

_DEAD_HOST: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN})
_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})

_Dial: TypeAlias = Callable[[], Awaitable[SandboxConnection]]


class Pool:
    """Keeps idle connections per pod and dials new ones. Accepts only a Permit, so what is dialled was authorised."""

    def __init__(
        self,
        *,
        max_idle: int,
        max_idle_total: int,
        idle_timeout_s: float,
        connect_timeout_s: float,
        max_head_bytes: int,
        budget: Budget,
        own_listeners: Callable[[], Iterable[tuple[str, int]]],
        resolver: Resolver,
    ) -> None:
        """`max_idle` idle connections of a pod are always kept, more while its recent use needs them; `max_idle_total` of all pods."""
        self._max_idle = max_idle
        self._max_idle_total = max_idle_total
        self._needs: dict[PoolKey, float] = {}
        """How many connections pods needed at once lately, of those that need more than `max_idle`."""
        self._by_age: dict[SandboxConnection, None] = {}
        """The idle connections, the longest idle first."""
        self._life = SignsOfLife()
        self._idle_timeout_s = idle_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self.max_head_bytes = max_head_bytes
        self._budget = budget
        self._own_listeners = own_listeners
        self._resolver = resolver
        self._idle: dict[PoolKey, list[SandboxConnection]] = {}
        self._open: dict[str, set[SandboxConnection]] = {}
        """Every connection by pod, idle or not, to retire them."""
        self._closing: dict[SandboxConnection, float] = {}
        """Connections whose last bytes are on their way, and until when (monotonic seconds) they may be."""
        self._open_count = 0
        self._next_sweep = 0.0

    def __repr__(self) -> str:
        return f"<Pool idle={len(self._by_age)} open={self._open_count}>"

    @property
    def idle_count(self) -> int:
        return len(self._by_age)

    @property
    def active_count(self) -> int:
        return self._open_count - len(self._by_age)

    def take(self, permit: Permit) -> SandboxConnection | None:
        """Returns an idle connection to the permitted pod, the one used last, or None.

        The kernel is asked first: what a sandbox sent behind its last response would be taken for the next one.
        """
        idle = self._idle.get(permit.key)
        if idle is None:
            return None
        for place in range(len(idle) - 1, -1, -1):
            connection = idle[place]
            if connection.may_trail and time.monotonic() < connection.idle_since + _SETTLE_S:
                continue
            del idle[place]
            del self._by_age[connection]
            if not idle:
                del self._idle[permit.key]
            if not connection.unread(0):
                return connection
            connection.close()
        return None

    def release(self, connection: SandboxConnection) -> None:
        """Takes back a connection whose exchange has ended cleanly on both sides."""
        connection.idle_since = time.monotonic()
        if connection.is_retired or self._max_idle == 0:
            connection.close()
            return
        key = connection.key
        idle = self._idle.get(key)
        if idle is None:
            idle = self._idle[key] = []
        idle.append(connection)
        self._by_age[connection] = None
        if len(idle) > self._max_idle and len(idle) > self._need_of(key):
            idle[0].close()
        if len(self._by_age) > self._max_idle_total:
            self.shed(1)

    def shed(self, count: int) -> int:
        """Closes the connections that have been idle longest. Returns how many there were."""
        oldest = list(itertools.islice(self._by_age, count))
        for connection in oldest:
            connection.close()
        return len(oldest)

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
        if connection in self._by_age:
            del self._by_age[connection]
            idle = self._idle[connection.key]
            idle.remove(connection)
            if not idle:
                del self._idle[connection.key]

    def _need_of(self, key: PoolKey) -> float:
        """Returns how many connections the pod's port needed at once lately."""
        now = len(self._open.get(key[0], ())) - len(self._idle.get(key, ()))
        need = max(float(now), self._needs.get(key, 0.0))
        if need > self._max_idle:
            self._needs[key] = need
        return need

    def retire(self, endpoint: Endpoint) -> None:
        """Closes the idle connections of a pod that left the table; those in use are not used again."""
        pod = endpoint.uid or str(endpoint.ref)
        self._life.forget(pod)
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
        if now < self._next_sweep:
            return
        self._next_sweep = now + (min(1.0, self._idle_timeout_s / 2) or 1.0)
        self._needs = {
            key: need * _DECAY
            for key, need in self._needs.items()
            if need * _DECAY > self._max_idle
        }
        if not self._idle_timeout_s:
            return
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
        """Returns a new connection to the permitted pod: several addresses are tried side by side (RFC 8305).

        `limit_s` bounds the round. Raises ConnectFailed, Forbidden (the router itself), Overloaded (no descriptors).
        """
        try:
            connection = await self._connect(permit, limit_s)
        except ConnectFailed as exc:
            self._life.dialled(permit.key, exc.reason)
            raise
        self._life.dialled(permit.key)
        return connection

    def known_address(self, permit: Permit) -> str | None:
        """Returns the address to reach the permitted pod at, None when it has to be looked up. Raises Forbidden."""
        addresses = permit.endpoint.addresses
        answered = self._life.address_of(permit.key[0])
        address = answered if answered in addresses else next(iter(addresses), "")
        if not is_address(address):
            return None
        self._refuse_itself(address, permit.key[2])
        return address

    async def locate(self, permit: Permit, *, limit_s: float) -> str:
        """Returns the address to reach the permitted pod at, without a connection. Raises ConnectFailed, Forbidden."""
        found = await self._found(permit, time.monotonic() + limit_s)
        self._refuse_itself(found[0][1], permit.key[2])
        return found[0][1]

    def last_seen(self, key: PoolKey) -> Dialled | None:
        """Returns what the last dial of a pod's port came to, None when there was none lately."""
        return self._life.last_seen(key)

    async def _connect(self, permit: Permit, limit_s: float) -> SandboxConnection:
        endpoint = permit.endpoint
        began = time.monotonic()
        end = began + limit_s
        found = await self._found(permit, end)
        dials = [partial(self._dial, endpoint, *where, permit.key[2], end) for where in found]
        try:
            connection = await self._race(permit.key, dials, found[0][1], end)
        except ConnectFailed as exc:
            for name in endpoint.addresses:
                self._resolver.forget(name)
            raise self._judged(permit, exc, began) from exc
        self._life.answered(permit.key, connection.address)
        self._need_of(permit.key)
        return connection

    async def _race(
        self, key: PoolKey, dials: Sequence[_Dial], address: str, end: float
    ) -> SandboxConnection:
        """Returns what the first dial to succeed returns; a pod that has been quiet is asked meanwhile whether its host lives."""
        other = self._life.port_to_ask(key)
        if other is None:
            return await first_of(dials, stagger_s=STAGGER_S, discard=_discard)
        connection: SandboxConnection | None = None
        failure: Exception | None = None
        try:
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(
                    self._life.ask((*key[:2], other), address, self._limit_s(end))
                )
                try:
                    connection = await first_of(dials, stagger_s=STAGGER_S, discard=_discard)
                except (ConnectFailed, RouterError) as exc:
                    failure = exc
                asking.cancel()
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        if failure is not None:
            raise failure
        assert connection is not None
        return connection

    def _judged(self, permit: Permit, failure: ConnectFailed, began: float) -> ConnectFailed:
        """Returns the failure, which takes a host for dead only when no port of it shows life.

        A port whose connections are used again and again is not dialled: its responses since `began` speak for the host.
        """
        if failure.reason == "connect_refused":
            self._life.answered(permit.key)
        elif failure.reason == "connect_timeout" and failure.dead_address:
            self._life.silent(permit.key)
            pod = permit.key[0]
            if self._life.is_alive(pod) or any(
                connection.idle_since > began for connection in self._open.get(pod, ())
            ):
                failure.dead_address = ""
        return failure

    async def _found(self, permit: Permit, end: float) -> list[tuple[str, str]]:
        """Returns each name of the pod with each of its addresses, the one that answered last first. Raises ConnectFailed."""
        found = [
            (name, address)
            for name in permit.endpoint.addresses
            for address in await self._resolve(name, end)
        ]
        if not found:
            raise ConnectFailed("connect_error", "the sandbox has no address")
        answered = self._life.address_of(permit.key[0])
        found.sort(key=lambda where: where[1] != answered)
        return found

    async def _resolve(self, name: str, end: float) -> list[str]:
        if is_address(name):
            return [name]
        try:
            deadline = time.monotonic() + self._limit_s(end)
            return await self._resolver.resolve(name, deadline=deadline)
        except NameNotResolved as exc:
            raise ConnectFailed("resolve_error", str(exc), unresolved=exc.why) from exc

    async def _dial(
        self, endpoint: Endpoint, name: str, address: str, port: int, end: float
    ) -> SandboxConnection:
        self._refuse_itself(address, port)
        host = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        key = (endpoint.uid or str(endpoint.ref), endpoint.addresses, port)
        loop = asyncio.get_running_loop()
        limit_s = self._limit_s(end)
        try:
            async with asyncio.timeout(limit_s):
                _, connection = await self._connected(loop, key, address, host.encode())
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

    async def _connected(
        self, loop: asyncio.AbstractEventLoop, key: PoolKey, address: str, host: bytes
    ) -> tuple[asyncio.BaseTransport, SandboxConnection]:
        """Connects; where descriptors have run out, once more after idle connections were given up."""

        def protocol() -> SandboxConnection:
            return SandboxConnection(self, key, address, host, self._budget)

        try:
            return await loop.create_connection(protocol, address, key[2])
        except OSError as exc:
            if exc.errno not in _OUT_OF_DESCRIPTORS or not self.shed(_SHED_COUNT):
                raise
        await asyncio.sleep(0)  # a closed socket's descriptor is free after a turn of the loop
        return await loop.create_connection(protocol, address, key[2])

    def _limit_s(self, end: float) -> float:
        left = max(0.0, end - time.monotonic())
        return min(self._connect_timeout_s, left) if self._connect_timeout_s else left

    def _refuse_itself(self, address: str, port: int) -> None:
        if self.is_own_listener(address, port):
            raise Forbidden("The router does not connect to itself.", reason=f"{address}:{port}")

    def is_own_listener(self, address: str, port: int) -> bool:
        """Returns True when a connection to address:port would reach a listener of this very process."""
        return leads_to(address, port, self._own_listeners())


def _discard(connection: SandboxConnection) -> None:
    connection.close()


def _failure(exc: OSError, name: str, where: str) -> ConnectFailed:
    if exc.errno in _OUT_OF_DESCRIPTORS:
        raise Overloaded("The router is out of file descriptors.", reason=str(exc)) from exc
    if isinstance(exc, ConnectionRefusedError):
        return ConnectFailed("connect_refused", f"{where} refused the connection")
    if exc.errno in _DEAD_HOST or isinstance(exc, TimeoutError):
        return ConnectFailed("connect_unreachable", f"{where}: {exc.strerror}", dead_address=name)
    return ConnectFailed("connect_error", f"{where}: {exc}")
