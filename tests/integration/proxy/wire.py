"""Wire: one end of a TCP connection in a test, byte for byte, for clients and sandboxes alike."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable

from tests.integration.proxy.messages import Message, body_framing, parse_head

PATIENCE_S = 20.0
"""How long a test waits for what must come: long enough for a busy machine, and never waited out when all is well."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class CutShortError(AssertionError):
    """The connection ended inside a message. `how` is "eof" or "reset"; `message` is what came of it."""

    def __init__(self, message: Message, how: str) -> None:
        super().__init__(f"{how} inside {message}")
        self.message = message
        self.how = how


class Wire(asyncio.Protocol):
    """Keeps every byte that comes until somebody reads it, and knows how the connection ended."""

    def __init__(self, on_connect: Callable[[Wire], None] = lambda wire: None) -> None:
        self.unread = bytearray()
        self.total = 0
        """Bytes that have come, read or not."""
        self.ended = ""
        """How the peer ended it: "", "eof" or "reset"."""
        self.is_writable = True
        self.keeps = True
        """False: what comes is counted alone."""
        self._is_lost = False
        self._on_connect = on_connect
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Wire unread={bytes(self.unread[:80])!r} total={self.total} ended={self.ended!r}>"

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._on_connect(self)

    def data_received(self, data: bytes) -> None:
        if self.keeps:
            self.unread += data
        self.total += len(data)
        self._changed.set()

    def eof_received(self) -> bool:
        self.ended = "eof"
        self._changed.set()
        # Stays open for sending, as a half-closing peer expects; TLS knows no half.
        return self.transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if not self.ended:
            self.ended = "eof" if exc is None else "reset"
        elif exc is not None:
            self.ended = "reset"
        self._changed.set()

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self._changed.set()

    # --- sending ---

    def send(self, *pieces: bytes) -> None:
        """Sends the pieces as one write; what the peer doesn't take waits in this process. Nothing happens when all is over."""
        if not self._is_lost:
            self.transport.write(b"".join(pieces))

    async def send_apart(self, *pieces: bytes) -> None:
        """Sends each piece so that it arrives alone."""
        self.without_delay()
        for piece in pieces:
            self.send(piece)
            for _ in range(3):  # the loop comes round, and with it the reader
                await asyncio.sleep(0)

    def without_delay(self) -> None:
        if not self._is_lost:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def half_close(self) -> None:
        """Says that no more comes, and goes on reading."""
        if not self._is_lost:
            self.transport.write_eof()

    def close(self) -> None:
        self.transport.close()

    def reset(self) -> None:
        """Ends with a RST, as a peer that crashed."""
        if not self._is_lost:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.transport.abort()

    # --- reading ---

    @property
    def socket(self) -> socket.socket:
        return self.transport.get_extra_info("socket")

    @property
    def is_over(self) -> bool:
        """True once this end is closed too."""
        return self._is_lost

    def stop_reading(self) -> None:
        self.transport.pause_reading()

    def start_reading(self) -> None:
        self.transport.resume_reading()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Returns once `is_so()`. Raises AssertionError when it doesn't come to that."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"waited in vain: {self!r}") from None

    async def read(self, size: int) -> bytes:
        """Returns the next `size` bytes. Raises CutShortError."""
        await self.until(lambda: len(self.unread) >= size or self.ended != "")
        if len(self.unread) < size:
            raise CutShortError(Message(line=bytes(self.unread)), self.ended)
        return self._take(size)

    async def read_through(self, mark: bytes) -> bytes:
        """Returns the next bytes up to and with `mark`. Raises CutShortError."""
        await self.until(lambda: mark in self.unread or self.ended != "")
        at = self.unread.find(mark)
        if at < 0:
            raise CutShortError(Message(line=bytes(self.unread)), self.ended)
        return self._take(at + len(mark))

    async def rest(self) -> tuple[bytes, str]:
        """Returns everything until the peer ends, and how it does."""
        await self.until(lambda: self.ended != "")
        return self._take(len(self.unread)), self.ended

    async def end(self) -> str:
        """Returns how the peer ends, which must be without another byte."""
        rest, how = await self.rest()
        assert rest == b"", f"more came before the end: {rest[:200]!r}"
        return how

    async def request(self) -> Message:
        """Returns the next request, whole. Raises CutShortError."""
        return await self._message(is_answer=False, asked_by="")

    async def answer(self, asked_by: str = "GET") -> Message:
        """Returns the next final answer, with the interim ones before it. Raises CutShortError."""
        interim = []
        while True:
            message = await self._message(is_answer=True, asked_by=asked_by)
            if message.status >= 200 or message.status == 101:
                message.interim = interim
                return message
            interim.append(message)

    async def head(self) -> Message:
        """Returns the next message's head alone; its body stays to be read."""
        return parse_head(await self.read_through(b"\r\n\r\n"))

    async def _message(self, *, is_answer: bool, asked_by: str) -> Message:
        message = await self.head()
        framing = body_framing(message, is_answer=is_answer, asked_by=asked_by)
        try:
            if framing == "chunked":
                await self._read_chunks(message)
            elif framing == "until close":
                message.body, how = await self.rest()
                if how != "eof":
                    raise CutShortError(message, how)
            else:
                message.body = await self.read(framing)
        except CutShortError as cut:
            if framing != "until close" and framing != "chunked":
                message.body = cut.message.line
            raise CutShortError(message, cut.how) from None
        return message

    async def _read_chunks(self, message: Message) -> None:
        while size := int((await self.read_through(b"\r\n"))[:-2].partition(b";")[0], 16):
            try:
                message.body += await self.read(size)
            except CutShortError as cut:
                message.body += cut.message.line
                raise
            assert await self.read(2) == b"\r\n", "a chunk is longer than it says"
            message.chunks.append(size)
        while (line := await self.read_through(b"\r\n")) != b"\r\n":
            name, _, value = line[:-2].partition(b":")
            message.trailers.append((name, value.strip(b" \t")))

    def _take(self, size: int) -> bytes:
        taken = bytes(self.unread[:size])
        del self.unread[:size]
        return taken


async def dial(
    address: tuple[str, int],
    *,
    buffers: int | None = None,
    tls: ssl.SSLContext | None = None,
) -> Wire:
    """Returns a connection; small `buffers` (bytes) make the kernel hold little in either direction."""
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    try:
        sock.setblocking(False)
        if buffers is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers)
        await loop.sock_connect(sock, address)
        _, wire = await loop.create_connection(
            Wire, sock=sock, ssl=tls, server_hostname=None if tls is None else "localhost"
        )
    except BaseException:
        sock.close()
        raise
    return wire


async def settled() -> None:
    """Returns after everything that is on its way within this process has arrived: for "nothing more happens"."""
    for _ in range(8):
        await asyncio.sleep(0.001)


async def until(is_so: Callable[[], bool], *, what: str = "it") -> None:
    """Returns once `is_so()`, looking often. Raises AssertionError when it doesn't come to that."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"waited in vain for {what}") from None
