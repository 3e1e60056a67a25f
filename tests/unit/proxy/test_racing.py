"""Dials side by side: the first to succeed wins, and nothing is left of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from router.errors import Forbidden
from router.proxy.racing import ConnectFailed, first_of

REFUSED = ConnectFailed("connect_refused", "refused")
SILENT = ConnectFailed("connect_timeout", "silent", dead_address="10.0.0.1")


def dial(outcome: str | Exception, *, after: int = 0) -> Callable[[], Awaitable[str]]:
    """Returns a dial that ends after some turns of the loop; -1: never."""

    async def dialled() -> str:
        if after < 0:
            await asyncio.Event().wait()
        for _ in range(after):
            await asyncio.sleep(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return dialled


async def race(*dials: Callable[[], Awaitable[str]]) -> tuple[str, list[str]]:
    discarded: list[str] = []
    return await first_of(dials, stagger_s=0.001, discard=discarded.append), discarded


async def test_a_single_address_is_just_dialled() -> None:
    assert await race(dial("a")) == ("a", [])


async def test_one_that_never_answers_holds_up_nobody() -> None:
    assert await race(dial("a", after=-1), dial("b")) == ("b", [])
    assert len(asyncio.all_tasks()) == 1


async def test_a_failure_lets_the_next_begin_at_once() -> None:
    async with asyncio.timeout(5):
        result = await first_of([dial(REFUSED), dial("b")], stagger_s=60, discard=print)
    assert result == "b"


async def test_when_all_fail_the_failure_that_says_most_is_raised() -> None:
    with pytest.raises(ConnectFailed) as caught:
        await race(dial(SILENT), dial(REFUSED))
    assert caught.value is REFUSED


async def test_a_refusal_of_the_routers_own_ends_it() -> None:
    with pytest.raises(Forbidden):
        await race(dial("a", after=-1), dial(Forbidden()))


async def test_who_leaves_meanwhile_leaves_no_task() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await race(dial("a", after=-1), dial("b", after=-1))
    assert len(asyncio.all_tasks()) == 1


async def test_a_second_that_succeeds_too_is_discarded() -> None:
    discarded: list[str] = []
    gate = asyncio.Event()

    async def gated(name: str) -> str:
        await gate.wait()
        return name

    async def opens() -> str:
        gate.set()
        await gate.wait()
        return "last"

    dials = [lambda: gated("a"), lambda: gated("b"), opens]
    result = await first_of(dials, stagger_s=0.001, discard=discarded.append)
    assert {result, *discarded} <= {"a", "b", "last"}
    assert result not in discarded
