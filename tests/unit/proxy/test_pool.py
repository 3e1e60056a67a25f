"""Connections to sandboxes, over real sockets: who may open one, and who may use one again."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from router.auth.anonymous import ANONYMOUS
from router.auth.authorizer import Permit
from router.errors import Forbidden, Overloaded
from router.proxy.budget import Budget
from router.proxy.pool import Pool
from router.proxy.racing import ConnectFailed
from router.proxy.request import UPSTREAM_ERRORS
from router.proxy.sandbox_connection import SandboxConnection
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.names import AddressesOnly, NameNotResolved, Resolver, Unresolved

BOX = SandboxRef("default", "box")


class Idle:
    """In an Exchange's place: sends nothing."""

    def attach(self, connection: SandboxConnection, *, is_reused: bool) -> None:
        pass

    def sandbox_left(self, reason: str) -> None:
        pass


class Port:
    """A sandbox's port: accepts connections, and gives the test the far ends."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listening = socket.create_server((address, 0), family=family)
        self._listening.settimeout(10)
        self.number: int = self._listening.getsockname()[1]
        self.far_ends: list[socket.socket] = []

    def accept(self) -> socket.socket:
        far, _ = self._listening.accept()
        self.far_ends.append(far)
        return far

    def close(self) -> None:
        for sock in (self._listening, *self.far_ends):
            sock.close()


@pytest.fixture
def port() -> Iterator[Port]:
    port = Port()
    yield port
    port.close()


@pytest.fixture
def closed_port(port: Port) -> int:
    port.close()
    return port.number


Make = Callable[..., Pool]


@pytest.fixture
async def make_pool() -> AsyncIterator[Make]:
    """Returns a maker of pools, which are closed with everything they hold."""
    pools: list[Pool] = []

    def make(
        *,
        max_idle: int = 8,
        max_idle_total: int = 100,
        idle_timeout_s: float = 60.0,
        connect_timeout_s: float = 5.0,
        own: tuple[tuple[str, int], ...] = (),
        resolver: Resolver | None = None,
    ) -> Pool:
        pool = Pool(
            max_idle=max_idle,
            max_idle_total=max_idle_total,
            idle_timeout_s=idle_timeout_s,
            connect_timeout_s=connect_timeout_s,
            max_head_bytes=65_536,
            budget=Budget(limit_bytes=2**30),
            own_listeners=lambda: own,
            resolver=resolver or AddressesOnly(),
        )
        pools.append(pool)
        return pool

    yield make
    for pool in pools:
        pool.close()
        assert (pool.idle_count, pool.active_count) == (0, 0)
    await turns()


async def turns() -> None:
    """Lets the loop close what was aborted."""
    for _ in range(3):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def permit(
    number: int,
    *,
    uid: str = "pod-1",
    addresses: tuple[str, ...] = ("127.0.0.1",),
    ref: SandboxRef = BOX,
    ports: dict[int, int] | None = None,
) -> Permit:
    endpoint = Endpoint(ref, uid, State.READY, addresses, ports=ports or {})
    return Permit(ANONYMOUS, endpoint, number)


async def dial(pool: Pool, to: Permit) -> SandboxConnection:
    return await pool.connect(to, limit_s=10.0)


# --- using one again ------------------------------------------------------------------------


async def test_a_connection_is_dialled_and_used_again(make_pool: Make, port: Port) -> None:
    pool = make_pool()
    to = permit(port.number)
    assert pool.take(to) is None
    upstream = await dial(pool, to)
    assert (pool.active_count, pool.idle_count) == (1, 0)
    pool.release(upstream)
    assert (pool.active_count, pool.idle_count) == (0, 1)
    assert pool.take(to) is upstream
    assert pool.take(to) is None
    upstream.write(b"hello")
    far = port.accept()
    far.settimeout(10)
    assert await asyncio.to_thread(far.recv, 10) == b"hello"


async def test_the_one_used_last_is_used_first(make_pool: Make, port: Port) -> None:
    pool = make_pool()
    to = permit(port.number)
    first, second = await dial(pool, to), await dial(pool, to)
    pool.release(first)
    pool.release(second)
    assert pool.take(to) is second
    assert pool.take(to) is first


@pytest.mark.parametrize(
    "other",
    [
        {"uid": "pod-2"},
        {"addresses": ("127.0.0.1", "127.0.0.2")},
        {"uid": ""},
    ],
)
async def test_another_pod_never_gets_a_connection_although_its_address_is_the_same(
    make_pool: Make, port: Port, other: dict[str, Any]
) -> None:
    pool = make_pool()
    pool.release(await dial(pool, permit(port.number)))
    assert pool.take(permit(port.number, **other)) is None
    assert pool.idle_count == 1


async def test_without_uids_the_name_is_the_key(make_pool: Make, port: Port) -> None:
    pool = make_pool()
    to = permit(port.number, uid="")
    pool.release(await dial(pool, to))
    other = SandboxRef("default", "other")
    assert pool.take(permit(port.number, uid="", ref=other)) is None
    assert pool.take(to) is not None


async def test_the_port_dialled_is_the_key_not_the_port_asked_for(
    make_pool: Make, port: Port
) -> None:
    pool = make_pool()
    mapped = {8888: port.number, 8889: port.number}
    upstream = await dial(pool, permit(8888, ports=mapped))
    assert upstream.key == permit(8888, ports=mapped).key
    assert upstream.host == b"127.0.0.1:%d" % port.number
    pool.release(upstream)
    assert pool.take(permit(8889, ports=mapped)) is upstream
    assert pool.take(permit(8888)) is None


async def test_no_more_than_so_many_are_kept_and_the_oldest_goes(
    make_pool: Make, port: Port
) -> None:
    pool = make_pool(max_idle=2)
    to = permit(port.number)
    made = [await dial(pool, to) for _ in range(3)]
    pool._needs.clear()  # long ago
    for upstream in made:
        pool.release(upstream)
    assert pool.idle_count == 2
    assert made[0].is_closed
    assert [pool.take(to), pool.take(to), pool.take(to)] == [made[2], made[1], None]


async def test_none_are_kept_when_none_may_be(make_pool: Make, port: Port) -> None:
    pool = make_pool(max_idle=0)
    upstream = await dial(pool, permit(port.number))
    pool.release(upstream)
    assert upstream.is_closed
    assert (pool.idle_count, pool.active_count) == (0, 0)


async def test_a_paused_connection_reads_again_when_it_is_idle(make_pool: Make, port: Port) -> None:
    pool = make_pool()
    upstream = await dial(pool, permit(port.number))
    upstream.carry(SimpleNamespace(attach=lambda *_, **__: None), is_reused=False)  # type: ignore[arg-type]
    upstream.pause_reading()
    upstream.release()
    port.accept().close()
    await until(lambda: upstream.is_closed)
    assert pool.idle_count == 0


# --- what the sandbox does meanwhile ----------------------------------------------------------


@pytest.mark.parametrize("act", [socket.socket.close, lambda far: far.send(b"unasked")])
async def test_an_idle_connection_that_the_sandbox_ends_or_speaks_on_is_gone(
    make_pool: Make, port: Port, act: Callable[[socket.socket], object]
) -> None:
    pool = make_pool()
    to = permit(port.number)
    pool.release(await dial(pool, to))
    act(port.accept())
    await until(lambda: pool.idle_count == 0)
    assert pool.take(to) is None
    assert pool.active_count == 0


@pytest.mark.parametrize("act", [socket.socket.close, lambda far: far.send(b"HTTP/1.1 200 OK")])
async def test_the_kernel_is_asked_before_a_connection_is_used_again(
    make_pool: Make, port: Port, act: Callable[[socket.socket], object]
) -> None:
    pool = make_pool()
    to = permit(port.number)
    older, newer = await dial(pool, to), await dial(pool, to)
    far = {end.getpeername()[1]: end for end in (port.accept(), port.accept())}
    assert newer.transport is not None
    name_of_newer = newer.transport.get_extra_info("sockname")[1]
    pool.release(older)
    pool.release(newer)
    act(far[name_of_newer])  # the loop has had no turn to notice
    assert pool.take(to) is older
    assert newer.is_closed


async def test_a_connection_rests_after_a_response_that_had_to_be_without_a_body(
    make_pool: Make, port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_pool()
    to = permit(port.number)
    older, newer = await dial(pool, to), await dial(pool, to)
    now = time.monotonic()
    monkeypatch.setattr("router.proxy.pool.time.monotonic", lambda: now)
    pool.release(older)
    newer.may_trail = True
    pool.release(newer)
    assert pool.take(to) is older
    assert pool.take(to) is None
    assert pool.idle_count == 1
    now += 1.0
    assert pool.take(to) is newer


# --- how many are kept ------------------------------------------------------------------------


async def test_a_pod_keeps_as_many_as_it_needed_at_once_lately(make_pool: Make, port: Port) -> None:
    pool = make_pool(max_idle=2)
    to = permit(port.number)
    made = [await dial(pool, to) for _ in range(6)]
    for upstream in made:
        pool.release(upstream)
    assert pool.idle_count == 6, "all six were in use at once"


async def test_what_a_pod_needed_is_forgotten_with_time(make_pool: Make, port: Port) -> None:
    pool = make_pool(max_idle=2)
    to = permit(port.number)
    made = [await dial(pool, to) for _ in range(6)]
    now = time.monotonic()
    for second in range(200):
        pool.sweep(now + second * 1.01)
    for upstream in made:
        pool.release(upstream)
    assert pool.idle_count < 6


async def test_over_all_the_longest_idle_go_first(make_pool: Make, port: Port) -> None:
    pool = make_pool(max_idle_total=2)
    made = [await dial(pool, permit(port.number, uid=f"pod-{n}")) for n in range(3)]
    for upstream in made:
        pool.release(upstream)
    assert [upstream.is_closed for upstream in made] == [True, False, False]
    assert pool.idle_count == 2


async def test_without_descriptors_idle_connections_give_theirs(
    make_pool: Make, port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_pool()
    idle = await dial(pool, permit(port.number, uid="pod-1"))
    pool.release(idle)
    loop = asyncio.get_running_loop()
    connect, failures = loop.create_connection, [OSError(errno.EMFILE, "too many open files")]

    async def scarce(*args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop()
        return await connect(*args, **kwargs)

    monkeypatch.setattr(loop, "create_connection", scarce)
    assert (await dial(pool, permit(port.number, uid="pod-2"))).transport is not None
    assert idle.is_closed


# --- a dead host and a silent port ------------------------------------------------------------


async def test_silence_on_one_port_takes_nothing_from_a_host_that_lives(
    make_pool: Make, port: Port, silent_port: int
) -> None:
    pool = make_pool(connect_timeout_s=0.05)
    (await dial(pool, permit(port.number))).close()
    error = await failure(pool, permit(silent_port))
    assert (error.reason, error.dead_address) == ("connect_timeout", "")


@pytest.mark.parametrize("answers_meanwhile", [True, False])
async def test_a_response_on_an_old_connection_meanwhile_shows_that_the_host_lives(
    make_pool: Make, port: Port, silent_port: int, *, answers_meanwhile: bool
) -> None:
    pool = make_pool(connect_timeout_s=0.05)
    old = await dial(pool, permit(port.number))
    pool._life.forget("pod-1")  # it was dialled long ago
    old.idle_since = time.monotonic() + (60.0 if answers_meanwhile else -60.0)
    with pytest.raises(ConnectFailed) as caught:
        await pool.connect(permit(silent_port), limit_s=10.0)
    assert bool(caught.value.dead_address) is not answers_meanwhile


def was_quiet(pool: Pool) -> None:
    """Lets everything that was seen of the pod be of an hour ago."""
    seen = pool._life._ports["pod-1"]
    for number in seen:
        seen[number] -= 3600.0


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_quiet_pod_whose_other_port_still_answers_keeps_its_route(
    make_pool: Make, port: Port, silent_port: int, *, refuses: bool
) -> None:
    pool = make_pool(connect_timeout_s=0.4)
    (await dial(pool, permit(port.number))).close()
    was_quiet(pool)
    if refuses:
        port.close()
    error = await failure(pool, permit(silent_port))
    assert (error.reason, error.dead_address) == ("connect_timeout", "")
    assert pool._life.is_alive("pod-1")


async def test_a_quiet_pod_that_is_silent_on_its_other_port_too_is_dead(
    make_pool: Make, port: Port, silent_port: int
) -> None:
    pool = make_pool(connect_timeout_s=0.4)
    pool._life.answered(permit(silent_port).key)
    (await dial(pool, permit(port.number))).close()
    was_quiet(pool)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        number = deaf.getsockname()[1]
        ends = [socket.socket() for _ in range(4)]
        for end in ends:
            end.setblocking(False)
            end.connect_ex(("127.0.0.1", number))
        port.close()
        pool._life.silent(permit(port.number).key)
        error = await failure(pool, permit(number))
        for end in ends:
            end.close()
    assert (error.reason, error.dead_address) == ("connect_timeout", "127.0.0.1")


async def test_another_port_is_not_asked_while_a_dial_takes_no_longer_than_usual(
    make_pool: Make, port: Port
) -> None:
    pool = make_pool()
    other = Port()
    (await dial(pool, permit(other.number))).close()
    other.accept()
    was_quiet(pool)
    (await dial(pool, permit(port.number))).close()
    other._listening.settimeout(0)
    with pytest.raises(BlockingIOError):
        other.accept()
    other.close()


async def test_a_refused_port_says_by_itself_that_the_host_lives(
    make_pool: Make, port: Port
) -> None:
    pool = make_pool()
    (await dial(pool, permit(port.number))).close()
    was_quiet(pool)
    closed = Port()
    closed.close()
    error = await failure(pool, permit(closed.number))
    assert (error.reason, error.dead_address) == ("connect_refused", "")


async def test_a_dial_that_is_given_up_asks_nobody(
    make_pool: Make, port: Port, silent_port: int
) -> None:
    pool = make_pool(connect_timeout_s=60.0)
    (await dial(pool, permit(port.number))).close()
    was_quiet(pool)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await pool.connect(permit(silent_port), limit_s=60.0)
    assert not pool._life.is_alive("pod-1")


async def test_a_dead_first_address_costs_a_moment_and_is_tried_last_from_then_on(
    make_pool: Make, port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.proxy.pool.STAGGER_S", 0.01)
    pool = make_pool()
    dialled: list[str] = []
    dialling = pool._dial

    async def first_is_silent(endpoint: Any, name: str, address: str, *rest: Any) -> Any:
        dialled.append(address)
        if address == "127.0.0.2":
            await asyncio.sleep(60)
        return await dialling(endpoint, name, address, *rest)

    monkeypatch.setattr(pool, "_dial", first_is_silent)
    to = permit(port.number, addresses=("127.0.0.2", "127.0.0.1"))
    for _ in range(2):
        assert (await dial(pool, to)).address == "127.0.0.1"
    assert dialled == ["127.0.0.2", "127.0.0.1", "127.0.0.1"]


# --- a pod that leaves ------------------------------------------------------------------------


async def test_when_a_pod_leaves_its_idle_connections_close_and_busy_ones_are_not_used_again(
    make_pool: Make, port: Port
) -> None:
    pool = make_pool()
    to = permit(port.number)
    idle, busy = await dial(pool, to), await dial(pool, to)
    pool.release(idle)
    busy.carry(Idle(), is_reused=False)  # type: ignore[arg-type]
    pool.retire(to.endpoint)
    assert (idle.is_closed, busy.is_closed) == (True, False)
    assert pool.idle_count == 0
    busy.release()
    assert busy.is_closed
    assert pool.take(to) is None


async def test_a_pod_that_leaves_takes_no_other_with_it(make_pool: Make, port: Port) -> None:
    pool = make_pool()
    stays = permit(port.number, uid="pod-2")
    moved = permit(port.number, uid="pod-1", addresses=("127.0.0.1", "::1"))
    kept = [await dial(pool, stays), await dial(pool, moved)]
    for upstream in kept:
        pool.release(upstream)
    pool.retire(permit(port.number, uid="pod-1").endpoint)
    pool.retire(permit(port.number, uid="pod-9").endpoint)
    assert not any(upstream.is_closed for upstream in kept)


# --- idle for too long ------------------------------------------------------------------------


async def test_only_connections_idle_for_too_long_are_swept(make_pool: Make, port: Port) -> None:
    pool = make_pool(idle_timeout_s=60.0)
    old, young, busy = [await dial(pool, permit(port.number)) for _ in range(3)]
    pool.release(old)
    pool.release(young)
    now = time.monotonic()
    old.idle_since = now - 61.0
    busy.idle_since = now - 61.0
    pool.sweep(now)
    assert [upstream.is_closed for upstream in (old, young, busy)] == [True, False, False]
    assert pool.idle_count == 1


async def test_nothing_is_swept_when_idleness_has_no_limit(make_pool: Make, port: Port) -> None:
    pool = make_pool(idle_timeout_s=0.0)
    upstream = await dial(pool, permit(port.number))
    pool.release(upstream)
    pool.sweep(time.monotonic() + 1e9)
    assert not upstream.is_closed


async def test_a_close_that_waits_on_a_sandbox_that_does_not_read_is_bounded(
    make_pool: Make, port: Port
) -> None:
    pool = make_pool()
    upstream = await dial(pool, permit(port.number))
    upstream.write(b"x" * 50_000_000)
    upstream.close_after_flush()
    assert pool.active_count == 0
    await turns()
    assert upstream.transport is not None, "its bytes are still on their way"
    pool.sweep(time.monotonic() + 1000.0)
    await until(lambda: upstream.transport is None)


async def test_closing_the_pool_closes_everything(make_pool: Make, port: Port) -> None:
    pool = make_pool()
    made = [await dial(pool, permit(port.number, uid=f"pod-{n}")) for n in range(3)]
    pool.release(made[0])
    made[1].carry(Idle(), is_reused=False)  # type: ignore[arg-type]
    pool.close()
    assert all(upstream.is_closed for upstream in made)
    assert repr(pool) == "<Pool idle=0 open=0>"


# --- failures to connect ----------------------------------------------------------------------


async def failure(pool: Pool, to: Permit, *, limit_s: float = 10.0) -> ConnectFailed:
    with pytest.raises(ConnectFailed) as caught:
        await pool.connect(to, limit_s=limit_s)
    assert caught.value.reason in UPSTREAM_ERRORS
    assert (pool.idle_count, pool.active_count) == (0, 0)
    return caught.value


async def test_a_refused_port_is_no_dead_host(make_pool: Make, closed_port: int) -> None:
    error = await failure(make_pool(), permit(closed_port))
    assert (error.reason, error.dead_address) == ("connect_refused", "")
    assert f"127.0.0.1:{closed_port}" in error.detail


async def test_what_the_last_dial_of_a_port_came_to_can_be_asked(
    make_pool: Make, port: Port
) -> None:
    pool, to = make_pool(), permit(port.number)
    assert pool.last_seen(to.key) is None
    (await dial(pool, to)).close()
    seen = pool.last_seen(to.key)
    assert seen is not None
    assert (seen.failure, seen.ago_s < 60.0) == ("", True)
    port.close()
    await failure(pool, to)
    seen = pool.last_seen(to.key)
    assert seen is not None
    assert seen.failure == "connect_refused"


async def test_an_endpoint_without_address_cannot_be_dialled(make_pool: Make) -> None:
    error = await failure(make_pool(), permit(80, addresses=()))
    assert (error.reason, error.dead_address) == ("connect_error", "")


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port whose queue is full: Linux leaves further connections without an answer."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


async def test_a_host_that_does_not_answer_is_dead(make_pool: Make, silent_port: int) -> None:
    error = await failure(make_pool(connect_timeout_s=0.05), permit(silent_port))
    assert (error.reason, error.dead_address) == ("connect_timeout", "127.0.0.1")


@pytest.mark.parametrize("connect_timeout_s", [5.0, 0.0])
async def test_a_client_in_a_hurry_declares_nobody_dead(
    make_pool: Make, silent_port: int, connect_timeout_s: float
) -> None:
    pool = make_pool(connect_timeout_s=connect_timeout_s)
    error = await failure(pool, permit(silent_port), limit_s=0.05)
    assert (error.reason, error.dead_address) == ("connect_timeout", "")


async def test_a_host_that_is_silent_on_all_its_addresses_is_dead(
    make_pool: Make, silent_port: int
) -> None:
    pool = make_pool(connect_timeout_s=0.05)
    to = permit(silent_port, addresses=("127.0.0.1", "127.0.0.1"))
    error = await failure(pool, to, limit_s=10.0)
    assert (error.reason, error.dead_address) == ("connect_timeout", "127.0.0.1")


Failing = Callable[[OSError], None]


@pytest.fixture
def connecting_fails(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Makes the kernel's answer to a connect this error: not every one can be had on loopback."""

    def fail(error: OSError) -> None:
        async def create_connection(*args: Any, **kwargs: Any) -> Any:
            raise error

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "create_connection", create_connection)

    return fail


@pytest.mark.parametrize(
    ("number", "reason", "is_dead"),
    [
        (errno.EHOSTUNREACH, "connect_unreachable", True),
        (errno.ENETUNREACH, "connect_unreachable", True),
        (errno.EHOSTDOWN, "connect_unreachable", True),
        (errno.ETIMEDOUT, "connect_timeout", True),
        (errno.ECONNREFUSED, "connect_refused", False),
        (errno.ECONNRESET, "connect_error", False),
        (errno.EADDRNOTAVAIL, "connect_error", False),
        (errno.EPERM, "connect_error", False),
    ],
)
async def test_the_kernels_answer_says_whether_the_host_is_dead(
    make_pool: Make, connecting_fails: Failing, number: int, reason: str, is_dead: bool
) -> None:
    connecting_fails(OSError(number, "as the kernel says"))
    error = await failure(make_pool(), permit(80))
    assert (error.reason, bool(error.dead_address)) == (reason, is_dead)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_running_out_of_descriptors_is_the_routers_own_fault(
    make_pool: Make, connecting_fails: Failing, number: int
) -> None:
    connecting_fails(OSError(number, "Too many open files"))
    with pytest.raises(Overloaded, match="descriptors"):
        await dial(make_pool(), permit(80))


# --- several addresses, names -----------------------------------------------------------------


async def test_addresses_are_tried_in_order(make_pool: Make) -> None:
    port = Port("127.0.0.2")
    with contextlib.closing(port):
        pool = make_pool()
        to = permit(port.number, addresses=("127.0.0.1", "127.0.0.2", "127.0.0.3"))
        upstream = await dial(pool, to)
        assert upstream.address == "127.0.0.2"
        assert upstream.host == b"127.0.0.2:%d" % port.number


async def test_the_last_failure_is_told_when_no_address_answers(
    make_pool: Make, closed_port: int
) -> None:
    error = await failure(make_pool(), permit(closed_port, addresses=("127.0.0.2", "127.0.0.3")))
    assert "127.0.0.3" in error.detail


async def test_an_ipv6_pod_is_dialled_and_named_in_brackets(make_pool: Make) -> None:
    port = Port("::1")
    with contextlib.closing(port):
        upstream = await dial(make_pool(), permit(port.number, addresses=("::1",)))
        assert upstream.host == b"[::1]:%d" % port.number


class Names:
    """A resolver that knows these names and fails for all others."""

    def __init__(self, why: Unresolved = Unresolved.UNKNOWN, **names: list[str]) -> None:
        self._names = names
        self._why = why
        self.deadlines: list[float] = []
        self.forgotten: list[str] = []

    async def resolve(self, name: str, *, deadline: float) -> list[str]:
        self.deadlines.append(deadline)
        if name not in self._names:
            raise NameNotResolved(self._why, f"{name}: as the resolver says")
        return self._names[name]

    def forget(self, name: str) -> None:
        self.forgotten.append(name)


async def test_a_name_is_resolved_and_stays_the_host(make_pool: Make, port: Port) -> None:
    names = Names(box=["127.0.0.1"])
    upstream = await dial(make_pool(resolver=names), permit(port.number, addresses=("box",)))
    assert upstream.address == "127.0.0.1"
    assert upstream.host == b"box:%d" % port.number
    assert names.forgotten == []


async def test_a_name_is_resolved_within_the_time_there_is(make_pool: Make, port: Port) -> None:
    names = Names(box=["127.0.0.1"])
    before = time.monotonic()
    pool = make_pool(resolver=names, connect_timeout_s=50.0)
    await pool.connect(permit(port.number, addresses=("box",)), limit_s=20.0)
    assert before < names.deadlines[0] <= time.monotonic() + 20.0


async def test_an_address_is_asked_of_no_resolver(make_pool: Make, port: Port) -> None:
    names = Names()
    await dial(make_pool(resolver=names), permit(port.number, addresses=("127.0.0.1",)))
    assert names.deadlines == []


@pytest.mark.parametrize("why", list(Unresolved))
async def test_a_name_without_an_address_says_why(make_pool: Make, why: Unresolved) -> None:
    pool = make_pool(resolver=Names(why))
    error = await failure(pool, permit(80, addresses=("box.default.svc",)))
    assert (error.reason, error.unresolved, error.dead_address) == ("resolve_error", why, "")
    assert "box.default.svc" in error.detail


async def test_a_name_whose_address_refuses_may_lead_elsewhere_by_now(
    make_pool: Make, closed_port: int
) -> None:
    names = Names(box=["127.0.0.1"])
    error = await failure(make_pool(resolver=names), permit(closed_port, addresses=("box",)))
    assert error.reason == "connect_refused"
    assert names.forgotten == ["box"]


# --- the router itself ------------------------------------------------------------------------


async def test_the_router_itself_is_never_named_as_a_sandboxs_address(make_pool: Make) -> None:
    pool = make_pool(own=(("0.0.0.0", 9090),))
    to = permit(9090)

    with pytest.raises(Forbidden):
        pool.known_address(to)
    with pytest.raises(Forbidden):
        await pool.locate(to, limit_s=5.0)


async def test_an_address_is_known_at_once_and_a_name_is_looked_up(make_pool: Make) -> None:
    pool = make_pool(resolver=Names(**{"box.example": ["10.0.0.9"]}))
    plain, named = (permit(80, addresses=(where,)) for where in ("10.0.0.5", "box.example"))

    assert pool.known_address(plain) == await pool.locate(plain, limit_s=5.0) == "10.0.0.5"
    assert pool.known_address(named) is None
    assert await pool.locate(named, limit_s=5.0) == "10.0.0.9"


async def test_a_pod_without_an_address_is_nowhere(make_pool: Make) -> None:
    pool = make_pool()
    to = permit(80, addresses=())

    assert pool.known_address(to) is None
    with pytest.raises(ConnectFailed, match="no address"):
        await pool.locate(to, limit_s=5.0)


@pytest.mark.parametrize(
    ("own", "addresses", "mapped"),
    [
        ("127.0.0.1", ("127.0.0.1",), False),
        ("0.0.0.0", ("localhost",), False),
        ("127.0.0.1", ("127.0.0.1",), True),
        ("127.0.0.1", ("0.0.0.0",), False),
    ],
)
async def test_no_entry_name_or_port_mapping_makes_the_router_dial_itself(
    make_pool: Make, port: Port, own: str, addresses: tuple[str, ...], mapped: bool
) -> None:
    resolver = Names(localhost=["127.0.0.1"])
    pool = make_pool(own=((own, port.number),), resolver=resolver)
    to = permit(
        8888 if mapped else port.number,
        addresses=addresses,
        ports={8888: port.number} if mapped else None,
    )
    with pytest.raises(Forbidden) as caught:
        await dial(pool, to)
    assert str(port.number) not in caught.value.detail
    assert (pool.idle_count, pool.active_count) == (0, 0)
