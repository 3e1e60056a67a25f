"""The sandbox behind every subject: a raw asyncio server in a process of its own.

Started as `python -m bench.sandbox`; prints its port and serves until its standard input closes.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import cast

import uvloop

from bench import answers, frames
from bench.bodies import BadBodyError, BodyReader, BodyWriter
from bench.heads import ITEM_BODY, POST_BODY, STORED_BODY

_MAX_HEAD = 65_536


def _answer(status: str, body: bytes, content_type: str = "application/json") -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        "Date: Sat, 01 Aug 2026 09:30:00 GMT",
        "Server: sandbox",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


ITEM_ANSWER = _answer("200 OK", ITEM_BODY)
STORED_ANSWER = _answer("200 OK", STORED_BODY)
_NOT_STORED = _answer("422 Unprocessable Content", b'{"error":"the body is not what was sent"}')
_UNKNOWN = _answer("404 Not Found", b'{"error":"no such path"}')


def received_body(received: int, *, intact: bool) -> bytes:
    """What an upload is answered with."""
    return b'{"received":%d,"intact":%s}' % (received, b"true" if intact else b"false")


class SandboxConnection(asyncio.Protocol):
    """One connection from a proxy: requests one after the other, or an echoing WebSocket."""

    __slots__ = ("_buffer", "_feed", "_paused", "_sink", "_transport", "_writer")

    def __init__(self) -> None:
        self._buffer = b""
        self._feed: Callable[[bytes], None] = self._feed_requests
        self._paused = False
        self._sink: BodyReader | None = None
        self._writer: BodyWriter | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's isn't a subclass

    def data_received(self, data: bytes) -> None:
        self._feed(data)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._send_body()

    def _feed_requests(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        while data:
            end = data.find(b"\r\n\r\n") + 4
            if end < 4:
                if len(data) > _MAX_HEAD:
                    self._transport.abort()
                break
            if data.startswith(b"GET /items/"):
                self._transport.write(ITEM_ANSWER)
                data = data[end:]
                continue
            rest = self._on_request(data[: end - 2], data[end:])
            if rest is None:
                break
            data = rest
        if self._feed == self._feed_requests:
            self._buffer = data

    def _on_request(self, head: bytes, rest: bytes) -> bytes | None:
        """Answer a request; return what follows it, None when its body must still come."""
        method, target = head.split(b" ", 2)[:2]
        path, _, query = target.partition(b"?")
        if method == b"POST" and path.startswith(b"/items/"):
            return self._on_post(rest)
        if path == b"/big":
            options = dict(pair.split(b"=") for pair in query.split(b"&"))
            self._start_body(int(options[b"n"]), chunked=options[b"chunked"] == b"1")
        elif path == b"/upload":
            length = answers.header(head, b"content-length")
            self._sink = BodyReader(None if length is None else int(length))
            self._feed = self._feed_upload
            self._feed_upload(rest)
            return b""
        elif path == b"/ws":
            self._upgrade(answers.header(head, b"sec-websocket-key") or b"")
            self._feed_frames(rest)
            return b""
        elif path == b"/head":
            self._transport.write(_answer("200 OK", head, "application/octet-stream"))
        else:
            self._transport.write(_UNKNOWN)
        return rest

    def _on_post(self, rest: bytes) -> bytes | None:
        if len(rest) < len(POST_BODY):
            return None
        self._transport.write(STORED_ANSWER if rest.startswith(POST_BODY) else _NOT_STORED)
        return rest[len(POST_BODY) :]

    def _start_body(self, size: int, *, chunked: bool) -> None:
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n{framing}\r\n\r\n"
        self._transport.write(head.encode())
        self._writer = BodyWriter(size, chunked=chunked)
        self._send_body()

    def _send_body(self) -> None:
        while self._writer is not None and not self._paused:
            piece = self._writer.next_piece()
            if not piece:
                self._writer = None
                return
            self._transport.write(piece)

    def _feed_upload(self, data: bytes) -> None:
        assert self._sink is not None
        try:
            self._buffer = self._sink.feed(data)
        except BadBodyError:
            self._transport.abort()
            return
        if self._sink.finished:
            body = received_body(self._sink.received, intact=self._sink.intact)
            self._transport.write(_answer("200 OK", body))
            self._sink = None
            self._feed = self._feed_requests

    def _upgrade(self, key: bytes) -> None:
        self._transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: " + frames.accept_key(key) + b"\r\n\r\n"
        )
        self._buffer = b""
        self._feed = self._feed_frames

    def _feed_frames(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        while (frame := frames.decode(data)) is not None:
            opcode = frames.PONG if frame.opcode == frames.PING else frame.opcode
            self._transport.write(frames.encode(frame.payload, opcode=opcode))
            if opcode == frames.CLOSE:
                self._transport.close()
            data = data[frame.size :]
        self._buffer = data


async def serve() -> None:
    """Serve on a port of the kernel's choice until standard input closes."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(SandboxConnection, "127.0.0.1", 0, backlog=4_096)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        gc.freeze()
        await loop.run_in_executor(None, sys.stdin.read)
        server.close()


if __name__ == "__main__":
    uvloop.run(serve())
