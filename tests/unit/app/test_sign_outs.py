"""A sign-out in one worker is one in all: told by who heard it, learnt by the others, and by those that begin later."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from router.app.channel import ChannelClosed
from router.app.sign_outs import SignOuts
from router.auth.principal import Principal
from router.auth.revocation import EndedSessions

SESSION = Principal(subject="alice", mode="session", token_id="session-1", expires_at=1000.0)


async def test_what_ends_here_is_told_and_what_is_learnt_is_not_told_again() -> None:
    told: list[Any] = []
    ended = EndedSessions()

    async def ask(pairs: list[tuple[str, float]]) -> None:
        told.append(pairs)

    sign_outs = SignOuts(ended, ask=ask)
    ended.add(SESSION)
    sign_outs.learn([("session-2", 1000.0)])
    assert repr(sign_outs) == "<SignOuts <EndedSessions 2> telling=1>"
    await asyncio.sleep(0)
    await sign_outs.close()
    assert told == [[("session-1", 1060.0)]]


async def test_who_begins_later_asks_for_what_has_ended() -> None:
    ended = EndedSessions()

    async def ask(pairs: list[tuple[str, float]]) -> Any:
        assert pairs == []
        return [["session-1", 1060.0]]

    await SignOuts(ended, ask=ask).catch_up()
    assert "session-1" in ended


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (TimeoutError(), ["no answer in time"]),
        (RuntimeError("KeyError: signed-out"), ["KeyError: signed-out"]),
        (ChannelClosed("gone"), []),
    ],
)
async def test_that_nobody_was_told_is_said_unless_the_process_ends(
    failure: Exception, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(pairs: list[tuple[str, float]]) -> None:
        raise failure

    with caplog.at_level(logging.WARNING):
        await SignOuts(EndedSessions(), ask=ask).catch_up()
    assert [vars(record)["fields"]["reason"] for record in caplog.records] == said
