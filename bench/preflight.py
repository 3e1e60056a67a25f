"""Checks that a subject does the whole job before its cost is counted."""

from __future__ import annotations

import asyncio

from bench import answers
from bench.heads import ITEM_BODY, Caller

_TIMEOUT_S = 10.0
_STRIPPED = (b"authorization", b"x-sandbox-id", b"x-sandbox-namespace", b"x-sandbox-port")


class NotTheSameJobError(Exception):
    """The subject does less, or something else, than it is measured for."""


async def ask(port: int, request: bytes) -> tuple[int, bytes]:
    """The status and body that one request on a connection of its own is answered with."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            writer.write(request)
            head = answers.read_head(await reader.readuntil(b"\r\n\r\n"))
            assert head is not None
            return head.status, await reader.readexactly(head.length or 0)
    finally:
        writer.close()


async def check(port: int, caller: Caller) -> None:
    """Raise NotTheSameJobError unless the subject routes, authenticates and strips."""
    if await ask(port, caller.head("GET", "/items/1")) != (200, ITEM_BODY):
        raise NotTheSameJobError("a plain GET doesn't bring the sandbox's answer")
    stranger = Caller(caller.sandbox_id, token="x" * len(caller.token))
    if (await ask(port, stranger.head("GET", "/items/1")))[0] != 401:
        raise NotTheSameJobError("a wrong token isn't answered with 401")
    lost = Caller("box-of-nobody", caller.token)
    if (await ask(port, lost.head("GET", "/items/1")))[0] != 404:
        raise NotTheSameJobError("an unknown sandbox isn't answered with 404")
    _status, seen = await ask(port, caller.head("GET", "/head", "X-App: kept"))
    leaked = [name.decode() for name in _STRIPPED if answers.header(seen, name) is not None]
    if leaked:
        raise NotTheSameJobError(f"the sandbox was sent {', '.join(leaked)}")
    for name in (b"x-app", b"x-forwarded-for"):
        if answers.header(seen, name) is None:
            raise NotTheSameJobError(f"the sandbox wasn't sent {name.decode()}")
