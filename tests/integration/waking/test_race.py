"""A request that meets a sandbox just being suspended: whatever is seen first, it is served after a wake, and is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.waking.door import Door, door


@asynccontextmanager
async def running_box(folder: Path, **pace: float) -> AsyncIterator[Door]:
    """A router and one sandbox that is up."""
    async with door(folder, wake="all", pace=pace) as the:
        the.cluster.add("box", mode="Running")
        await the.until_seen("box", "ready")
        assert (await the.ask("box")).status == 200
        yield the


async def old_and_new(the: Door, uid: str) -> None:
    """Asks once; the answer must come from another pod than `uid`."""
    told = await the.ask("box", method="POST", body=b"x" * 1000)
    assert (told.status, told.code) == (200, "")
    assert not told.text.startswith(uid)
    assert told.text.endswith("POST 1000")


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03, 0.06, 0.1, 0.3])
async def test_it_is_served_at_whatever_moment_of_the_suspension_it_comes(
    tmp_path: Path, after_s: float
) -> None:
    async with running_box(tmp_path) as the:
        the.cluster.suspend("box")
        await asyncio.sleep(after_s)

        told = await the.ask("box")

        assert (told.status, told.code) == (200, "")


async def test_the_mode_is_seen_while_the_pod_is_still_up(tmp_path: Path) -> None:
    async with running_box(tmp_path, notices_s=5.0) as the:
        uid = the.cluster.apps["box"].uid
        the.cluster.suspend("box")
        await the.until_seen("box", "suspended")

        told = await the.ask("box")

        # Nobody has acted on the suspension yet: the wake takes it back, and the old pod answers.
        assert told.status == 200
        assert told.text.startswith(uid)
        assert the.cluster.mode("box") == "Running"


async def test_the_pod_refuses_before_anyone_hears_of_the_suspension(tmp_path: Path) -> None:
    async with running_box(tmp_path) as the:
        app = the.cluster.apps["box"]
        for watch in the.api.faults.open():
            watch.is_stalled = True
        the.cluster.suspend("box")
        await asyncio.sleep(0.3)
        asked = asyncio.get_running_loop().create_task(old_and_new(the, app.uid))
        await asyncio.sleep(0.7)
        # The watches are cut, and what was missed is listed.
        the.api.faults.cut()

        await asked


async def test_the_watch_is_seconds_late_after_it_was_interrupted(tmp_path: Path) -> None:
    async with running_box(tmp_path) as the:
        uid = the.cluster.apps["box"].uid
        with the.api.faults.refusing(503, verb="watch"), the.api.faults.refusing(503, verb="list"):
            the.api.faults.cut()
            the.cluster.suspend("box")
            await asyncio.sleep(0.3)
            asked = asyncio.get_running_loop().create_task(old_and_new(the, uid))
            # Longer than a refused port is tried again otherwise.
            await asyncio.sleep(3.0)

        await asked


async def test_it_is_suspended_again_while_it_wakes(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all", pace={"starts_s": 0.5}) as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")
        asked = asyncio.get_running_loop().create_task(the.ask("box"))
        await the.until_seen("box", "starting")
        the.cluster.suspend("box")

        assert (await asked).status == 200
        assert the.cluster.mode("box") == "Running"


async def test_requests_that_never_wake_are_told_that_it_sleeps(tmp_path: Path) -> None:
    async with running_box(tmp_path) as the:
        the.cluster.suspend("box")
        await the.until_seen("box", "suspended")

        told = await the.ask("box", method="OPTIONS")

        assert (told.status, told.code) == (409, "sandbox_suspended")
        assert the.patches == 0
