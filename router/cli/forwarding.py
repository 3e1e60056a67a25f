"""Forwarding: ports of this machine, or standard input and output, that lead to a sandbox's ports."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from router.cli.raw_link import CannotConnect, LinkLost, RawLink, Router

TOKEN_VARIABLE: Final = "SANDBOX_TOKEN"  # noqa: S105 - a name
_MAX_TOKEN: Final = 16_384
_READ: Final = 65_536
_PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0)
"""Between attempts, where a moment may help: a replica that restarts, a limit that is reached just now."""
_INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Forward:
    """A port of this machine (0 = any free one), and the sandbox's port that it leads to."""

    local: int
    port: int


@dataclass(frozen=True, slots=True)
class Way:
    """How to reach one sandbox."""

    router: Router
    namespace: str
    name: str
    token_file: Path | None
    token: str = field(default="", repr=False)
    """For where there is no file."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    async def open(self, port: int) -> RawLink:
        """Returns a connection to the sandbox's port, tried again where a moment may help. Raises CannotConnect."""
        for pause_s in (*_PAUSES_S, None):
            try:
                return await RawLink.open(
                    self.router,
                    namespace=self.namespace,
                    name=self.name,
                    port=port,
                    token=self._token(),
                )
            except CannotConnect as exc:
                if pause_s is None or not exc.is_passing:
                    raise
            await asyncio.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def _token(self) -> str:
        """Returns the token as it is now, for tokens are renewed; "" for none. Raises CannotConnect."""
        source = TOKEN_VARIABLE if self.token_file is None else str(self.token_file)
        try:
            text = self.token if self.token_file is None else self.token_file.read_text("ascii")
        except (OSError, ValueError) as exc:
            raise CannotConnect(f"no token can be read from {source}: {exc}") from exc
        token = text.strip()
        if len(token) > _MAX_TOKEN or not all("!" <= c <= "~" for c in token):
            raise CannotConnect(f"{source} holds no token: one line of visible ASCII")
        return token


class Source(Protocol):
    """Where the bytes for the sandbox come from."""

    async def read(self, most: int, /) -> bytes:
        """Returns what came, b"" at the end. Raises OSError."""
        ...


class Sink(Protocol):
    """Where the sandbox's bytes go. Raises OSError."""

    def write(self, data: bytes, /) -> None: ...

    async def drain(self) -> None: ...


async def relay(link: RawLink, source: Source, sink: Sink) -> None:
    """Relays until the sandbox has ended. Raises LinkLost, and OSError where the sink is gone."""
    lost: LinkLost | OSError | None = None
    async with asyncio.TaskGroup() as group:
        up = group.create_task(_send(link, source))
        try:
            while data := await link.receive():
                sink.write(data)
                await sink.drain()
        except (LinkLost, OSError) as exc:
            lost = exc
        up.cancel()
    if lost is not None:
        raise lost


async def _send(link: RawLink, source: Source) -> None:
    """Sends what the source has, and how it ended. That the link is lost is for who receives."""
    with contextlib.suppress(LinkLost):
        try:
            while data := await source.read(_READ):
                await link.send(data)
        except OSError:
            await link.send_end(is_cut=True)
        else:
            await link.send_end()


# --- ports of this machine ------------------------------------------------------------------


async def _carry(
    way: Way, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carries one connection that came to a port of this machine."""
    try:
        link = await way.open(port)
    except CannotConnect as exc:
        _say(str(exc))
        _reset(writer)
        return
    try:
        await relay(link, reader, writer)
    except LinkLost as exc:
        _say(f"a connection to port {port} was cut: {exc}")
        _reset(writer)
    except OSError:
        _reset(writer)  # its program has gone
    finally:
        writer.close()
        await link.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends it so that what was cut doesn't look whole."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _listen(way: Way, forwards: Sequence[Forward]) -> int:
    async with contextlib.AsyncExitStack() as servers:
        group = await servers.enter_async_context(asyncio.TaskGroup())

        def came(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            group.create_task(_carry(way, port, reader, writer))

        for forward in forwards:
            try:
                server = await asyncio.start_server(
                    partial(came, forward.port), "127.0.0.1", forward.local
                )
            except OSError as exc:
                _say(
                    f"127.0.0.1:{forward.local} can't be listened on ({exc.strerror or exc}): "
                    f"give another port of this machine, like 0:{forward.port} for any free one"
                )
                return 2
            await servers.enter_async_context(server)
            where = server.sockets[0].getsockname()[1]
            print(f"127.0.0.1:{where} leads to {way} port {forward.port}", flush=True)
        await asyncio.Event().wait()
    return 0


# --- standard input and output --------------------------------------------------------------


class _FileSource:
    """A regular file, which no event loop can wait for."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def read(self, most: int, /) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(None, os.read, self._fd, most)


class _FileSink:
    """A regular file, which takes everything at once."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, data: bytes, /) -> None:
        while data:
            data = data[os.write(self._fd, data) :]

    async def drain(self) -> None:
        """There is always room."""


async def _source(fd: int) -> Source:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    try:
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", closefd=False)
        )
    except ValueError:
        return _FileSource(fd)
    return reader


async def _sink(fd: int) -> Sink:
    loop = asyncio.get_running_loop()
    unused = asyncio.StreamReader()
    try:
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(unused), os.fdopen(fd, "wb", closefd=False)
        )
    except ValueError:
        return _FileSink(fd)
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def _through(way: Way, port: int) -> int:
    """Connects standard input and output. Returns the exit code."""
    try:
        link = await way.open(port)
    except CannotConnect as exc:
        _say(str(exc))
        return 1
    sink = await _sink(1)
    try:
        await relay(link, await _source(0), sink)
    except (LinkLost, OSError) as exc:
        _say(f"the connection was cut: {exc}")
        return 1
    finally:
        if isinstance(sink, asyncio.StreamWriter):
            sink.close()
            with contextlib.suppress(OSError):
                await sink.wait_closed()
        await link.close()
    return 0


def _say(message: str) -> None:
    print(f"sandbox-router connect: {message}", file=sys.stderr, flush=True)


def run(way: Way, forwards: Sequence[Forward], *, stdio: bool) -> int:
    """Forwards until it is interrupted, or the connection has ended. Returns the exit code."""
    try:
        return asyncio.run(_through(way, forwards[0].port) if stdio else _listen(way, forwards))
    except KeyboardInterrupt:
        return _INTERRUPTED
