"""Sockets that are bound before anything is ready, and the servers on them."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Iterator

import pytest
import uvloop

from router.server import listeners
from router.server.listeners import BindError, Listener, addresses_of, bind, close_all
from router.settings import Address

Binding = Callable[..., list[socket.socket]]


@pytest.fixture
def bound() -> Iterator[Binding]:
    """Returns bind(), whose sockets are closed in the end."""
    sockets: list[socket.socket] = []

    def binding(host: str, port: int = 0, *, shared: bool = False) -> list[socket.socket]:
        made = bind(Address(host, port), setting="http-bind", shared=shared)
        sockets.extend(made)
        return made

    yield binding
    close_all(sockets)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


# --- binding --------------------------------------------------------------------------------


def test_port_0_is_a_port_of_the_kernels_choice(bound: Binding) -> None:
    ((host, port),) = addresses_of(bound("127.0.0.1"))
    assert host == "127.0.0.1"
    assert port > 0


@needs_ipv6
@pytest.mark.parametrize(
    ("host", "hosts"), [("", ["0.0.0.0", "::"]), ("localhost", ["127.0.0.1", "::1"])]
)
def test_every_address_means_one_socket_a_family_on_the_same_port(
    bound: Binding, host: str, hosts: list[str]
) -> None:
    addresses = addresses_of(bound(host))
    assert [address for address, _ in addresses] == hosts
    assert len({port for _, port in addresses}) == 1


@needs_ipv6
def test_an_ipv6_socket_takes_no_ipv4_clients_whose_addresses_would_be_mapped(
    bound: Binding,
) -> None:
    (sock,) = bound("::1")
    assert sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_a_machine_without_ipv6_still_has_every_address(
    bound: Binding, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    class OnlyIPv4(socket.socket):
        def bind(self, address: tuple[str, int]) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(number, "no IPv6")
            super().bind(address)

    monkeypatch.setattr(listeners.socket, "socket", OnlyIPv4)
    assert [address for address, _ in addresses_of(bound(""))] == ["0.0.0.0"]


def test_several_workers_share_a_port_only_when_they_say_so(bound: Binding) -> None:
    (first,) = bound("127.0.0.1", shared=True)
    port = first.getsockname()[1]
    first.listen()
    (second,) = bound("127.0.0.1", port, shared=True)
    assert second.getsockname() == first.getsockname()
    with pytest.raises(BindError):
        bound("127.0.0.1", port)


def test_a_port_in_use_names_the_setting_the_address_and_the_advice(bound: Binding) -> None:
    (taken,) = bound("127.0.0.1")
    taken.listen()
    port = taken.getsockname()[1]
    with pytest.raises(BindError) as caught:
        bind(Address("127.0.0.1", port), setting="admin-bind")
    assert str(caught.value) == (
        f"admin-bind: cannot listen on 127.0.0.1:{port}: Address already in use. "
        "Something else listens there; stop it, or choose another port."
    )


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "Ports below 1024 need the capability NET_BIND_SERVICE; choose a higher"),
        (errno.EADDRNOTAVAIL, "This machine has no such address."),
        (errno.EINVAL, "cannot listen on 127.0.0.1:80: as the kernel says."),
    ],
)
def test_each_refusal_of_the_kernel_has_its_advice(
    monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    class Refusing(socket.socket):
        def bind(self, address: tuple[str, int]) -> None:
            raise OSError(number, "as the kernel says")

    monkeypatch.setattr(listeners.socket, "socket", Refusing)
    with pytest.raises(BindError) as caught:
        bind(Address("127.0.0.1", 80), setting="http-bind")
    assert advice in str(caught.value)
    assert str(caught.value).startswith("http-bind: ")


def test_an_address_of_another_machine_cannot_be_had() -> None:
    with pytest.raises(BindError, match="no such address"):
        bind(Address("192.0.2.1", 0), setting="http-bind")


@needs_ipv6
def test_when_one_family_fails_the_others_socket_is_closed(bound: Binding) -> None:
    (taken,) = bound("::1")
    taken.listen()
    port = taken.getsockname()[1]
    with pytest.raises(BindError):
        bound("localhost", port)
    (free,) = bound("127.0.0.1", port)
    assert free.getsockname()[1] == port


# --- listening ------------------------------------------------------------------------------


class Echo(asyncio.Protocol):
    """Gives back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


def listener(sockets: list[socket.socket]) -> Listener:
    return Listener(sockets, protocol=Echo)


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def says(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], data: bytes) -> bytes:
    reader, writer = connection
    writer.write(data)
    return await reader.readexactly(len(data))


async def close(*connections: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    for _, writer in connections:
        writer.close()
        await writer.wait_closed()
    await asyncio.sleep(0.01)


LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    """Runs a test's coroutine on each of the two loops, which own sockets in different ways."""

    def running(body: Awaitable[None]) -> None:
        async def limited() -> None:
            async with asyncio.timeout(10):
                await body

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(limited())

    return running


def test_it_accepts_on_every_socket_until_it_stops(bound: Binding, run) -> None:
    async def body() -> None:
        sockets = [*bound("127.0.0.1"), *bound("127.0.0.1")]
        ports = [port for _, port in addresses_of(sockets)]
        listening = listener(sockets)
        await listening.start()
        open_connections = [await connect(port) for port in ports]
        for connection in open_connections:
            assert await says(connection, b"hello") == b"hello"
        listening.stop()
        await asyncio.sleep(0)
        for port in ports:
            with pytest.raises(ConnectionRefusedError):
                await connect(port)
        for connection in open_connections:
            assert await says(connection, b"still here") == b"still here"
        await close(*open_connections)

    run(body())


def test_connections_that_come_before_it_starts_wait_for_it(bound: Binding, run) -> None:
    async def body() -> None:
        (sock,) = bound("127.0.0.1")
        sock.listen()
        early = await connect(sock.getsockname()[1])
        listening = listener([sock])
        await listening.start()
        assert await says(early, b"hello") == b"hello"
        await close(early)
        listening.stop()

    run(body())


def test_when_one_socket_cannot_be_listened_on_none_is(
    bound: Binding, run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        sockets = [*bound("127.0.0.1"), *bound("127.0.0.1")]
        create_server = asyncio.get_running_loop().create_server
        attempts = 0

        async def fails_once(*args: object, **kwargs: object) -> object:
            nonlocal attempts
            attempts += 1
            if attempts == 2:
                kwargs["sock"].close()  # type: ignore[attr-defined]
                raise OSError(errno.EMFILE, "Too many open files")
            return await create_server(*args, **kwargs)  # type: ignore[arg-type]

        class Loop:
            create_server = staticmethod(fails_once)

        listening = listener(sockets)
        monkeypatch.setattr(listeners.asyncio, "get_running_loop", Loop)
        with pytest.raises(OSError, match="Too many open files"):
            await listening.start()
        monkeypatch.undo()
        assert "servers=0" in repr(listening)

    run(body())


def test_its_repr_says_where_it_listens_even_when_it_has_stopped(bound: Binding, run) -> None:
    async def body() -> None:
        (sock,) = bound("127.0.0.1")
        port = sock.getsockname()[1]
        listening = listener([sock])
        await listening.start()
        assert repr(listening) == f"<Listener [('127.0.0.1', {port})] servers=1>"
        listening.stop()
        assert repr(listening) == f"<Listener [('127.0.0.1', {port})] servers=0>"

    run(body())
