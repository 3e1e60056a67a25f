"""One clock for all: what is due is called, and nothing stops the clock."""

from __future__ import annotations

import asyncio
import logging

import pytest

from router.proxy.deadlines import Deadlines
from router.proxy.options import NEVER


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Thing:
    """Notes when it is called; does `then` as well."""

    def __init__(self, deadline_at: float, then=lambda thing: None) -> None:
        self.deadline_at = deadline_at
        self.called: list[float] = []
        self._then = then

    def on_deadline(self, now: float) -> None:
        self.called.append(now)
        self._then(self)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def deadlines(clock: Clock) -> Deadlines:
    return Deadlines(interval_s=0.001, clock=clock)


def test_only_what_is_due_is_called(deadlines: Deadlines) -> None:
    due, later, never = Thing(100.0), Thing(100.001), Thing(NEVER)
    for thing in (due, later, never):
        deadlines.watch(thing)
    deadlines.check()
    assert (due.called, later.called, never.called) == ([100.0], [], [])


def test_a_deadline_that_is_not_moved_is_called_again(deadlines: Deadlines, clock: Clock) -> None:
    thing = Thing(100.0)
    deadlines.watch(thing)
    deadlines.check()
    clock.now = 101.0
    deadlines.check()
    assert thing.called == [100.0, 101.0]


def test_a_deadline_is_moved_by_writing_it(deadlines: Deadlines, clock: Clock) -> None:
    thing = Thing(100.0)
    deadlines.watch(thing)
    thing.deadline_at = 105.0
    deadlines.check()
    assert thing.called == []
    clock.now = 105.0
    deadlines.check()
    assert thing.called == [105.0]


def test_what_is_forgotten_is_not_called(deadlines: Deadlines) -> None:
    thing = Thing(0.0)
    deadlines.watch(thing)
    deadlines.forget(thing)
    deadlines.forget(thing)
    deadlines.check()
    assert thing.called == []
    assert repr(deadlines) == "<Deadlines watched=0>"


def test_a_handler_may_forget_and_watch_others(deadlines: Deadlines) -> None:
    other = Thing(NEVER)

    def replace(thing: Thing) -> None:
        deadlines.forget(thing)
        deadlines.watch(other)

    deadlines.watch(Thing(0.0, replace))
    deadlines.check()
    other.deadline_at = 0.0
    deadlines.check()
    assert other.called == [100.0]


def test_sweeps_are_called_each_time_with_the_time(deadlines: Deadlines, clock: Clock) -> None:
    times: list[float] = []
    deadlines.sweep_with(times.append)
    deadlines.check()
    clock.now = 100.25
    deadlines.check()
    assert times == [100.0, 100.25]


def test_a_faulty_handler_stops_nobody_elses_clock(
    deadlines: Deadlines, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(thing: Thing) -> None:
        raise RuntimeError("broken")

    things = [Thing(0.0, fail if number % 2 else lambda thing: None) for number in range(20)]
    for thing in things:
        deadlines.watch(thing)
    swept: list[float] = []
    deadlines.sweep_with(lambda now: 1 / 0)
    deadlines.sweep_with(swept.append)
    with caplog.at_level(logging.ERROR):
        deadlines.check()
    assert [thing.called for thing in things] == [[100.0]] * 20
    assert swept == [100.0]
    assert len(caplog.records) == 11
    assert all(record.exc_info for record in caplog.records)


async def test_it_checks_for_ever_in_its_interval() -> None:
    deadlines = Deadlines(interval_s=0.001)
    ticks = asyncio.Event()
    seen: list[float] = []

    def sweep(now: float) -> None:
        seen.append(now)
        if len(seen) == 3:
            ticks.set()

    deadlines.sweep_with(sweep)
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(deadlines.run())
        await ticks.wait()
        running.cancel()
    assert seen == sorted(seen)
