"""SharedCalls: one call for many, bounded, and nobody left waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from router.auth.review import SharedCalls
from router.errors import AuthUnavailable


class Api:
    """Something slow to ask."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.calls = 0
        self.running = 0
        self.most_running = 0

    def ask(self, answer: int) -> Callable[[], Awaitable[int]]:
        async def call() -> int:
            self.calls += 1
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            try:
                await self.gate.wait()
                return answer
            finally:
                self.running -= 1

        return call


async def _failing() -> int:
    raise AuthUnavailable(reason="HTTP 500")


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_many_askers_for_one_key_share_one_call() -> None:
    api, shared = Api(), SharedCalls[str, int](name="t")

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(shared.ask("k", api.ask(7))) for _ in range(500)]
        await _settle()
        api.gate.set()

    assert {task.result() for task in asked} == {7}
    assert api.calls == shared.calls_started == 1


async def test_the_next_asker_after_the_answer_makes_a_new_call() -> None:
    api, shared = Api(), SharedCalls[str, int](name="t")
    api.gate.set()

    assert [await shared.ask("k", api.ask(n)) for n in (1, 2)] == [1, 2]


async def test_one_waiter_that_leaves_leaves_the_call_to_the_others() -> None:
    api, shared = Api(), SharedCalls[str, int](name="t")

    async with asyncio.TaskGroup() as group:
        first = group.create_task(shared.ask("k", api.ask(7)))
        second = group.create_task(shared.ask("k", api.ask(8)))
        await _settle()
        first.cancel()
        await _settle()
        api.gate.set()

    assert second.result() == 7
    assert first.cancelled()


async def test_only_so_many_calls_run_at_once() -> None:
    api, shared = Api(), SharedCalls[int, int](name="t", max_running=3)

    async with asyncio.TaskGroup() as group:
        for key in range(10):
            group.create_task(shared.ask(key, api.ask(key)))
        await _settle()
        api.gate.set()

    assert (api.calls, api.most_running) == (10, 3)


async def test_beyond_the_bound_a_new_question_is_refused_and_a_shared_one_is_not() -> None:
    api, shared = Api(), SharedCalls[int, int](name="t", max_waiting=2)

    async with asyncio.TaskGroup() as group:
        for key in (1, 2):
            group.create_task(shared.ask(key, api.ask(key)))
        await _settle()
        with pytest.raises(AuthUnavailable) as caught:
            await shared.ask(3, api.ask(3))
        group.create_task(shared.ask(1, api.ask(1)))
        await _settle()
        api.gate.set()

    assert "too many" in caught.value.reason


async def test_no_answer_in_time_is_unavailable_waiting_for_a_turn_included() -> None:
    api, shared = Api(), SharedCalls[int, int](name="t", max_running=1, timeout_s=0.05)

    results = await asyncio.gather(
        *(shared.ask(key, api.ask(key)) for key in range(3)), return_exceptions=True
    )

    assert all(isinstance(result, AuthUnavailable) for result in results)
    assert shared.calls_failed == 3
    assert repr(shared) == "<SharedCalls t running=0 started=3>"


async def test_a_failure_reaches_every_waiter_as_its_own_error_and_is_not_remembered() -> None:
    api, shared = Api(), SharedCalls[str, int](name="t")

    first, second = await asyncio.gather(
        *(shared.ask("k", _failing) for _ in range(2)), return_exceptions=True
    )
    api.gate.set()

    assert isinstance(first, AuthUnavailable)
    assert isinstance(second, AuthUnavailable)
    assert first is not second
    assert "HTTP 500" in first.reason
    assert await shared.ask("k", api.ask(5)) == 5


async def test_a_bug_in_the_call_is_logged_and_leaves_nobody_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = SharedCalls[str, int](name="t")

    async def bug() -> int:
        raise KeyError("status")

    async with asyncio.timeout(5):
        with pytest.raises(AuthUnavailable):
            await shared.ask("k", bug)
    await _settle()

    assert "task failed" in caplog.text


async def test_closing_ends_calls_and_answers_who_waits() -> None:
    api, shared = Api(), SharedCalls[str, int](name="t")

    async with asyncio.TaskGroup() as group:
        asked = group.create_task(_outcome(shared, api))
        await _settle()
        await shared.close()

    assert isinstance(asked.result(), AuthUnavailable)
    assert isinstance(await _outcome(shared, api), AuthUnavailable)


async def _outcome(shared: SharedCalls[str, int], api: Api) -> int | AuthUnavailable:
    try:
        return await shared.ask("k", api.ask(1))
    except AuthUnavailable as error:
        return error


async def test_a_share_is_bounded_and_free_again_when_its_calls_end() -> None:
    api, shared = Api(), SharedCalls[int, int](name="t", max_per_share=1)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(shared.ask(1, api.ask(1), share="alice"))
        await _settle()
        with pytest.raises(AuthUnavailable) as caught:
            await shared.ask(2, api.ask(2), share="alice")
        other = group.create_task(shared.ask(3, api.ask(3), share="bob"))
        nobodys = group.create_task(shared.ask(4, api.ask(4)))
        await _settle()
        api.gate.set()

    assert "of this caller" in caught.value.reason
    assert [first.result(), other.result(), nobodys.result()] == [1, 3, 4]
    assert await shared.ask(2, api.ask(2), share="alice") == 2


async def test_a_call_can_begin_without_anybody_who_waits() -> None:
    api, shared = Api(), SharedCalls[str, int](name="t", max_waiting=1)

    shared.begin("k", api.ask(7))
    shared.begin("k", api.ask(7))
    shared.begin("no place", api.ask(8))
    async with asyncio.TaskGroup() as group:
        joined = group.create_task(shared.ask("k", api.ask(9)))
        await _settle()
        api.gate.set()

    assert joined.result() == 7
    assert shared.calls_started == 1
