"""Channel: how the supervisor and a worker talk, over one Unix socket pair.

Frames: four bytes of length, then JSON. The supervisor asks `{"id", "ask", "arg"}`, the worker answers `{"id", "answer"}` or
`{"id", "error"}`; the worker also tells events, `{"event"}`. Both ends are this very code, so nothing here is a public format.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from router.tasks import TaskSet

logger = logging.getLogger("sandbox_router.app")

DEADLINES_S: Final = {
    "missing": 0.7,
    "notes": 0.7,
    "snapshot": 2.0,
    "sandboxes": 2.0,
    "activity": 5.0,
    "awake": 2.0,
    "reload": 30.0,
}
"""How long an answer may take, so that /readyz and /metrics answer within their probes' limits while a process hangs."""
_DEADLINE_S: Final = 5.0
_MAX_FRAME: Final = 256 * 1024 * 1024


class ChannelClosed(ConnectionError):
    """The other side has gone."""


class Channel:
    """One end. Open it with open()."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Channel asked={len(self._asked)} closed={self._is_closed}>"

    @classmethod
    async def open(cls, sock: socket.socket) -> Channel:
        """Returns the end that lives on this socket."""
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        return cls(reader, writer)

    async def send(self, message: bytes) -> None:
        """Sends one frame. Raises ChannelClosed."""
        if self._is_closed:
            raise ChannelClosed("the other process is gone")
        try:
            self._writer.write(len(message).to_bytes(4, "big") + message)
            await self._writer.drain()
        except ConnectionError as exc:
            raise ChannelClosed("the other process is gone") from exc

    async def receive(self) -> bytes:
        """Returns the next frame. Raises ChannelClosed."""
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            if size <= _MAX_FRAME:
                return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as exc:
            raise ChannelClosed("the other process is gone") from exc
        raise ChannelClosed(f"a frame of {size} bytes")

    async def tell(self, event: str) -> None:
        await self.send(orjson.dumps({"event": event}))

    async def ask(
        self, question: str, argument: Any = None, *, timeout_s: float | None = None
    ) -> Any:
        """Returns the other side's answer, within DEADLINES_S where nothing else is said. Raises ChannelClosed, TimeoutError, RuntimeError (it failed there)."""
        if timeout_s is None:
            timeout_s = DEADLINES_S.get(question, _DEADLINE_S)
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            async with asyncio.timeout(timeout_s):
                await self.send(orjson.dumps({"id": number, "ask": question, "arg": argument}))
                return await answer
        finally:
            self._asked.pop(number, None)

    async def serve(
        self,
        *,
        answer: Callable[[str, Any], Awaitable[Any]],
        on_event: Callable[[str], None] = lambda event: None,
    ) -> None:
        """Reads frames until the other side has gone. An answer that takes its time holds up no other."""
        answers = TaskSet()
        try:
            while True:
                message = orjson.loads(await self.receive())
                if "event" in message:
                    on_event(message["event"])
                elif "ask" in message:
                    answers.start(self._reply(message, answer), name="answer")
                else:
                    self._settle(message)
        except ChannelClosed:
            pass
        finally:
            self.close()
            await answers.close()

    async def _reply(
        self, message: dict[str, Any], answer: Callable[[str, Any], Awaitable[Any]]
    ) -> None:
        with contextlib.suppress(ChannelClosed):
            await self.send(await _answered(message, answer))

    def close(self) -> None:
        self._is_closed = True
        self._writer.close()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ChannelClosed("the other process is gone"))

    def _settle(self, message: dict[str, Any]) -> None:
        answer = self._asked.get(message["id"])
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(RuntimeError(message["error"]))
        else:
            answer.set_result(message["answer"])


async def _answered(message: dict[str, Any], answer: Callable[[str, Any], Awaitable[Any]]) -> bytes:
    try:
        value = await answer(message["ask"], message["arg"])
    except Exception as exc:
        logger.exception("a question of the other process's failed")
        return orjson.dumps({"id": message["id"], "error": f"{type(exc).__name__}: {exc}"})
    return orjson.dumps({"id": message["id"], "answer": value}, option=orjson.OPT_NON_STR_KEYS)
