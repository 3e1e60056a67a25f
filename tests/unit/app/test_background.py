"""Tasks that run as long as a worker does."""

from __future__ import annotations

import asyncio

import pytest

from router.app.background import Background
from router.app.background import background as running


async def fails(after: asyncio.Event) -> None:
    await after.wait()
    raise ValueError("broken")


async def test_a_background_task_that_fails_ends_the_waiting() -> None:
    background, now = Background(), asyncio.Event()
    background.start(asyncio.sleep(100))
    background.start(fails(now))
    now.set()
    with pytest.raises(ValueError, match="broken"):
        await background.until(asyncio.Event())
    await background.close()


async def test_a_task_that_begins_later_and_fails_ends_it_as_well() -> None:
    background, now = Background(), asyncio.Event()
    background.start(asyncio.sleep(100))

    async def begins_another() -> None:
        await asyncio.sleep(0)
        background.start(fails(now))
        now.set()

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(begins_another())
        with pytest.raises(ValueError, match="broken"):
            await background.until(asyncio.Event())
    await background.close()


async def test_a_task_that_just_ends_is_no_failure() -> None:
    background, stop = Background(), asyncio.Event()
    background.start(asyncio.sleep(0))
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(background.until(stop))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        stop.set()
    await background.close()


async def test_closing_ends_every_task_whatever_it_makes_of_it() -> None:
    background = Background()
    ended: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
            raise RuntimeError("and it complains")

    background.start(stubborn())
    await asyncio.sleep(0)
    await background.close()
    assert ended == ["ended"]


async def test_leaving_the_context_ends_every_task() -> None:
    async with running() as tasks:
        tasks.start(asyncio.sleep(100))
        mine = asyncio.current_task()
        (other,) = asyncio.all_tasks() - {mine}
    assert other.cancelled()
