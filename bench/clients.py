"""The load's connections: each sends what it is given, checks what comes back, and tells its driver."""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
import time
from collections.abc import Callable
from typing import cast

from bench import answers, frames
from bench.answers import BadAnswerError
from bench.bodies import BadBodyError, BodyReader, BodyWriter
from bench.heads import Caller, download, handshake, upload_head
from bench.sandbox import received_body
from bench.tally import Tally


class Client(asyncio.Protocol):
    """A connection with at most one exchange open; done(self) is called after each good one."""

    __slots__ = ("_asked_ns", "_buffer", "_done", "_tally", "closing", "transport")

    def __init__(self, tally: Tally, done: Callable[[Client], None]) -> None:
        self._tally = tally
        self._done = done
        self._asked_ns = 0
        self._buffer = b""
        self.closing = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's isn't a subclass

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closing:
            self.closing = True
            self._tally.failed(f"the connection ended: {exc or 'closed by the proxy'}")

    def close(self) -> None:
        self.closing = True
        self.transport.abort()

    def _fail(self, reason: str) -> None:
        self._tally.failed(reason)
        self.close()


class RequestClient(Client):
    """Sends ready requests; every answer must be a 200 with exactly the body expected."""

    __slots__ = ("_body", "_length_line")

    def __init__(self, tally: Tally, done: Callable[[Client], None], *, body: bytes) -> None:
        super().__init__(tally, done)
        self._body = body
        self._length_line = b"\r\ncontent-length: %d\r\n" % len(body)

    def send(self, request: bytes, asked_ns: int | None = None) -> None:
        """Send a request that was due at asked_ns (default: now)."""
        self._asked_ns = asked_ns or time.monotonic_ns()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        body_at = data.find(b"\r\n\r\n") + 4
        if body_at < 4 or len(data) - body_at < len(self._body):
            if body_at >= 4 and not data.startswith(b"HTTP/1.1 200"):
                self._fail(f"answered {data[:60]!r}")
            self._buffer = data
            return
        self._buffer = b""
        if not data.startswith(b"HTTP/1.1 200"):
            self._fail(f"answered {data[:60]!r}")
        elif self._length_line not in data[:body_at].lower():
            self._fail("an answer without its content-length")
        elif data[body_at:] != self._body:
            self._fail("an answer with another body")
        else:
            self._tally.answered(self._asked_ns)
            self._done(self)


class BulkClient(Client):
    """Moves long bodies, down or up, and checks their length and a sample of their bytes."""

    __slots__ = ("_paused", "_reader", "_size", "_writer")

    def __init__(self, tally: Tally, done: Callable[[Client], None]) -> None:
        super().__init__(tally, done)
        self._reader: BodyReader | None = None
        self._writer: BodyWriter | None = None
        self._paused = False
        self._size = 0

    def download(self, caller: Caller, size: int, *, chunked: bool) -> None:
        self._asked_ns = time.monotonic_ns()
        self._size = size
        self.transport.write(download(caller, size, chunked=chunked))

    def upload(self, caller: Caller, size: int, *, chunked: bool) -> None:
        self._asked_ns = time.monotonic_ns()
        self._size = size
        self._writer = BodyWriter(size, chunked=chunked)
        self.transport.write(upload_head(caller, size, chunked=chunked))
        self._send_body()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._send_body()

    def _send_body(self) -> None:
        while self._writer is not None and not self._paused:
            piece = self._writer.next_piece()
            if not piece:
                return
            self.transport.write(piece)

    def data_received(self, data: bytes) -> None:
        try:
            self._feed(data)
        except (BadAnswerError, BadBodyError) as exc:
            self._fail(str(exc))

    def _feed(self, data: bytes) -> None:
        if self._writer is not None:
            self._feed_receipt(data)
            return
        if self._reader is None:
            data = self._buffer + data
            head = answers.read_head(data)
            if head is None:
                self._buffer = data
                return
            if head.status != 200:
                raise BadAnswerError(f"answered {data[:60]!r}")
            self._buffer = b""
            self._reader = BodyReader(head.length)
            data = data[head.size :]
        rest = self._reader.feed(data)
        if self._reader.finished:
            self._on_downloaded(self._reader, rest)

    def _on_downloaded(self, reader: BodyReader, rest: bytes) -> None:
        self._reader = None
        if rest or reader.received != self._size or not reader.intact:
            raise BadAnswerError(f"a body of {reader.received} bytes, intact: {reader.intact}")
        self._tally.answered(self._asked_ns)
        self._done(self)

    def _feed_receipt(self, data: bytes) -> None:
        data = self._buffer + data
        self._buffer = data
        head = answers.read_head(data)
        if head is None or len(data) < head.size + (head.length or 0):
            return
        if head.status != 200 or data[head.size :] != received_body(self._size, intact=True):
            raise BadAnswerError(f"an upload was answered with {data[:60]!r} ... {data[-60:]!r}")
        self._buffer = b""
        self._writer = None
        self._tally.answered(self._asked_ns)
        self._done(self)


class WebSocketClient(Client):
    """Says one message at a time and waits for exactly that message to come back."""

    __slots__ = ("_echo", "_key", "_messages", "_upgraded")

    def __init__(
        self, tally: Tally, done: Callable[[Client], None], *, messages: list[tuple[bytes, bytes]]
    ) -> None:
        super().__init__(tally, done)
        self._messages = itertools.cycle(messages)
        self._echo = b""
        self._key = base64.b64encode(random.randbytes(16))
        self._upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def upgrade(self, caller: Caller) -> None:
        """Shake hands; an error is left in the tally."""
        self.transport.write(handshake(caller, self._key))
        await self._upgraded

    def say(self) -> None:
        message, self._echo = next(self._messages)
        self._asked_ns = time.monotonic_ns()
        self.transport.write(message)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self._upgraded.done():
            self._upgraded.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        if not self._upgraded.done():
            self._on_handshake(data)
        elif len(data) < len(self._echo):
            self._buffer = data
        elif data != self._echo:
            self._fail("an echo that differs from its message")
        else:
            self._buffer = b""
            self._tally.answered(self._asked_ns)
            self._done(self)

    def _on_handshake(self, data: bytes) -> None:
        self._buffer = data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return
        self._buffer = b""
        accept = answers.header(data[: end + 2], b"sec-websocket-accept")
        if not data.startswith(b"HTTP/1.1 101") or accept != frames.accept_key(self._key):
            self._fail(f"the handshake was answered with {data[:60]!r}")
        else:
            self._upgraded.set_result(None)


def message_pool(size: int, count: int = 64) -> list[tuple[bytes, bytes]]:
    """Masked messages of that many bytes, each with the echo it must bring."""
    source = random.Random(size)
    payloads = [source.randbytes(size) for _ in range(count)]
    return [
        (frames.encode(payload, mask=source.randbytes(4)), frames.encode(payload))
        for payload in payloads
    ]
