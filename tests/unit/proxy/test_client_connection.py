"""How a client's connection ends."""

from __future__ import annotations

import pytest

from router.proxy.client_connection import ClientConnection, Phase
from router.proxy.deadlines import NEVER
from tests.unit.proxy.stage import Wire, later


def connected(wire: Wire) -> ClientConnection:
    connection = ClientConnection()
    connection.connection_made(wire)
    return connection


def test_it_begins_idle_and_may_last() -> None:
    connection = ClientConnection()
    assert (connection.phase, connection.deadline_at) == (Phase.IDLE, NEVER)


def test_an_idle_connection_can_be_closed() -> None:
    wire = Wire()
    connection = connected(wire)
    assert connection.close_if_idle()
    assert wire.is_closing()
    assert not wire.is_aborted
    assert connection.phase is Phase.LINGERING
    assert not connection.close_if_idle(), "it is none any more"


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.IDLE])
def test_a_connection_that_carries_something_is_left_alone(phase: Phase) -> None:
    wire = Wire()
    connection = connected(wire)
    connection._phase = phase
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
    assert connection.phase is Phase.LINGERING
    assert connection.deadline_at < later(5)


def test_lingering_waits_longer_while_the_answer_is_still_being_sent() -> None:
    wire = Wire()
    wire.unsent_bytes = 1_000_000
    connection = connected(wire)
    connection._linger()
    assert later(5) < connection.deadline_at < later(60)


def test_with_tls_lingering_is_closing_after_everything_is_sent() -> None:
    wire = Wire(can_write_eof=False)
    connection = connected(wire)
    connection._linger()
    assert wire.is_closing()
    assert not wire.is_aborted
