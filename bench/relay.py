"""What moving bytes costs at least: bare relays between two sockets, by each means that Linux and Python have.

Run `python -m bench.relay`. No head is read and nothing is decided, so a means that isn't cheaper here can't pay in the
router. Source and sink share one core and the relay has another; what is shown is the CPU time of the relay's process
for 10⁶ bytes, best of several rounds, the means taken in turn.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import platform
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import uvloop

ROUNDS = 3
MB = 1_000_000
BYTES = 1_000 * MB
READ_BYTES = 262_144
PIPE_BYTES = 1_048_576
HIGH_WATER_BYTES = 65_536
MOVE_NONBLOCK = 3
"""SPLICE_F_MOVE | SPLICE_F_NONBLOCK."""

Relay = Callable[[socket.socket, socket.socket], "asyncio.Future[None]"]


class _To(asyncio.Protocol):
    """Stops the source while the sink has no room."""

    def __init__(self) -> None:
        self.source: asyncio.Transport | None = None

    def pause_writing(self) -> None:
        if self.source is not None:
            self.source.pause_reading()

    def resume_writing(self) -> None:
        if self.source is not None:
            self.source.resume_reading()


class _From(asyncio.Protocol):
    """As the router reads: the loop's buffer, copied once into bytes."""

    def __init__(self, to: asyncio.Transport, done: asyncio.Future[None]) -> None:
        self.to = to
        self.done = done

    def data_received(self, data: bytes) -> None:
        self.to.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


class _FromBuffer(asyncio.BufferedProtocol):
    """Reads into a buffer of its own and sends from there; only what the kernel doesn't take is copied."""

    def __init__(self, to: asyncio.Transport, done: asyncio.Future[None]) -> None:
        self.to = to
        self.done = done
        self.fd = to.get_extra_info("socket").fileno()
        self.view = memoryview(bytearray(READ_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view

    def buffer_updated(self, nbytes: int) -> None:
        sent = 0
        if not self.to.get_write_buffer_size():
            with suppress(BlockingIOError):
                sent = os.write(self.fd, self.view[:nbytes])
        if sent < nbytes:
            self.to.write(bytes(self.view[sent:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def _by_transports(
    source: socket.socket,
    sink: socket.socket,
    protocol: Callable[[asyncio.Transport, asyncio.Future[None]], asyncio.BaseProtocol],
) -> None:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    to_transport, to = await loop.create_connection(_To, sock=sink)
    sender = cast(asyncio.Transport, to_transport)
    sender.set_write_buffer_limits(high=HIGH_WATER_BYTES)
    reader, _ = await loop.create_connection(lambda: protocol(sender, done), sock=source)
    to.source = cast(asyncio.Transport, reader)
    await done
    sender.close()


class _Direct:
    """Moves what a ready socket has with `move`, which returns None when the sink is full and 0 at the end."""

    def __init__(
        self, source: socket.socket, sink: socket.socket, move: Callable[[], int | None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._sink = sink
        self._move = move
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(source, self._ready)

    def _ready(self) -> None:
        try:
            moved = self._move()
        except BlockingIOError:
            return
        if moved is None:
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._sink, self._room)
        elif moved == 0:
            self._loop.remove_reader(self._source)
            self.done.set_result(None)

    def _room(self) -> None:
        self._loop.remove_writer(self._sink)
        self._loop.add_reader(self._source, self._ready)
        self._ready()


async def _by_copy(source: socket.socket, sink: socket.socket) -> None:
    view, rest = memoryview(bytearray(PIPE_BYTES)), memoryview(b"")

    def move() -> int | None:
        nonlocal rest
        count = len(rest)
        if not rest:
            count = source.recv_into(view)
            rest = view[:count]
        while rest:
            try:
                rest = rest[sink.send(rest) :]
            except BlockingIOError:
                return None
        return count

    await _Direct(source, sink, move).done
    sink.close()


async def _by_splice(source: socket.socket, sink: socket.socket) -> None:
    out, into = os.pipe2(os.O_NONBLOCK)
    left = 0

    def move() -> int | None:
        nonlocal left
        count = left
        if not left:
            count = left = os.splice(source.fileno(), into, PIPE_BYTES, flags=MOVE_NONBLOCK)
        while left:
            try:
                left -= os.splice(out, sink.fileno(), left, flags=MOVE_NONBLOCK)
            except BlockingIOError:
                return None
        return count

    await _Direct(source, sink, move).done
    sink.close()
    os.close(out)
    os.close(into)


async def _by_protocol(source: socket.socket, sink: socket.socket) -> None:
    await _by_transports(source, sink, _From)


async def _by_buffer(source: socket.socket, sink: socket.socket) -> None:
    await _by_transports(source, sink, _FromBuffer)


MEANS = {
    "Protocol, as the router does": _by_protocol,
    "BufferedProtocol, sent from its buffer": _by_buffer,
    "recv_into and send, 1 MiB at a time": _by_copy,
    "splice through a pipe of 1 MiB": _by_splice,
}


def _peers(port_of_source: int, port_of_sink: int) -> None:
    """The two ends: sends BYTES to whoever connects first, and takes what comes."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    source = socket.create_connection(("127.0.0.1", port_of_source))
    sink = socket.create_connection(("127.0.0.1", port_of_sink))
    if os.fork() == 0:
        piece = bytes(READ_BYTES)
        for _ in range(BYTES // READ_BYTES):
            source.sendall(piece)
        source.sendall(piece[: BYTES % READ_BYTES])
        os._exit(0)
    source.close()
    view, taken = bytearray(READ_BYTES), 0
    while count := sink.recv_into(view):
        taken += count
    os.wait()
    assert taken == BYTES, taken


def cost_ms(means: str) -> float:
    """Returns the CPU time of the relay for each MB, in ms."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        ports = one.getsockname()[1], two.getsockname()[1]
        peers = multiprocessing.get_context("fork").Process(target=_peers, args=ports)
        peers.start()
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        source, sink = one.accept()[0], two.accept()[0]
    source.setblocking(False)
    sink.setblocking(False)
    begun = time.process_time()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(MEANS[means](source, sink))
    cost = time.process_time() - begun
    peers.join()
    if peers.exitcode:
        raise SystemExit(f"{means}: not everything arrived")
    return cost * 1000 * MB / BYTES


def main() -> None:
    """Measures every means and prints them."""
    usual = os.sched_getaffinity(0)
    found: dict[str, list[float]] = {means: [] for means in MEANS}
    for _ in range(ROUNDS):
        for means in MEANS:
            os.sched_setaffinity(0, usual)
            found[means].append(cost_ms(means))
    print(
        f"Linux {platform.release()}, Python {platform.python_version()}, uvloop {uvloop.__version__}"
    )
    for means, costs in found.items():
        print(f"{means:<42} {min(costs):6.3f} ms CPU per MB (highest {max(costs):.3f})")


if __name__ == "__main__":
    main()
