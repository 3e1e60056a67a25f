"""RememberedAnswers: who is known keeps an answer and a place, however many strangers ask and while the API server is away."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

import pytest

from router.auth.remembered import PROBE_INTERVAL_S, Answer, RememberedAnswers
from router.errors import AuthUnavailable

TTL_S = 30.0
STALE_S = 300.0


class Api:
    """Says yes to names that begin with `ok`, unless it is away or held up."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked: list[str] = []
        self.is_away = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.ends = math.inf

    def call(self, name: str) -> Callable[[], Awaitable[Answer[str]]]:
        async def call() -> Answer[str]:
            self.asked.append(name)
            await self.gate.wait()
            if self.is_away:
                raise AuthUnavailable(reason="connection refused")
            is_yes = name.startswith("ok")
            return Answer(f"about {name}", is_yes, self.now + (TTL_S if is_yes else 3.0), self.ends)

        return call


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def answers(api: Api) -> RememberedAnswers[str, str]:
    return RememberedAnswers(
        name="t",
        max_yes=4,
        max_no=4,
        stale_s=STALE_S,
        timeout_s=60.0,
        clock=lambda: api.now,
        max_per_share=3,
    )


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_an_answer_is_given_again_without_asking_while_it_is_believed(
    answers: RememberedAnswers[str, str], api: Api
) -> None:
    assert answers.fresh("ok") is None
    await answers.ask("ok", api.call("ok"))

    api.now += TTL_S - 0.1
    fresh = answers.fresh("ok")
    assert fresh is not None
    assert fresh.value == "about ok"
    api.now += 0.1
    assert answers.fresh("ok") is None


async def test_noes_of_strangers_push_out_no_yes(
    answers: RememberedAnswers[str, str], api: Api
) -> None:
    await answers.ask("ok", api.call("ok"))

    for number in range(100):
        await answers.ask(f"no-{number}", api.call("no"))

    assert answers.fresh("ok") is not None


async def test_strangers_who_wait_take_no_place_of_who_is_known(
    answers: RememberedAnswers[str, str], api: Api
) -> None:
    await answers.ask("ok", api.call("ok"))
    api.now += TTL_S
    api.gate.clear()
    async with asyncio.TaskGroup() as group:
        strangers = [
            group.create_task(_outcome(answers.ask(f"no-{number}", api.call("no"))))
            for number in range(600)
        ]
        await _settle()

        known = group.create_task(answers.ask("ok", api.call("ok")))
        await _settle()
        assert api.asked[-1] == "ok"
        api.gate.set()

    assert known.result() == "about ok"
    refused = [task.result() for task in strangers if "too many" in task.result()]
    assert len(refused) == 600 - 512


async def _outcome(asking: Awaitable[str]) -> str:
    try:
        return await asking
    except AuthUnavailable as error:
        return error.reason


async def test_one_share_of_the_strangers_queue_is_bounded(
    answers: RememberedAnswers[str, str], api: Api
) -> None:
    api.gate.clear()
    async with asyncio.TaskGroup() as group:
        greedy = [
            group.create_task(_outcome(answers.ask(f"no-{number}", api.call("no"), share="greedy")))
            for number in range(5)
        ]
        await _settle()
        other = group.create_task(_outcome(answers.ask("no", api.call("no"), share="other")))
        await _settle()
        api.gate.set()

    assert [task.result() for task in greedy].count(
        "t: too many calls of this caller are waiting"
    ) == 2
    assert other.result() == "about no"


# --- the API server is away ------------------------------------------------------------------


async def _gone(answers: RememberedAnswers[str, str], api: Api, *names: str) -> None:
    """Lets the names be known, their time pass, and the API server go away."""
    for name in names:
        await answers.ask(name, api.call(name))
    api.now += TTL_S
    api.is_away = True
    api.asked.clear()


async def test_while_it_is_away_a_yes_stands_for_the_stale_time_and_no_longer(
    answers: RememberedAnswers[str, str], api: Api
) -> None:
    await _gone(answers, api, "ok")

    assert await answers.ask("ok", api.call("ok")) == "about ok"
    api.now += STALE_S - 1
    assert await answers.ask("ok", api.call("ok")) == "about ok"
    assert answers.stale_answers == 2
    api.now += 1

    with pytest.raises(AuthUnavailable):
        await answers.ask("ok", api.call("ok"))


async def test_nothing_stands_longer_than_its_own_end(
    answers: RememberedAnswers[str, str], api: Api
) -> None:
    api.ends = api.now + TTL_S + 10
    await _gone(answers, api, "ok")
    api.now += 10

    with pytest.raises(AuthUnavailable):
        await answers.ask("ok", api.call("ok"))


async def test_strangers_and_noes_get_nothing_while_it_is_away(
    answers: RememberedAnswers[str, str], api: Api
) -> None:
    await _gone(answers, api, "no")

    for name in ("no", "ok-new"):
        with pytest.raises(AuthUnavailable):
            await answers.ask(name, api.call(name))


async def test_once_it_is_known_to_be_away_nobody_who_is_known_waits_for_it(
    answers: RememberedAnswers[str, str], api: Api
) -> None:
    await _gone(answers, api, "ok-1", "ok-2")
    assert answers.stand_in("ok-1", api.call("ok-1")) is None
    await answers.ask("ok-1", api.call("ok-1"))

    stood_in = answers.stand_in("ok-2", api.call("ok-2"))

    assert stood_in is not None
    assert stood_in.value == "about ok-2"
    assert answers.stand_in("unknown", api.call("unknown")) is None


async def test_meanwhile_it_is_asked_again_but_seldom(
    answers: RememberedAnswers[str, str], api: Api
) -> None:
    await _gone(answers, api, "ok")
    await answers.ask("ok", api.call("ok"))
    api.asked.clear()

    for _ in range(100):
        answers.stand_in("ok", api.call("ok"))
        await _settle()
    assert api.asked == ["ok"]
    api.now += PROBE_INTERVAL_S
    answers.stand_in("ok", api.call("ok"))
    await _settle()

    assert api.asked == ["ok", "ok"]


async def test_when_it_is_back_answers_are_its_own_again(
    answers: RememberedAnswers[str, str], api: Api
) -> None:
    await _gone(answers, api, "ok")
    await answers.ask("ok", api.call("ok"))
    api.is_away = False

    answers.stand_in("ok", api.call("ok"))
    await _settle()

    assert answers.fresh("ok") is not None
    assert answers.stand_in("ok", api.call("ok")) is None


async def test_a_no_after_it_is_back_ends_what_stood(
    answers: RememberedAnswers[str, str], api: Api
) -> None:
    await _gone(answers, api, "ok")
    await answers.ask("ok", api.call("ok"))
    api.is_away = False

    assert await answers.ask("ok", api.call("not any more")) == "about not any more"
    api.is_away = True
    api.now += 3.0

    with pytest.raises(AuthUnavailable):
        await answers.ask("ok", api.call("ok"))


async def test_failures_of_strangers_do_not_say_that_it_is_away(
    answers: RememberedAnswers[str, str], api: Api
) -> None:
    await _gone(answers, api, "ok")
    with pytest.raises(AuthUnavailable):
        await answers.ask("no", api.call("no"))

    assert answers.stand_in("ok", api.call("ok")) is None


# --- what a new policy changes ---------------------------------------------------------------


async def test_a_yes_can_be_replaced_and_the_others_stay(
    answers: RememberedAnswers[str, str], api: Api
) -> None:
    await answers.ask("ok-1", api.call("ok-1"))
    await answers.ask("ok-2", api.call("ok-2"))

    answers.replace(
        lambda value: Answer("revoked", False, math.inf, 0.0) if value == "about ok-1" else None
    )

    first, second = answers.fresh("ok-1"), answers.fresh("ok-2")
    assert first is not None
    assert second is not None
    assert (first.value, second.value) == ("revoked", "about ok-2")
    answers.forget_noes()
    assert answers.fresh("ok-1") is None
    assert answers.peek("ok-2") == second


async def test_closing_ends_what_runs(answers: RememberedAnswers[str, str], api: Api) -> None:
    api.gate.clear()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(_outcome(answers.ask("ok", api.call("ok"))))
        await _settle()
        await answers.close()

    assert "ended without an answer" in waiting.result()
    assert "yes=0 no=0 away=False" in repr(answers)
