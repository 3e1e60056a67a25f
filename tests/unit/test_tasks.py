"""Tasks that begin one at a time have an owner, which ends them all."""

from __future__ import annotations

import asyncio
import logging

import pytest

from router.tasks import TaskSet


async def test_a_task_runs_and_is_forgotten_when_it_ends() -> None:
    tasks = TaskSet()
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    task = tasks.start(work(), name="work")
    assert (len(tasks), task.get_name()) == (1, "work")
    async with asyncio.timeout(10):
        await done.wait()
        await task
    await asyncio.sleep(0)
    assert len(tasks) == 0


async def test_one_that_fails_is_logged_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    tasks = TaskSet()
    goes_on = asyncio.Event()

    async def fail() -> None:
        raise ValueError("broken")

    async def work() -> None:
        await goes_on.wait()

    other = tasks.start(work(), name="other")
    with caplog.at_level(logging.ERROR):
        failed = tasks.start(fail(), name="failing")
        await asyncio.wait([failed])
        await asyncio.sleep(0)
    (record,) = caplog.records
    assert record.fields == {"task": "failing"}  # type: ignore[attr-defined]
    assert record.exc_info is not None
    assert not other.done()
    goes_on.set()
    await other


async def test_closing_cancels_what_runs_and_waits_for_its_clean_up() -> None:
    tasks = TaskSet()
    cleaned: list[int] = []
    started = asyncio.Event()

    async def work(number: int) -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(number)

    for number in range(3):
        tasks.start(work(number), name="work")
    await started.wait()
    await asyncio.sleep(0)
    await tasks.close()
    assert sorted(cleaned) == [0, 1, 2]
    assert len(tasks) == 0


async def test_a_cancelled_task_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    tasks = TaskSet()
    task = tasks.start(asyncio.sleep(100), name="work")
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert caplog.records == []
    assert len(tasks) == 0


async def test_nothing_can_be_started_once_it_is_closed() -> None:
    tasks = TaskSet()
    await tasks.close()
    with pytest.raises(RuntimeError, match="closed"):
        tasks.start(asyncio.sleep(0), name="late")  # and it is no coroutine that was never awaited
    assert repr(tasks) == "<TaskSet running=0 closed=True>"


async def test_closing_twice_is_closing() -> None:
    tasks = TaskSet()
    await tasks.close()
    await tasks.close()
