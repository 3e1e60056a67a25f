"""A wish to be kept awake: promised once the supervisor has heard of it, and not when it can't be told."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from router.app.channel import ChannelClosed
from router.app.wishes import Wishes
from router.errors import Draining, Overloaded
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.telemetry.activity import Activity

BOX = Endpoint(SandboxRef("team-a", "box"), "pod", State.READY, sandbox_uid="uid-a")


def activity() -> Activity:
    return Activity(clock=lambda: 100.0)


async def test_a_worker_on_its_own_remembers_it_itself() -> None:
    own = activity()
    assert await Wishes(own, tell=None).keep_awake(BOX, 600.0) == 600.0
    assert own.entries["uid-a"].awake_until == 700.0


async def test_the_supervisor_is_told_what_is_promised() -> None:
    told: list[Any] = []

    async def tell(wish: tuple[str, str, str, float]) -> None:
        told.append(wish)

    wishes = Wishes(activity(), tell=tell)
    assert await wishes.keep_awake(BOX, 600.0) == 600.0
    assert await wishes.keep_awake(BOX, 60.0) == 600.0
    assert told == [("team-a", "box", "uid-a", 600.0)] * 2
    assert repr(wishes) == "<Wishes told=True>"


@pytest.mark.parametrize(
    ("failure", "answer", "says"),
    [
        (ChannelClosed("gone"), Draining, ""),
        (TimeoutError(), Overloaded, "no answer in time"),
        (RuntimeError("KeyError: awake"), Overloaded, "KeyError: awake"),
    ],
)
async def test_what_the_supervisor_has_not_heard_is_not_promised(
    failure: Exception, answer: type[Exception], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell(wish: tuple[str, str, str, float]) -> None:
        raise failure

    with caplog.at_level(logging.WARNING), pytest.raises(answer):
        await Wishes(activity(), tell=tell).keep_awake(BOX, 600.0)
    assert [vars(record)["fields"]["reason"] for record in caplog.records] == [says] * bool(says)
