"""A WebSocket message by hand."""

import asyncio
import sys

import aiohttp
import pytest

from router.demo.say import say


async def command(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router.demo.say", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_the_answer_is_printed(stand_in):
    url = stand_in.place.url.replace("http", "ws") + "/ws"
    assert await command(url, "a-token", "hi there") == (0, "hi there\n", "")


async def test_a_wrong_token_is_told_in_one_line(stand_in):
    url = stand_in.place.url.replace("http", "ws") + "/ws"
    status, out, err = await command(url, "wrong", "hi")
    assert (status, out) == (1, "")
    assert err.startswith("WSServerHandshakeError: 401")
    assert err.count("\n") == 1


async def test_missing_arguments_are_answered_with_the_usage():
    assert await command("ws://x") == (
        1,
        "",
        "usage: python -m router.demo.say URL TOKEN MESSAGE\n",
    )


async def test_a_refused_connection_raises(stand_in):
    with pytest.raises(aiohttp.ClientError):
        await say("ws://127.0.0.1:9/ws", "a-token", "hi")
