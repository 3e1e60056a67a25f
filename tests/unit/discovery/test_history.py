from __future__ import annotations

import asyncio

import pytest

from router.discovery.history import HistoryCheck
from router.kube.api_client import ApiError


class Watching:
    """A watch that has seen a version, of a server that is at one."""

    def __init__(self, seen: int, server: int | ApiError = 0) -> None:
        self.newest_version = seen
        self.server = server
        self.asked = 0
        self.doubts: list[str] = []

    async def current_version(self) -> int:
        self.asked += 1
        if isinstance(self.server, ApiError):
            raise self.server
        return self.server

    def distrust(self, reason: str) -> None:
        self.doubts.append(reason)


def check(*watches: Watching) -> HistoryCheck:
    return HistoryCheck(watches=watches, interval_s=1.0)


async def test_a_server_at_an_older_version_than_was_seen_is_distrusted_with_both() -> None:
    watch = Watching(5000, 1200)

    await check(watch).look()

    assert watch.doubts == ["the server's history went back: it is at version 1200, 5000 was seen"]


@pytest.mark.parametrize("server", [5000, 5001, 0, ApiError(0, "away"), ApiError(403, "no")])
async def test_a_server_that_went_on_or_does_not_say_is_believed(server: int | ApiError) -> None:
    watch = Watching(5000, server)

    await check(watch).look()

    assert watch.doubts == []


async def test_one_question_is_enough_for_all_namespaces() -> None:
    watches = Watching(0), Watching(1300, 1200), Watching(1100), Watching(1200)

    await check(*watches).look()

    assert [watch.asked for watch in watches] == [0, 1, 0, 0]
    assert [len(watch.doubts) for watch in watches] == [0, 1, 0, 0]


async def test_before_anything_was_seen_nobody_is_asked() -> None:
    watch = Watching(0, 7)

    await check(watch).look()

    assert watch.asked == 0


async def test_what_is_seen_while_the_answer_is_on_its_way_is_not_held_against_it() -> None:
    watch = Watching(5000)

    async def slowly() -> int:
        watch.newest_version = 5002
        return 5001

    watch.current_version = slowly  # type: ignore[method-assign]
    await check(watch).look()

    assert watch.doubts == []


async def test_it_looks_again_and_again() -> None:
    watch = Watching(5000, 6000)
    checking = HistoryCheck(watches=[watch], interval_s=0.0)
    async with asyncio.timeout(5.0), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(checking.run())
        while watch.asked < 3:
            await asyncio.sleep(0)
        task.cancel()
