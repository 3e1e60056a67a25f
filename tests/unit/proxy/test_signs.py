"""What the kernel is asked of a connection, over real sockets."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from router.proxy.signs import look_for, shows, unread_bytes


class Transport:
    """A transport of this socket, or of none."""

    def __init__(self, sock: socket.socket | None) -> None:
        self._sock = sock

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._sock if name == "socket" else default


@pytest.fixture
def ends() -> Iterator[tuple[Any, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
        with near, far:
            yield Transport(near), far


@pytest.mark.parametrize(
    ("act", "unread", "has_ended"),
    [
        (lambda far: None, 0, False),
        (lambda far: far.send(b"four"), 4, False),
        (lambda far: far.shutdown(socket.SHUT_WR), 0, True),
    ],
    ids=["nothing", "bytes", "an end"],
)
def test_the_kernel_knows_before_the_loop_what_has_come(
    ends: tuple[Any, socket.socket],
    act: Callable[[socket.socket], object],
    unread: int,
    has_ended: bool,
) -> None:
    transport, far = ends
    ask = look_for(transport, select.POLLIN | select.POLLRDHUP)
    assert not ask(0)
    act(far)
    assert bool(ask(0)) == shows(transport, select.POLLIN) == bool(unread or has_ended)
    assert shows(transport, select.POLLRDHUP) == has_ended
    assert unread_bytes(transport) == unread


def test_of_a_transport_without_a_socket_nothing_is_known() -> None:
    transport: Any = Transport(None)
    assert not look_for(transport, select.POLLIN)(0)
    assert not shows(transport, select.POLLIN)
    assert unread_bytes(transport) == 0
