from __future__ import annotations

import asyncio

import pytest

from router.discovery.turns import LONGEST_REST_S, SHORTEST_REST_S, Turns


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times: list[float] = []

    async def sleep(seconds: float) -> None:
        times.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return times


async def test_a_turn_is_over_when_its_work_fills_it(clock: Clock) -> None:
    turns = Turns(turn_s=0.5, clock=clock)
    turns.begin()
    clock.now += 0.4
    assert not turns.is_over

    clock.now += 0.1
    assert turns.is_over


async def test_waiting_between_end_and_begin_is_no_work(clock: Clock) -> None:
    turns = Turns(turn_s=0.5, clock=clock)
    turns.begin()
    clock.now += 0.3
    turns.end()
    clock.now += 60.0
    turns.begin()
    assert not turns.is_over

    clock.now += 0.2
    assert turns.is_over


async def test_a_rest_is_a_share_of_the_work_or_one_round_of_the_loop(
    clock: Clock, slept: list[float]
) -> None:
    turns = Turns(turn_s=0.001, clock=clock)
    for share in (0.0, 0.5, 0.001):
        turns.begin()
        clock.now += 0.004
        await turns.rest(share)
        assert not turns.is_over

    assert slept == [0.0, pytest.approx(0.002), SHORTEST_REST_S]


async def test_after_a_pause_of_the_machine_a_rest_is_no_longer_than_it_may_be(
    clock: Clock, slept: list[float]
) -> None:
    turns = Turns(clock=clock)
    turns.begin()
    clock.now += 30.0

    await turns.rest(0.5)

    assert slept == [LONGEST_REST_S]
