from __future__ import annotations

import aiohttp
import pytest

from router.routing.endpoint import SandboxRef
from router.suspender import survey as module
from router.suspender.routers import Router
from router.suspender.survey import RouterIncomplete, RouterSilent, Survey
from tests.fakes.activity_router import ActivityRouter, activity

BOX = SandboxRef("default", "box")


def router(name: str, *addresses: str) -> Router:
    return Router(name, addresses)


async def test_every_router_is_asked() -> None:
    async with (
        ActivityRouter(lambda: activity(idle_s={"box": 5.0})) as one,
        ActivityRouter(lambda: activity(idle_s={"box": 9.0})) as two,
        aiohttp.ClientSession() as session,
    ):
        answers = await Survey(session=session).ask(
            [router("one", one.address), router("two", two.address)], {BOX}
        )

    assert {name: answer.sandboxes[BOX].idle_s for name, answer in answers.items()} == {
        "one": 5.0,
        "two": 9.0,
    }


async def test_one_that_is_away_spoils_the_whole_and_is_named() -> None:
    async with ActivityRouter() as gone:
        pass
    async with ActivityRouter() as here, aiohttp.ClientSession() as session:
        with pytest.raises(RouterSilent, match=gone.address):
            await Survey(session=session).ask(
                [router("here", here.address), router("gone", gone.address)], set()
            )


async def test_one_that_takes_too_long_spoils_the_whole() -> None:
    async with ActivityRouter(delay_s=5.0) as slow, aiohttp.ClientSession() as session:
        with pytest.raises(RouterSilent, match=f"{slow.address}: no answer in time"):
            await Survey(session=session, timeout_s=0.05).ask([router("slow", slow.address)], set())


@pytest.mark.parametrize("status", [404, 500, 302])
async def test_another_status_than_200_spoils_the_whole(status: int) -> None:
    async with ActivityRouter(status=status) as odd, aiohttp.ClientSession() as session:
        with pytest.raises(RouterSilent, match=f"HTTP {status}"):
            await Survey(session=session).ask([router("odd", odd.address)], set())


async def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_ANSWER_BYTES", 50)
    async with ActivityRouter() as long, aiohttp.ClientSession() as session:
        with pytest.raises(RouterSilent, match="more than 50 bytes"):
            await Survey(session=session).ask([router("long", long.address)], set())


async def test_one_that_has_forgotten_something_spoils_the_whole() -> None:
    async with (
        ActivityRouter(lambda: activity(is_complete=False)) as forgetful,
        aiohttp.ClientSession() as session,
    ):
        with pytest.raises(RouterIncomplete, match=forgetful.address):
            await Survey(session=session).ask([router("forgetful", forgetful.address)], set())


async def test_a_router_answers_at_any_of_its_addresses() -> None:
    async with ActivityRouter() as gone:
        pass
    async with ActivityRouter() as here, aiohttp.ClientSession() as session:
        answers = await Survey(session=session).ask(
            [router("pod", gone.address, here.address)], set()
        )

    assert answers.keys() == {"pod"}


async def test_of_many_silent_ones_a_few_are_named() -> None:
    async with aiohttp.ClientSession() as session:
        silent = [router(f"r{n}", f"127.0.0.1:{n}") for n in range(1, 8)]
        with pytest.raises(RouterSilent, match="and 4 more"):
            await Survey(session=session).ask(silent, set())
