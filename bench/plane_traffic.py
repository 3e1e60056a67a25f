"""What passes through a staged worker: requests, messages and bodies, checked before and after they are timed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from bench import frames
from bench.bodies import LAST_CHUNK, MB, PATTERN
from bench.clients import message_pool
from bench.heads import Caller, download, handshake, upload_head
from bench.plane_stage import Stage, Wire

_TURNS = 1_000
_READ = 65_536
_NO_END = 10**15
_TIMES = 16
_STRIPPED = (b"authorization:", b"x-sandbox-id:")


class NotThroughError(Exception):
    """What should have come out of the worker didn't."""


class Traffic(Protocol):
    """One kind of work, done over and over."""

    units: float
    """How much one run does, in the case's unit."""

    async def prepare(self) -> None:
        """Opens the connections, warms them up and checks what crosses. Raises NotThroughError."""

    def run(self) -> None:
        """Does a fixed amount of work; this is what is timed."""

    def check(self) -> None:
        """Raises NotThroughError unless the last run came through whole."""


def _taken(written: list[Wire]) -> list[Wire]:
    """The wires that were written to since the last time."""
    wires = written.copy()
    written.clear()
    for wire in wires:
        wire.is_noted = False
    return wires


async def _written(written: list[Wire], count: int) -> list[Wire]:
    """The same, as soon as there are so many. Raises NotThroughError when they don't come."""
    for _ in range(_TURNS):
        if len(written) >= count:
            return _taken(written)
        await asyncio.sleep(0)
    raise NotThroughError(f"{len(written)} of {count} connections were written to")


class Requests:
    """Requests over some connections, each of which has at most one open, in batches of one for each connection."""

    def __init__(
        self,
        stage: Stage,
        requests: Sequence[bytes],
        *,
        answer: bytes,
        connections: int = 64,
        batches: int = 1,
        warm_up: int = 0,
    ) -> None:
        """`batches` make a run; the first `warm_up` requests are sent once before anything is timed."""
        self._stage = stage
        self._answer = answer
        self._batches = batches
        self._clients = [stage.connect() for _ in range(connections)]
        self._turns: Iterator[Sequence[bytes]] = itertools.cycle(
            requests[at : at + connections]
            for at in range(0, len(requests) - connections + 1, connections)
        )
        self._warm_up = max(2, warm_up // connections)
        self.units = float(connections * batches)

    async def prepare(self) -> None:
        for _ in range(self._warm_up):
            for wire, request in zip(self._clients, next(self._turns), strict=True):
                wire.arrive(request)
            for wire in await _written(self._stage.to_sandboxes, len(self._clients)):
                wire.arrive(self._answer)
            await _written(self._stage.to_clients, len(self._clients))
        self.run()
        self.check()

    def run(self) -> None:
        asked, answered = self._stage.to_sandboxes, self._stage.to_clients
        arrivals = [wire.arrive for wire in self._clients]
        answer = self._answer
        for _ in range(self._batches):
            for arrive, request in zip(arrivals, next(self._turns), strict=True):
                arrive(request)
            for wire in _taken(asked):
                wire.arrive(answer)
            if len(_taken(answered)) != len(arrivals):
                raise NotThroughError("a request was not answered at once")

    def check(self) -> None:
        for arrive, request in zip(
            (w.arrive for w in self._clients), next(self._turns), strict=True
        ):
            arrive(request)
        asked = _taken(self._stage.to_sandboxes)
        for wire in asked:
            sent = wire.text().lower()
            if any(name in sent for name in _STRIPPED) or b"x-forwarded-for:" not in sent:
                raise NotThroughError(f"the sandbox was sent {sent[:600]!r}")
            wire.arrive(self._answer)
        answered = {wire.text() for wire in _taken(self._stage.to_clients)}
        if len(asked) != len(self._clients) or answered != {self._answer}:
            raise NotThroughError(f"the clients were sent {answered}")


class Messages:
    """WebSocket messages that come back as they went, one at a time over each connection."""

    def __init__(self, stage: Stage, caller: Caller, *, size: int, connections: int = 64) -> None:
        self._stage = stage
        self._caller = caller
        self._message, self._echo = message_pool(size, 1)[0]
        self._clients = [stage.connect() for _ in range(connections)]
        self._batches = 32
        self.units = float(connections * self._batches)

    async def prepare(self) -> None:
        key = b"dGhlIHNhbXBsZSBub25jZQ=="
        for wire in self._clients:
            wire.arrive(handshake(self._caller, key))
        accepted = (
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        )
        accepted += b"Sec-WebSocket-Accept: " + frames.accept_key(key) + b"\r\n\r\n"
        for wire in await _written(self._stage.to_sandboxes, len(self._clients)):
            wire.arrive(accepted)
        await _written(self._stage.to_clients, len(self._clients))
        self.run()
        self.check()

    def run(self) -> None:
        asked, answered = self._stage.to_sandboxes, self._stage.to_clients
        message, echo = self._message, self._echo
        for _ in range(self._batches):
            for wire in self._clients:
                wire.arrive(message)
            for wire in _taken(asked):
                wire.arrive(echo)
            _taken(answered)

    def check(self) -> None:
        for wire in self._clients:
            wire.arrive(self._message)
        for wire in _taken(self._stage.to_sandboxes):
            if wire.text() != self._message:
                raise NotThroughError("a message that the sandbox was not sent as it was said")
            wire.arrive(self._echo)
        echoes = [wire.text() for wire in _taken(self._stage.to_clients)]
        if echoes != [self._echo] * len(self._clients):
            raise NotThroughError("an echo that differs from its message")


class Body:
    """One body without an end, up or down, as it comes out of large reads."""

    def __init__(self, stage: Stage, caller: Caller, *, up: bool, chunked: bool) -> None:
        self._stage = stage
        self._caller = caller
        self._up = up
        self._chunked = chunked
        self._client = stage.connect()
        self._source: Wire
        whole = _chunks(64) if chunked else PATTERN * 64
        self._pieces = [whole[at : at + _READ] for at in range(0, len(whole), _READ)]
        self.units = _TIMES * 64 * len(PATTERN) / MB

    async def prepare(self) -> None:
        head = upload_head if self._up else download
        self._client.arrive(head(self._caller, _NO_END, chunked=self._chunked))
        (sandbox,) = await _written(self._stage.to_sandboxes, 1)
        if not self._up:
            framing = (
                b"Transfer-Encoding: chunked" if self._chunked else b"Content-Length: %d" % _NO_END
            )
            sandbox.arrive(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n")
            await _written(self._stage.to_clients, 1)
        self._source = self._client if self._up else sandbox
        self.run()
        self.check()

    @property
    def _sink(self) -> list[Wire]:
        return self._stage.to_sandboxes if self._up else self._stage.to_clients

    def run(self) -> None:
        arrive = self._source.arrive
        for _ in range(_TIMES):
            for piece in self._pieces:
                arrive(piece)
        _taken(self._sink)

    def check(self) -> None:
        crossed = []
        for piece in self._pieces:
            self._source.arrive(piece)
            crossed += [wire.text() for wire in _taken(self._sink)]
        if b"".join(crossed) != b"".join(self._pieces):
            raise NotThroughError("a body that came out otherwise than it went in")


def _chunks(count: int) -> bytes:
    return (b"%x\r\n" % len(PATTERN) + PATTERN + b"\r\n") * count


def chunked_answer(body: bytes) -> bytes:
    """A whole answer whose body comes in two chunks."""
    middle = len(body) // 2
    parts = (b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:middle], body[middle:]))
    return (
        b"HTTP/1.1 200 OK\r\nDate: Sat, 01 Aug 2026 09:30:00 GMT\r\nServer: sandbox\r\n"
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
        b"Cache-Control: no-store\r\n\r\n" + b"".join(parts) + LAST_CHUNK
    )


def answer_with_many_headers(body: bytes, count: int = 40) -> bytes:
    """A whole answer with so many lines more than usual, as applications behind frameworks send them."""
    more = b"".join(b"X-App-Header-%d: value-of-%d; some=thing\r\n" % (n, n) for n in range(count))
    return (
        b"HTTP/1.1 200 OK\r\nDate: Sat, 01 Aug 2026 09:30:00 GMT\r\nServer: sandbox\r\n"
        b"Content-Type: application/json\r\nCache-Control: no-store\r\n"
        b"%bContent-Length: %d\r\n\r\n%b" % (more, len(body), body)
    )


Make = Callable[[Stage], Traffic]
