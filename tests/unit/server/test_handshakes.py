"""TLS connections from their accept on, over real sockets and on both loops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trustme
import uvloop

from router.proxy.options import NEVER
from router.proxy.ports import Newcomer
from router.server.handshakes import TlsAcceptor, TlsHandshake
from router.server.listeners import Listener, addresses_of, bind
from router.settings import Address

Body = Callable[["House"], Awaitable[None]]
Run = Callable[..., None]
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
AUTHORITY = trustme.CA()
_RESET = struct.pack("ii", 1, 0)


class Echo(asyncio.Protocol):
    """Gives back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class House:
    """A listener with TLS; notes who comes and leaves."""

    def __init__(self, most: int) -> None:
        self.here: list[Newcomer] = []
        self.arrivals = 0
        self.greetings = 0
        self.refused = 0
        self.is_full = False
        self.made: list[Echo] = []
        self.acceptor = TlsAcceptor(
            context=server_context(AUTHORITY), register=self, protocol=self._make, most=most
        )
        sockets = bind(Address("127.0.0.1", 0), setting="https-bind")
        self.port = addresses_of(sockets)[0][1]
        self.listener = Listener(sockets, protocol=self.acceptor.accept)
        self.clients: list[socket.socket] = []

    def _make(self) -> Echo:
        self.made.append(Echo())
        return self.made[-1]

    # --- a Register ---

    def handshake_begins(self, handshake: Newcomer) -> None:
        if self.is_full:
            handshake.abort()
        self.here.append(handshake)
        self.arrivals += 1

    def greeted(self, handshake: Newcomer) -> None:
        self.greetings += 1

    def handshake_ends(self, handshake: Newcomer) -> None:
        if handshake in self.here:
            self.here.remove(handshake)

    def turned_away(self, client: Newcomer) -> None:
        self.refused += 1

    # --- clients ---

    async def silent(self) -> socket.socket:
        """Returns a client that has said nothing, and has been accepted."""
        before = self.arrivals
        sock = socket.socket()
        sock.setblocking(False)
        self.clients.append(sock)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        await until(lambda: self.arrivals > before)
        return sock

    async def greeting(self, hello: bytes | None = None) -> socket.socket:
        """Returns a client that has said its hello, and will say no more."""
        sock = await self.silent()
        before = self.greetings
        await asyncio.get_running_loop().sock_sendall(sock, hello or hello_of_client())
        await until(lambda: self.greetings > before)
        return sock

    async def echo(self, trust: trustme.CA = AUTHORITY) -> None:
        """Holds the listener to serving an honest client."""
        context = ssl.create_default_context()
        trust.configure_trust(context)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def hello_of_client() -> bytes:
    """Returns the first record of a real client."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def ended(sock: socket.socket) -> bool:
    """Waits for the end of a client's connection."""
    with contextlib.suppress(ConnectionResetError):
        while await asyncio.get_running_loop().sock_recv(sock, 65536):
            pass
    return True


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test's coroutine with a House on each of the two loops; in the end nothing may be left."""

    def running(body: Body, *, most: int = 100) -> None:
        async def limited() -> None:
            house = House(most)
            await house.listener.start()
            try:
                async with asyncio.timeout(20):
                    await body(house)
                    for client in house.clients:
                        client.close()
                    await until(lambda: not house.here)
                    await until(lambda: house.acceptor.under_way == house.acceptor.waiting == 0)
            finally:
                for client in house.clients:
                    client.close()
                house.listener.stop()
                await house.acceptor.close()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(limited())

    return running


def test_a_client_gets_its_protocol_after_the_handshake(run: Run) -> None:
    async def body(house: House) -> None:
        await house.echo()
        assert (house.greetings, len(house.made)) == (1, 1)
        assert house.made[0].transport.get_extra_info("ssl_object").version() == "TLSv1.3"
        assert house.here == [], "its handshake is over"

    run(body)


def test_many_clients_at_once_all_get_in(run: Run) -> None:
    async def body(house: House) -> None:
        await asyncio.gather(*(house.echo() for _ in range(40)))
        assert len(house.made) == 40

    run(body, most=3)


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 100])
def test_a_hello_may_come_in_pieces(run: Run, cut: int) -> None:
    async def body(house: House) -> None:
        sock = await house.silent()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        hello = hello_of_client()
        await loop.sock_sendall(sock, hello[:cut])
        await asyncio.sleep(0.02)
        assert house.greetings == 0
        await loop.sock_sendall(sock, hello[cut:])
        answer = await loop.sock_recv(sock, 65536)
        assert answer[:1] == b"\x16", "the server's hello"

    run(body)


@pytest.mark.parametrize(
    "said", [b"G", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x40\x00" + b"x" * 5000]
)
def test_what_is_no_hello_ends_and_leaves_nothing_behind(run: Run, said: bytes) -> None:
    async def body(house: House) -> None:
        sock = await house.greeting(said)
        if not said.startswith(b"GET"):  # the library waits for more
            sock.shutdown(socket.SHUT_WR)
        assert await ended(sock)
        assert house.made == []

    run(body)


def test_a_handshake_that_fails_makes_no_protocol(run: Run) -> None:
    async def body(house: House) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            await house.echo(trustme.CA())

    run(body)


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize("has_greeted", [False, True])
def test_a_client_that_leaves_during_its_handshake_leaves_nothing_behind(
    run: Run, has_greeted: bool, is_reset: bool
) -> None:
    async def body(house: House) -> None:
        sock = await (house.greeting() if has_greeted else house.silent())
        if is_reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        sock.close()
        await until(lambda: not house.here)
        assert house.acceptor.under_way == 0

    run(body)


@pytest.mark.parametrize("has_greeted", [False, True])
def test_a_handshakes_time_ends_it(run: Run, has_greeted: bool) -> None:
    async def body(house: House) -> None:
        sock = await (house.greeting() if has_greeted else house.silent())
        (handshake,) = house.here
        assert handshake.deadline_at <= time.monotonic() + 60, "also without any limit"
        handshake.on_deadline(0.0)
        assert await ended(sock)
        assert house.made == []

    run(body)


def test_only_who_is_silent_gives_way(run: Run) -> None:
    async def body(house: House) -> None:
        silent, greeted = await house.silent(), await house.greeting()
        first, second = house.here
        assert (first.is_silent(), second.is_silent()) == (True, False)
        assert not second.give_way()
        assert first.give_way()
        assert await ended(silent)
        assert house.here == [second]
        assert "greeted=True" in repr(second)
        assert greeted.fileno() > 0

    run(body)


def test_who_is_turned_away_is_counted_and_closed(run: Run) -> None:
    async def body(house: House) -> None:
        sock = await house.silent()
        house.here[0].turn_away()
        assert await ended(sock)
        assert house.refused == 1

    run(body)


def test_who_is_ended_while_it_is_accepted_leaves_nothing_behind(run: Run) -> None:
    async def body(house: House) -> None:
        house.is_full = True
        assert await ended(await house.silent())

    run(body)


def test_more_clients_than_are_worked_on_wait_for_their_turn(run: Run) -> None:
    async def body(house: House) -> None:
        stalled = await house.greeting()
        async with asyncio.TaskGroup() as tasks:
            honest = tasks.create_task(house.echo())
            await until(lambda: house.acceptor.waiting == 1)
            assert repr(house.acceptor) == "<TlsAcceptor under_way=1 waiting=1>"
            house.acceptor.sweep(time.monotonic())
            assert not honest.done(), "the first has only just begun"
            house.acceptor.sweep(time.monotonic() + 2.5)
        assert await ended(stalled)

    run(body, most=1)


def test_a_crowds_handshakes_are_begun_a_few_in_a_turn(run: Run) -> None:
    async def body(house: House) -> None:
        acceptor = house.acceptor
        crowd = [TlsHandshake(acceptor) for _ in range(10)]
        near, far = socket.socketpair()
        with near, far:
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, sock=near
            )
            transport.close()
            for handshake in crowd:
                handshake.connection_made(transport)
                acceptor.greeted(handshake)
            assert (acceptor.under_way, acceptor.waiting) == (0, 10)
            await asyncio.sleep(0)
            assert (acceptor.under_way, acceptor.waiting) == (4, 6)
            await until(lambda: not acceptor.waiting)

    run(body)


def test_a_stalled_handshake_stays_while_nobody_waits(run: Run) -> None:
    async def body(house: House) -> None:
        await house.greeting()
        house.acceptor.sweep(time.monotonic() + 100)
        await asyncio.sleep(0.01)
        assert house.acceptor.under_way == 1

    run(body, most=1)


def test_who_leaves_while_waiting_takes_nobodys_turn(run: Run) -> None:
    async def body(house: House) -> None:
        first = await house.greeting()
        second = await house.greeting()
        second.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        second.close()
        first.close()
        await house.echo()

    run(body, most=1)


def test_another_certificate_is_for_new_handshakes_and_ends_no_open_connection(run: Run) -> None:
    async def body(house: House) -> None:
        context = ssl.create_default_context()
        AUTHORITY.configure_trust(context)
        reader, writer = await asyncio.open_connection("127.0.0.1", house.port, ssl=context)
        other = trustme.CA()
        house.acceptor.context = server_context(other)
        await house.echo(other)
        with pytest.raises(ssl.SSLCertVerificationError):
            await house.echo(AUTHORITY)
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    run(body)


def test_closing_ends_the_handshakes_under_way(run: Run) -> None:
    async def body(house: House) -> None:
        sock = await house.greeting()
        await house.acceptor.close()
        assert await ended(sock)
        assert house.here == []

    run(body)


def test_closing_ends_who_waits_for_a_turn_and_whose_turn_has_just_come(run: Run) -> None:
    async def body(house: House) -> None:
        first = await house.greeting()
        second = await house.silent()
        await asyncio.get_running_loop().sock_sendall(second, hello_of_client())
        (waiting,) = [each for each in house.here if not each.has_asked]
        while not waiting.has_asked:
            await asyncio.sleep(0)
        await house.acceptor.close()
        assert await ended(first)
        assert await ended(second)
        assert house.here == []

    run(body)


def test_a_silent_client_costs_no_tls_object(run: Run) -> None:
    async def body(house: House) -> None:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise AssertionError("TLS was begun")

        house.acceptor.context.wrap_bio = refuse  # type: ignore[method-assign]
        sock = await house.silent()
        await asyncio.get_running_loop().sock_sendall(sock, hello_of_client()[:-1])
        await asyncio.sleep(0.02)
        assert len(house.here) == 1

    run(body)


def test_it_has_no_deadline_before_it_is_accepted() -> None:
    acceptor = House.__new__(House)
    assert TlsHandshake(acceptor).deadline_at == NEVER  # type: ignore[arg-type]
