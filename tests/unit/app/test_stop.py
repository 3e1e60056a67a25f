"""The wish to stop, and what it cuts short."""

from __future__ import annotations

import asyncio

import pytest

from router.app.stop import Stop, unless_stopped


def test_the_first_call_is_gentle_and_the_second_is_not() -> None:
    stop = Stop()
    stop.ask()
    assert (stop.gently.is_set(), stop.at_once.is_set()) == (True, False)
    stop.ask()
    assert stop.at_once.is_set()


def test_insisting_needs_no_second_call() -> None:
    stop = Stop()
    stop.insist()
    assert stop.gently.is_set()
    assert stop.at_once.is_set()


async def test_work_that_ends_by_itself_is_done() -> None:
    assert await unless_stopped(asyncio.sleep(0), Stop())


async def test_work_that_waits_is_cut_short_by_the_wish() -> None:
    stop = Stop()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        working = tasks.create_task(unless_stopped(asyncio.Event().wait(), stop))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        stop.ask()
    assert not working.result()


async def test_work_that_fails_fails() -> None:
    async def fails() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await unless_stopped(fails(), Stop())
