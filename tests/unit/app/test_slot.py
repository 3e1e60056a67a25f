"""A worker's place: its sockets stay, and its silence is measured from the last sign of life."""

from __future__ import annotations

import socket

import pytest

from router.app import slot as slot_module
from router.app.slot import Slot


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(slot_module.time, "monotonic", lambda: now[0])
    return now


def test_silence_is_no_matter_before_it_serves_and_for_the_first_seconds(
    clock: list[float],
) -> None:
    slot = Slot(1, (), ())
    clock[0] = 200.0
    assert slot.silent_for_s() == 0.0
    slot.is_listening = True
    assert slot.silent_for_s() == 100.0
    slot.heard_at = 198.0
    assert slot.silent_for_s() == 0.0


def test_it_says_why_there_is_no_answer(clock: list[float]) -> None:
    slot = Slot(1, (), ())
    assert slot.absence() == "worker 1 is not running"
    slot.is_listening = True
    assert slot.absence() == "worker 1 does not answer"


def test_its_sockets_are_closed_together() -> None:
    ours, theirs = socket.socketpair()
    Slot(0, [ours], [theirs]).close_sockets()
    assert (ours.fileno(), theirs.fileno()) == (-1, -1)
