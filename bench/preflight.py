"""Checks that a subject does the whole job before its cost is counted."""

from __future__ import annotations

import asyncio
import ssl

from bench import answers
from bench.certificates import CIPHER, NAME, TLS_VERSION
from bench.heads import ITEM_BODY, Caller

_TIMEOUT_S = 10.0
_STRIPPED = (b"authorization", b"x-sandbox-id", b"x-sandbox-namespace", b"x-sandbox-port")


class NotTheSameJobError(Exception):
    """The subject does less, or something else, than it is measured for."""


async def ask(port: int, request: bytes, tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    """The status and body that one request on a connection of its own is answered with."""
    name = None if tls is None else NAME
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    try:
        if tls is not None:
            _check_cipher(writer.get_extra_info("cipher"))
        async with asyncio.timeout(_TIMEOUT_S):
            writer.write(request)
            head = answers.read_head(await reader.readuntil(b"\r\n\r\n"))
            assert head is not None
            return head.status, await reader.readexactly(head.length or 0)
    finally:
        writer.close()


def _check_cipher(found: tuple[str, str, int]) -> None:
    if found[:2] != (CIPHER, TLS_VERSION):
        raise NotTheSameJobError(f"{found[1]} with {found[0]}, not {TLS_VERSION} with {CIPHER}")


async def check(port: int, caller: Caller, tls: ssl.SSLContext | None = None) -> None:
    """Raise NotTheSameJobError unless the subject routes, authenticates and strips."""
    if await ask(port, caller.head("GET", "/items/1"), tls) != (200, ITEM_BODY):
        raise NotTheSameJobError("a plain GET doesn't bring the sandbox's answer")
    stranger = Caller(caller.sandbox_id, token="x" * len(caller.token))
    if (await ask(port, stranger.head("GET", "/items/1"), tls))[0] != 401:
        raise NotTheSameJobError("a wrong token isn't answered with 401")
    lost = Caller("box-of-nobody", caller.token)
    if (await ask(port, lost.head("GET", "/items/1"), tls))[0] != 404:
        raise NotTheSameJobError("an unknown sandbox isn't answered with 404")
    _status, seen = await ask(port, caller.head("GET", "/head", "X-App: kept"), tls)
    leaked = [name.decode() for name in _STRIPPED if answers.header(seen, name) is not None]
    if leaked:
        raise NotTheSameJobError(f"the sandbox was sent {', '.join(leaked)}")
    for name in (b"x-app", b"x-forwarded-for"):
        if answers.header(seen, name) is None:
            raise NotTheSameJobError(f"the sandbox wasn't sent {name.decode()}")
