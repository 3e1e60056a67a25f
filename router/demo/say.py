"""A WebSocket message by hand: `python -m router.demo.say URL TOKEN MESSAGE` prints what comes back."""

from __future__ import annotations

import asyncio
import sys

import aiohttp

ANSWER_S = 10.0


async def say(url: str, token: str, message: str) -> str:
    """Returns the first text message that answers `message`. Raises aiohttp.ClientError, TimeoutError, TypeError."""
    async with (
        asyncio.timeout(ANSWER_S),
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session,
        session.ws_connect(url) as connection,
    ):
        await connection.send_str(message)
        return await connection.receive_str()


def main(arguments: list[str]) -> None:
    """Says one message, or tells why it could not."""
    if len(arguments) != 3:
        raise SystemExit("usage: python -m router.demo.say URL TOKEN MESSAGE")
    try:
        print(asyncio.run(say(*arguments)))
    except (aiohttp.ClientError, TimeoutError, TypeError) as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from error


if __name__ == "__main__":
    main(sys.argv[1:])
