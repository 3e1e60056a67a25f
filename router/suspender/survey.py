"""Survey: asks every router at the same time what it has seen. One that doesn't answer spoils the whole."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from typing import Final

import aiohttp

from router.routing.endpoint import SandboxRef
from router.suspender.activity import Answer, IncompleteAnswer, UnusableAnswer, parse_activity
from router.suspender.routers import Router

TIMEOUT_S: Final = 5.0
LARGEST_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""About three times what 100,000 sandboxes take."""

_SHOWN: Final = 3


class RouterSilent(Exception):
    """A router could not be asked, or its answer can't be used; the message names it and says why."""


class RouterIncomplete(Exception):
    """A router has forgotten, or could not gather, part of what it saw; the message names it."""


class Survey:
    """Asks the admin ports. `session` follows no proxy settings and keeps no cookies."""

    def __init__(self, *, session: aiohttp.ClientSession, timeout_s: float = TIMEOUT_S) -> None:
        self._session = session
        self._timeout_s = timeout_s
        self._reading = asyncio.Lock()

    async def ask(
        self, routers: Sequence[Router], wanted: Container[SandboxRef]
    ) -> dict[str, Answer]:
        """Returns the answer of each router by its name. Raises RouterSilent, RouterIncomplete."""
        answers: dict[str, Answer] = {}
        silent: list[str] = []
        incomplete: list[str] = []

        async def ask_one(router: Router) -> None:
            try:
                answers[router.name] = await self._ask(router, wanted)
            except RouterIncomplete as error:
                incomplete.append(str(error))
            except RouterSilent as error:
                silent.append(str(error))

        async with asyncio.TaskGroup() as tasks:
            for router in routers:
                tasks.create_task(ask_one(router), name=f"activity of {router.name}")
        if silent:
            raise RouterSilent(_several(silent))
        if incomplete:
            raise RouterIncomplete(_several(incomplete))
        return answers

    async def _ask(self, router: Router, wanted: Container[SandboxRef]) -> Answer:
        problems = []
        for address in router.addresses:
            try:
                async with asyncio.timeout(self._timeout_s):
                    body = await self._body(address)
                # Of 100,000 sandboxes it takes most of a second: the Lease is renewed meanwhile.
                async with self._reading:
                    return await asyncio.to_thread(parse_activity, body, wanted)
            except IncompleteAnswer as error:
                raise RouterIncomplete(f"{address}: {error}") from error
            except (UnusableAnswer, aiohttp.ClientError, OSError) as error:
                # TimeoutError is an OSError, without words.
                problems.append(f"{address}: {str(error) or 'no answer in time'}"[:300])
        raise RouterSilent("; ".join(problems))

    async def _body(self, address: str) -> bytes:
        async with self._session.get(
            f"http://{address}/activity", allow_redirects=False
        ) as response:
            if response.status != 200:
                raise UnusableAnswer(f"HTTP {response.status} to GET /activity")
            body = bytearray()
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > LARGEST_ANSWER_BYTES:
                    raise UnusableAnswer(f"an answer of more than {LARGEST_ANSWER_BYTES} bytes")
            return bytes(body)


def _several(problems: list[str]) -> str:
    more = len(problems) - _SHOWN
    return "; ".join(sorted(problems)[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
