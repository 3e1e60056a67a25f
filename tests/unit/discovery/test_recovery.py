from __future__ import annotations

import asyncio

import pytest

from router.discovery import recovery
from router.discovery.recovery import Recovery


@pytest.fixture(autouse=True)
def _no_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "SPREAD_S", 0.0)


async def test_who_waits_is_woken_when_the_server_answers_somebody_else() -> None:
    shared = Recovery()
    async with asyncio.timeout(5.0), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(shared.wait(3600.0)) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)

        shared.tell()


async def test_a_wait_ends_by_itself() -> None:
    async with asyncio.timeout(5.0):
        await Recovery().wait(0.0)


async def test_what_was_told_before_the_wait_does_not_end_it() -> None:
    shared = Recovery()
    shared.tell()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(shared.wait(3600.0))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
