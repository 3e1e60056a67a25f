"""Two ends of one socket pair."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from router.app import channel as channel_module
from router.app.channel import Channel, ChannelClosed


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Channel, Channel]]:
    ours, theirs = socket.socketpair()
    made = await Channel.open(ours), await Channel.open(theirs)
    yield made
    for end in made:
        end.close()
    await asyncio.sleep(0)


@pytest.fixture
async def serving() -> AsyncIterator[Callable[..., asyncio.Task[None]]]:
    """Returns what lets an end serve in the background until the test is over."""
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        started: list[asyncio.Task[None]] = []

        def serve(end: Channel, **options: Any) -> asyncio.Task[None]:
            async def refuse(question: str, argument: Any) -> Any:
                raise KeyError(question)

            options.setdefault("answer", refuse)
            started.append(tasks.create_task(end.serve(**options)))
            return started[-1]

        yield serve
        for task in started:
            task.cancel()


Ends = tuple[Channel, Channel]
Serve = Callable[..., asyncio.Task[None]]


async def echo(question: str, argument: Any) -> Any:
    return [question, argument]


async def test_frames_arrive_whole_and_in_order(ends: Ends) -> None:
    near, far = ends
    for message in (b"one", b"", b"x" * 300_000):
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            tasks.create_task(near.send(message))
            assert await far.receive() == message


@pytest.mark.parametrize(
    "argument", [None, 5, "text", [1, [2]], {"a": {"b": None}}, "x" * 200_000, "\u00e9\x00"]
)
async def test_a_question_gets_its_answer(ends: Ends, serving: Serve, argument: Any) -> None:
    near, far = ends
    serving(far, answer=echo)
    serving(near)
    assert await near.ask("what", argument) == ["what", argument]


async def test_keys_that_json_does_not_know_become_text(ends: Ends, serving: Serve) -> None:
    near, far = ends

    async def numbered(question: str, argument: Any) -> Any:
        return {8888: "box"}

    serving(far, answer=numbered)
    serving(near)
    assert await near.ask("ports") == {"8888": "box"}


async def test_many_questions_at_a_time_each_get_their_own_answer(
    ends: Ends, serving: Serve
) -> None:
    near, far = ends
    serving(far, answer=echo)
    serving(near)
    answers = await asyncio.gather(*(near.ask("n", number) for number in range(50)))
    assert answers == [["n", number] for number in range(50)]
    assert repr(near) == "<Channel asked=0 closed=False>"


async def test_both_ends_may_ask(ends: Ends, serving: Serve) -> None:
    for end in ends:
        serving(end, answer=echo)
    assert await asyncio.gather(*(end.ask("q", 1) for end in ends)) == [["q", 1]] * 2


async def test_events_are_told_between_questions(ends: Ends, serving: Serve) -> None:
    near, far = ends
    heard: list[str] = []
    serving(far, answer=echo, on_event=heard.append)
    serving(near)
    await near.tell("listening")
    await near.ask("anything")
    assert heard == ["listening"]


async def test_a_question_that_fails_there_is_told_here_and_ends_nothing(
    ends: Ends, serving: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    near, far = ends

    async def fragile(question: str, argument: Any) -> Any:
        if question == "bad":
            raise ValueError("no such thing")
        return "fine"

    serving(far, answer=fragile)
    serving(near)
    with caplog.at_level(logging.ERROR), pytest.raises(RuntimeError, match="no such thing"):
        await near.ask("bad")
    assert len(caplog.records) == 1
    assert await near.ask("good") == "fine"


async def test_an_answer_that_takes_its_time_holds_up_neither_others_nor_questions(
    ends: Ends, serving: Serve
) -> None:
    near, far = ends
    go_on = asyncio.Event()

    async def patient(question: str, argument: Any) -> Any:
        if question == "reload":
            await go_on.wait()
        return question

    serving(far, answer=patient)
    serving(near, answer=echo)
    async with asyncio.TaskGroup() as tasks:
        slow = tasks.create_task(near.ask("reload"))
        assert await near.ask("missing") == "missing"
        assert await far.ask("awake") == ["awake", None]
        assert not slow.done()
        go_on.set()
    assert slow.result() == "reload"


async def test_an_answer_that_nobody_waits_for_any_more_ends_with_the_channel(
    ends: Ends, serving: Serve
) -> None:
    near, far = ends
    ended = asyncio.Event()

    async def endless(question: str, argument: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    served = serving(far, answer=endless)
    with pytest.raises(TimeoutError):
        await near.ask("anything", timeout_s=0.05)
    near.close()
    await served
    assert ended.is_set()


async def test_an_answer_that_takes_too_long_is_not_waited_for(ends: Ends, serving: Serve) -> None:
    near, far = ends
    go_on = asyncio.Event()

    async def slow(question: str, argument: Any) -> Any:
        await go_on.wait()
        return question

    serving(far, answer=slow)
    serving(near)
    with pytest.raises(TimeoutError):
        await near.ask("first", timeout_s=0.01)
    go_on.set()
    assert await near.ask("second") == "second", "the late answer is nobody's"


async def test_a_question_that_the_other_side_does_not_even_read_is_not_waited_for(
    ends: Ends,
) -> None:
    near, _ = ends
    with pytest.raises(TimeoutError):
        await near.ask("anything", "x" * 10_000_000, timeout_s=0.05)


async def test_when_the_other_side_goes_whoever_asks_is_told(ends: Ends, serving: Serve) -> None:
    near, far = ends
    served = serving(near)
    async with asyncio.TaskGroup() as tasks:
        asking: asyncio.Task[Any] = tasks.create_task(outcome(near.ask("anything")))
        await asyncio.sleep(0)
        far.close()
        assert isinstance(await asking, ChannelClosed)
    await served
    for attempt in (near.ask("more"), near.tell("more"), near.receive()):
        assert isinstance(await outcome(attempt), ChannelClosed)


async def outcome(attempt: Awaitable[Any]) -> Any:
    """Returns what it comes to: a value, or the error itself."""
    try:
        return await attempt
    except Exception as exc:
        return exc


async def test_half_a_frame_is_no_frame(ends: Ends) -> None:
    near, far = ends
    near._writer.write((100).to_bytes(4, "big") + b"only this")
    near.close()
    with pytest.raises(ChannelClosed):
        await far.receive()


async def test_a_frame_of_absurd_size_is_refused(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "_MAX_FRAME", 1000)
    near, far = ends
    await near.send(b"x" * 1001)
    with pytest.raises(ChannelClosed, match="1001"):
        await far.receive()


async def test_closing_twice_is_closing(ends: Ends) -> None:
    near, _ = ends
    near.close()
    near.close()
    assert repr(near) == "<Channel asked=0 closed=True>"
