"""What both sides' connections share."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
import uvloop

from router.proxy.budget import Budget
from router.proxy.connection import Connection
from tests.unit.proxy.stage import Wire


def connected(wire: Wire) -> Connection:
    connection = Connection(Budget(limit_bytes=2**30))
    connection.connection_made(wire)
    return connection


def test_without_a_transport_nothing_happens_and_nothing_fails() -> None:
    connection = Connection(Budget(limit_bytes=2**30))
    connection.write(b"x")
    connection.writelines([b"x"])
    connection.pause_reading()
    connection.resume_reading()
    connection.reset()
    assert connection.write_eof() is False


def test_bytes_go_to_the_transport_in_order() -> None:
    wire = Wire()
    connection = connected(wire)
    connection.write(b"a")
    connection.writelines([b"b", b"c"])
    assert wire.sent == b"abc"


def test_pausing_and_resuming_may_be_asked_for_any_number_of_times() -> None:
    wire = Wire()  # refuses to be paused or resumed twice
    connection = connected(wire)
    connection.resume_reading()
    connection.pause_reading()
    connection.pause_reading()
    assert wire.is_paused
    connection.resume_reading()
    connection.resume_reading()
    assert not wire.is_paused


def test_a_closing_transport_is_not_resumed() -> None:
    wire = Wire()
    connection = connected(wire)
    connection.pause_reading()
    wire.close()
    connection.resume_reading()
    assert wire.is_paused


def test_it_knows_whether_it_is_writable() -> None:
    connection = connected(Wire())
    assert connection.is_writable
    connection.pause_writing()
    assert not connection.is_writable
    connection.resume_writing()
    assert connection.is_writable


def test_the_end_is_said_only_where_it_can_be() -> None:
    plain, tls, closing = Wire(), Wire(can_write_eof=False), Wire()
    closing.close()
    assert [connected(wire).write_eof() for wire in (plain, tls, closing)] == [True, False, False]
    assert plain.has_ended


LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.mark.parametrize("loop_factory", LOOPS, ids=["asyncio", "uvloop"])
def test_a_reset_is_no_clean_end(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """On both loops: their sockets are reached in different ways."""

    async def meet() -> None:
        loop = asyncio.get_running_loop()
        served: asyncio.Future[Connection] = loop.create_future()

        class Served(Connection):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                served.set_result(self)

        server = await loop.create_server(lambda: Served(Budget(limit_bytes=2**30)), "127.0.0.1", 0)
        with socket.socket() as client:
            client.setblocking(False)
            async with server, asyncio.timeout(10):
                await loop.sock_connect(client, server.sockets[0].getsockname())
                connection = await served
                connection.write(b"half an answer")
                assert await loop.sock_recv(client, 100) == b"half an answer"
                connection.reset()
                with pytest.raises(ConnectionResetError):
                    await loop.sock_recv(client, 100)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(meet())


async def test_data_that_takes_long_ends_the_turn_and_the_next_one_reads_on() -> None:
    class Slow(Connection):
        def __init__(self) -> None:
            super().__init__(Budget(limit_bytes=2**30))
            self.turns = 0

        def data_received(self, data: bytes) -> None:
            if not self._in_turn:
                self.take_in_turn(data)
                return
            end = time.monotonic() + 0.003
            while time.monotonic() < end:
                pass

        def resume_if_wanted(self) -> None:
            self.turns += 1
            self.resume_reading()

    paused: list[bool] = []

    class Transport(asyncio.Transport):
        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

        def pause_reading(self) -> None:
            paused.append(True)

        def resume_reading(self) -> None:
            paused.append(False)

        def is_closing(self) -> bool:
            return False

    connection = Slow()
    connection.connection_made(Transport())
    connection.data_received(b"x" * 5000)
    assert paused == [True]
    await asyncio.sleep(0)
    assert paused == [True, False]
    assert connection.turns == 1


class Bitten(Connection):
    """Takes a byte of what comes, and puts the rest off."""

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self.taken = b""

    def data_received(self, data: bytes) -> None:
        self.taken += data[:1]
        self.put_off(data[1:])

    def resume_if_wanted(self) -> None:
        self.resume_reading()


async def test_what_is_put_off_is_taken_in_later_turns_before_anything_else_is_read() -> None:
    wire, connection = Wire(), Bitten(Budget(limit_bytes=1_000_000))
    connection.connection_made(wire)
    connection.data_received(b"abc")
    for taken in (b"a", b"ab"):
        assert (connection.taken, wire.is_paused) == (taken, True)
        connection.resume_reading()
        assert wire.is_paused
        await asyncio.sleep(0)
    assert (connection.taken, wire.is_paused) == (b"abc", False)


def test_nothing_put_off_is_no_turn() -> None:
    wire = Wire()
    connection = connected(wire)
    connection.put_off(b"")
    assert not wire.is_paused


def test_the_end_of_a_connection_that_was_just_reset_can_not_be_said() -> None:
    class Reset(Wire):
        def write_eof(self) -> None:
            raise OSError(107, "Transport endpoint is not connected")

    assert connected(Reset()).write_eof() is False
