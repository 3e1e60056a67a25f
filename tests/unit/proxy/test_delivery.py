"""When a client has the last bytes of a response that was cut."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from router.proxy.delivery import FLUSH_S, Delivery, reset_on_close
from router.proxy.request import Outcome
from tests.unit.proxy.stage import Wire


class OnSocket(Wire):
    """A Wire that lies on a real socket."""

    def __init__(self, sock: socket.socket | None, *, is_tls: bool = False) -> None:
        super().__init__()
        self._extra = {"socket": sock, "ssl_object": object() if is_tls else None}

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra.get(name, default)


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yields both ends of a TCP connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as far,
        listening.accept()[0] as near,
    ):
        near.setblocking(False)
        yield near, far


def fill(near: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            near.send(b"x" * 65_536)


def delivery(told: list[Outcome] | None = None, sent: int = 0) -> Delivery:
    outcome = Outcome(method=b"GET", path=b"/", client="192.0.2.7", started_at=1.0)
    outcome.bytes_to_client = sent
    return Delivery(outcome, time.monotonic(), [].append if told is None else told.append)


def test_it_goes_on_while_the_transport_holds_something_back() -> None:
    wire = Wire()
    wire.unsent_bytes = 1
    made = delivery()
    assert made.goes_on(wire, 100.0)
    wire.unsent_bytes = 0
    assert not made.goes_on(wire, 100.0)


def test_it_goes_on_while_the_kernel_holds_something_back() -> None:
    with pair() as (near, far):
        made = delivery()
        fill(near)
        assert made.goes_on(OnSocket(near), 100.0)
        near.shutdown(socket.SHUT_WR)
        while far.recv(1_000_000):
            pass
        assert not made.goes_on(OnSocket(near), 100.0)


def test_below_tls_it_is_over_when_nothing_moved_since_the_last_look() -> None:
    with pair() as (near, far):
        made, wire = delivery(), OnSocket(near, is_tls=True)
        assert made.goes_on(wire, 100.0)
        near.send(b"what lay in the buffer below TLS")
        far.recv(100)
        assert made.goes_on(wire, 100.0)
        assert not made.goes_on(wire, 100.0)


def test_a_client_that_takes_nothing_is_given_up_and_one_that_takes_little_is_not() -> None:
    wire = Wire()
    made = delivery()
    for number in range(3):
        wire.unsent_bytes = 3 - number
        assert made.goes_on(wire, 100.0 + number * (FLUSH_S - 1))
    since = 100.0 + 2 * (FLUSH_S - 1)
    assert made.goes_on(wire, since + FLUSH_S - 1)
    assert not made.goes_on(wire, since + FLUSH_S)


def test_a_request_is_told_of_once_without_what_was_not_sent() -> None:
    told: list[Outcome] = []
    made = delivery(told, sent=1000)
    made.is_over(300)
    made.is_over(0)
    (outcome,) = told
    assert outcome.bytes_to_client == 700
    assert 0 <= outcome.total_s < 60
    delivery(told, sent=10).is_over(300)
    assert told[-1].bytes_to_client == 0, "heads and frames wait there too"


def test_where_the_system_says_nothing_the_transport_decides() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        assert not delivery().goes_on(OnSocket(near), 100.0)


def test_every_end_is_a_reset_then() -> None:
    with pair() as (near, far):
        reset_on_close(OnSocket(near))
        linger = near.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
        assert struct.unpack("ii", linger) == (1, 0)
        near.close()
        with pytest.raises(ConnectionResetError):
            far.recv(1)
    reset_on_close(OnSocket(None))
