"""How a client's connection ends."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from router.proxy.budget import Budget
from router.proxy.closing_connection import ClosingConnection, State
from router.proxy.options import NEVER
from tests.unit.proxy.stage import Wire, later


def connected(wire: Wire) -> ClosingConnection:
    connection = ClosingConnection(Budget(limit_bytes=2**30))
    connection.connection_made(wire)
    return connection


def on(sock: socket.socket, *, can_write_eof: bool = True) -> Wire:
    """Returns a Wire that lies on a real socket."""

    class Real(Wire):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return sock if name == "socket" else default

    return Real(can_write_eof=can_write_eof)


def test_it_begins_idle_and_may_last() -> None:
    connection = ClosingConnection(Budget(limit_bytes=2**30))
    assert (connection.state, connection.deadline_at) == (State.IDLE, NEVER)


def test_an_idle_connection_can_be_closed() -> None:
    wire = Wire()
    connection = connected(wire)
    assert connection.close_if_idle()
    assert wire.is_closing()
    assert not wire.is_aborted
    assert connection.state is State.LINGERING
    assert not connection.close_if_idle(), "it is none any more"


def test_an_idle_connection_whose_answer_is_still_on_its_way_is_left_alone() -> None:
    wire = Wire()
    wire.unsent_bytes = 1
    assert not connected(wire).close_if_idle()


def test_an_idle_connection_whose_next_request_has_arrived_unread_is_left_alone() -> None:
    near, far = socket.socketpair()
    with near, far:
        connection = connected(on(near))
        far.send(b"GET / HTTP/1.1")
        assert not connection.close_if_idle()
        near.recv(100)
        assert connection.close_if_idle()


@pytest.mark.parametrize("state", [state for state in State if state is not State.IDLE])
def test_a_connection_that_carries_something_is_left_alone(state: State) -> None:
    wire = Wire()
    connection = connected(wire)
    connection._state = state
    assert not connection.close_if_idle()
    assert not wire.is_closing()


def test_a_lost_connection_is_not_closed_again() -> None:
    connection = connected(Wire())
    connection.transport = None
    assert not connection.close_if_idle()
    connection._close_after_flush()
    connection._linger()
    connection._abort()


def test_a_close_never_waits_for_ever_on_a_peer_that_does_not_read() -> None:
    connection = connected(Wire())
    connection._close_after_flush()
    assert later(1) < connection.deadline_at < later(60)


def test_lingering_says_the_end_and_still_reads() -> None:
    wire = Wire()
    connection = connected(wire)
    connection.pause_reading()
    connection._linger()
    assert wire.has_ended
    assert not wire.is_closing()
    assert not wire.is_paused, "unread input would make the close a reset"
    assert connection.state is State.LINGERING
    assert connection.deadline_at < later(5)


def test_lingering_waits_longer_while_the_answer_is_still_being_sent() -> None:
    wire = Wire()
    wire.unsent_bytes = 1_000_000
    connection = connected(wire)
    connection._linger()
    assert later(5) < connection.deadline_at < later(60)


def stays(far: socket.socket) -> None:
    pass


def says_no_more(far: socket.socket) -> None:
    far.shutdown(socket.SHUT_WR)


def goes(far: socket.socket) -> None:
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()


@pytest.mark.parametrize(
    ("act", "state", "left"),
    [
        (stays, State.RELAYING, False),
        (says_no_more, State.RELAYING, True),
        (goes, State.RELAYING, True),
        (stays, State.TUNNEL, False),
        (says_no_more, State.TUNNEL, False),
        (goes, State.TUNNEL, True),
    ],
)
def test_whoever_leaves_a_connection_that_is_not_read_is_noticed(
    act: Callable[[socket.socket], None], state: State, left: bool
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as far,
        listening.accept()[0] as near,
    ):
        connection = connected(on(near))
        connection._state = state
        act(far)
        assert not connection.has_left(), "while it is read, the loop notices"
        connection.pause_reading()
        assert connection.has_left() is left
        connection.transport = None
        assert not connection.has_left()


@pytest.mark.parametrize(
    ("act", "is_tls", "has_exchange", "left"),
    [
        (says_no_more, True, True, True),
        (goes, True, True, True),
        (stays, True, True, False),
        (says_no_more, False, True, False),
        (says_no_more, True, False, False),
    ],
)
def test_a_tls_client_whose_end_goes_unheard_is_noticed(
    act: Callable[[socket.socket], None],
    is_tls: bool,
    has_exchange: bool,
    left: bool,
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as far,
        listening.accept()[0] as near,
    ):
        connection = connected(on(near, can_write_eof=not is_tls))
        connection.exchange = object() if has_exchange else None  # type: ignore[assignment]
        assert not connection.has_left()
        act(far)
        assert connection.has_left() is left


def test_a_tls_clients_last_words_are_read_before_its_end_is_noticed() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as far,
        listening.accept()[0] as near,
    ):
        connection = connected(on(near, can_write_eof=False))
        connection.exchange = object()  # type: ignore[assignment]
        far.send(b"last words")
        far.shutdown(socket.SHUT_WR)
        assert not connection.has_left()
        near.recv(100)
        assert connection.has_left()


def test_an_end_in_the_middle_of_an_answer_is_visible() -> None:
    half_sent, done = Wire(), Wire()
    half_sent.unsent_bytes = 1
    resets: list[Wire] = []

    class Noted(ClosingConnection):
        def reset(self) -> None:
            assert isinstance(self.transport, Wire)
            resets.append(self.transport)

    for wire in (half_sent, done):
        connection = Noted(Budget(limit_bytes=2**30))
        connection.connection_made(wire)
        connection._abort()
    assert (resets, done.is_aborted) == ([half_sent], True)


def test_with_tls_lingering_is_closing_after_everything_is_sent() -> None:
    wire = Wire(can_write_eof=False)
    connection = connected(wire)
    connection._linger()
    assert wire.is_closing()
    assert not wire.is_aborted


def test_a_transport_is_closed_once_whatever_says_so() -> None:
    closed: list[Wire] = []

    class Noted(Wire):
        def close(self) -> None:
            closed.append(self)
            super().close()

    connection = connected(Noted(can_write_eof=False))
    connection._linger()
    connection._close_after_flush()
    assert len(closed) == 1
