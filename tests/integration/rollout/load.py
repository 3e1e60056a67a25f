"""Clients that never repeat anything, all kinds at once, and what became of everything that they did."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import websockets
from websockets.asyncio.client import connect

from tests.integration.proxy.messages import Message, request
from tests.integration.proxy.wire import Wire, dial, until
from tests.integration.rollout.sandbox import EVENTS

Address = tuple[str, int]

PAUSE_S = 0.02
"""Between a client's requests: sixteen clients leave a small machine room for what is under test."""
WHOLE_STREAM = b"".join(b"data: %d\n\n" % number for number in range(EVENTS))


@dataclass
class Tally:
    """What the clients saw."""

    answered: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    told_to_close: int = 0
    """Answers that said that no further request fits on their connection."""
    found_closed: int = 0
    """Connections that the other side had closed while they were idle."""
    streams: int = 0
    """Streams that came whole."""
    sockets: int = 0
    """WebSockets that were opened."""
    messages: int = 0
    """WebSocket messages that came back."""
    closes: Counter[int] = field(default_factory=Counter)
    """How WebSockets were closed by the other side, by code; 1006 is an end without a word."""

    def __str__(self) -> str:
        closes = ", ".join(f"{count} with {code}" for code, count in sorted(self.closes.items()))
        return (
            f"{self.answered['GET']} GETs and {self.answered['POST']} POSTs answered, {len(self.failed)} failed; "
            f"{self.streams} streams whole; {self.sockets} WebSockets with {self.messages} echoes, closed: {closes or 'none'}; "
            f"{self.told_to_close} answers said close, {self.found_closed} idle connections were found closed"
        )


class KeepAlive:
    """One client with one connection, which it keeps for as long as it is allowed to."""

    def __init__(self, pick: Callable[[], Address], tally: Tally) -> None:
        self._pick = pick
        self._tally = tally
        self.wire: Wire | None = None

    async def connected(self) -> Wire:
        """Returns its connection; a new one when the old one is over."""
        wire = self.wire
        if wire is not None and wire.ended:
            self._tally.found_closed += 1
            self.close()
            wire = None
        if wire is None:
            wire = self.wire = await dial(self._pick())
        return wire

    async def ask(self, method: str, target: str, body: bytes = b"") -> Message:
        """Returns the answer. Raises OSError or AssertionError when there is none, or not a whole one."""
        wire = await self.connected()
        wire.send(request(method, target, body=body))
        message = await wire.answer(method)
        if message.get("Connection") == b"close":
            self._tally.told_to_close += 1
            self.close()
        return message

    def close(self) -> None:
        if self.wire is not None:
            self.wire.close()
            self.wire = None


class Load:
    """All the clients. Use as a context; on leaving, each ends what it has begun."""

    def __init__(self, pick: Callable[[], Address]) -> None:
        self._pick = pick
        self.tally = Tally()
        self._is_over = asyncio.Event()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Load:
        await self._tasks.__aenter__()
        for method in ("GET",) * 4 + ("POST",) * 2:
            self._tasks.create_task(self._requests(method))
        for _ in range(6):
            self._tasks.create_task(self._streams())
        for is_busy in (True,) * 3 + (False,) * 3:
            self._tasks.create_task(self._sockets(is_busy=is_busy))
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._is_over.set()
        await self._tasks.__aexit__(*failure)

    async def goes_on(self) -> None:
        """Returns once every kind of client has had another answer: what is there serves."""
        seen = self._progress()
        await until(
            lambda: all(now > before for now, before in zip(self._progress(), seen, strict=True)),
            what="the clients to go on",
        )

    def _progress(self) -> tuple[int, ...]:
        tally = self.tally
        return (tally.answered["GET"], tally.answered["POST"], tally.streams, tally.messages)

    async def _requests(self, method: str) -> None:
        client = KeepAlive(self._pick, self.tally)
        body = os.urandom(3000) if method == "POST" else b""
        wanted = hashlib.sha256(body).hexdigest().encode() if body else b"/get"
        while not self._is_over.is_set():
            await self._request(client, method, "/post" if body else "/get", body, wanted)
            await asyncio.sleep(PAUSE_S)
        client.close()

    async def _request(
        self, client: KeepAlive, method: str, target: str, body: bytes, wanted: bytes
    ) -> bool:
        try:
            answer = await client.ask(method, target, body)
        except (OSError, AssertionError) as error:
            self.tally.failed.append(f"{method} {target}: {error!r}")
            client.close()
            return False
        if answer.status != 200 or answer.body != wanted:
            self.tally.failed.append(f"{method} {target}: {answer}")
            return False
        self.tally.answered[method] += 1
        return True

    async def _streams(self) -> None:
        client = KeepAlive(self._pick, self.tally)
        while not self._is_over.is_set():
            if await self._request(client, "GET", "/events", b"", WHOLE_STREAM):
                self.tally.streams += 1
        client.close()

    async def _sockets(self, *, is_busy: bool) -> None:
        while not self._is_over.is_set():
            try:
                await self._socket(is_busy=is_busy)
            except (OSError, websockets.InvalidHandshake) as error:
                self.tally.failed.append(f"WebSocket: {error!r}")

    async def _socket(self, *, is_busy: bool) -> None:
        """Keeps one WebSocket until either side ends it."""
        host, port = self._pick()
        headers = {"X-Sandbox-ID": "box"}
        async with connect(
            f"ws://{host}:{port}/socket",
            additional_headers=headers,
            proxy=None,
            ping_interval=None,
            compression=None,
        ) as socket:
            self.tally.sockets += 1
            try:
                while not self._is_over.is_set():
                    await self._echo(socket, is_busy=is_busy)
            except websockets.ConnectionClosed as closed:
                self.tally.closes[closed.rcvd.code if closed.rcvd is not None else 1006] += 1

    async def _echo(self, socket: websockets.ClientConnection, *, is_busy: bool) -> None:
        if is_busy:
            await socket.send(b"hello")
            await socket.recv()
            self.tally.messages += 1
            await asyncio.sleep(PAUSE_S)
        else:
            async with asyncio.TaskGroup() as either:
                over = either.create_task(self._is_over.wait())
                closed = either.create_task(socket.wait_closed())
                await asyncio.wait((over, closed), return_when=asyncio.FIRST_COMPLETED)
                over.cancel()
                closed.cancel()
            if not self._is_over.is_set():
                await socket.recv()  # raises how it was closed
