"""Orphans that come to process 1, and children that are somebody's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from router.app import reaper as module
from router.app.reaper import Reaper


@pytest.fixture
def dead_child() -> Iterator[int]:
    """A child of this process that has ended, whose exit code nobody takes."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    yield pid
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def test_what_is_still_dead_at_the_second_look_is_taken(dead_child: int) -> None:
    reaper = Reaper()
    assert reaper.look() == []
    assert reaper.look() == [dead_child]
    assert reaper.look() == []


def test_a_child_that_its_own_starter_takes_in_between_is_left_alone(dead_child: int) -> None:
    reaper = Reaper()
    reaper.look()
    assert os.waitpid(dead_child, 0) == (dead_child, 0)
    assert reaper.look() == []


async def test_only_process_1_looks(monkeypatch: pytest.MonkeyPatch, dead_child: int) -> None:
    await Reaper(interval_s=0.001).run()
    real_pid = os.getpid()
    monkeypatch.setattr(
        module, "_dead_children", lambda: iter([dead_child] if _is_dead(dead_child) else [])
    )
    monkeypatch.setattr(module.os, "getpid", lambda: 1)
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(Reaper(interval_s=0.001).run())
        while _is_dead(dead_child):
            await asyncio.sleep(0.001)
        running.cancel()
    assert real_pid != 1


def _is_dead(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return False
