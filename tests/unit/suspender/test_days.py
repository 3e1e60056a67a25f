"""Days of a fleet in virtual time: nobody at work is ever suspended, everybody idle is in the end."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.suspender.rounds import Ending
from tests.unit.suspender.world import Box, Suspender, World

DAY_S = 24 * 3600.0
STEP_S = 45.0


async def live(world: World, seconds: float, *, calm: bool = False) -> None:
    """Lets time pass; unless calm, with everything that happens in a fleet."""
    end = world.now + seconds
    while world.now < end:
        world.pass_time(STEP_S)
        if not calm:
            happen(world)
        for suspender in world.suspenders:
            suspender.lag_s -= STEP_S
            suspender.catch_up()
            await suspender.rounds.once()


def happen(world: World) -> None:
    chance = world.random.random
    box: Box = world.random.choice(list(world.boxes.values()))
    number = world.random.choice(list(world.routers))
    router = world.routers[number]
    if chance() < 0.08:
        world.request(box, number)
    if chance() < 0.01:
        world.open_stream(box, number)
    if box.streams and chance() < 0.1:
        box.streams.clear()
    if chance() < 0.004:
        world.keep_awake(box, number, world.random.choice((600.0, 3600.0, 7200.0)))
    if chance() < 0.006:
        world.restart_pod(box)
    if chance() < 0.006:
        world.start_router()
    if len(world.routers) > 1 and chance() < 0.006:
        world.end_router(number)
    elif chance() < 0.006:
        world.restart_router(number)
    if chance() < 0.01:
        flash(world, box)
    router.is_reachable = chance() > 0.05 if router.is_reachable else chance() < 0.3
    router.is_complete = chance() > 0.01 if router.is_complete else chance() < 0.3
    world.is_api_away = chance() < 0.01 if not world.is_api_away else chance() < 0.5
    if chance() < 0.001:
        world.restart_suspender(world.random.randrange(len(world.suspenders)))
    for suspender in world.suspenders:
        if chance() < 0.01:
            suspender.lag_s = world.random.choice((60.0, 300.0, 900.0))
        if chance() < 0.003:
            suspender.is_leader = not suspender.is_leader


def flash(world: World, box: Box) -> None:
    """A router that comes, serves one request and goes between two looks."""
    number = world.start_router()
    world.request(box, number)
    world.end_router(number)


def settle(world: World) -> None:
    """Everything works again."""
    world.is_api_away = False
    for router in world.routers.values():
        router.is_reachable = router.is_complete = True
    for box in world.boxes.values():
        box.streams.clear()
    for suspender in world.suspenders:
        suspender.lag_s = 0.0
    world.suspenders[0].is_leader = True


@given(seed=st.integers(0, 2**32))
@example(seed=3948)  # a router came and went while a new suspender could not look yet
@settings(max_examples=12, deadline=None)
async def test_nobody_at_work_is_suspended_and_everybody_idle_is_in_the_end(seed: int) -> None:
    world = World(seed)
    world.suspenders = [Suspender(world, is_leader=True), Suspender(world, is_leader=True)]

    await live(world, 2 * DAY_S)
    settle(world)
    await live(world, 4 * 3600.0, calm=True)

    assert world.wrongs == []
    assert all(suspender.told.endings[Ending.FAILED] == 0 for suspender in world.suspenders)
    assert [box.ref.name for box in world.boxes.values() if box.is_running] == []


@pytest.mark.parametrize("seed", range(3))
async def test_days_with_trouble_still_suspend_somebody(seed: int) -> None:
    world = World(seed)
    world.suspenders = [Suspender(world, is_leader=True)]

    await live(world, 4 * DAY_S)

    assert world.suspended > 10
