"""Pod: a sandbox of the test's own, whose every connection the test holds in its hands."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

from router.tasks import TaskSet
from tests.integration.proxy.messages import Message, answer
from tests.integration.proxy.wire import PATIENCE_S, CutShortError, Wire

Reply = Callable[[Message], bytes]


class Pod:
    """Listens on a port; connections wait in accept() until the test takes them."""

    def __init__(self) -> None:
        self.wires: list[Wire] = []
        """Every connection that was ever made, in order."""
        self.port = 0
        self._waiting: asyncio.Queue[Wire] = asyncio.Queue()
        self._server: asyncio.Server | None = None

    @property
    def connections(self) -> int:
        """How often the sandbox was dialled."""
        return len(self.wires)

    async def accept(self) -> Wire:
        """Returns the next connection that nobody has taken yet."""
        try:
            return await asyncio.wait_for(self.next(), PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"nobody dialled; so far {self.connections}") from None

    async def next(self) -> Wire:
        """The same, however long it takes."""
        return await self._waiting.get()

    def is_waiting(self) -> bool:
        """True when a connection is there that nobody has taken."""
        return not self._waiting.empty()

    async def listen(self, sock: socket.socket | None = None, *, host: str = "127.0.0.1") -> None:
        """Begins to listen, on a new port of `host` unless a bound socket is given."""
        loop = asyncio.get_running_loop()
        where = {"sock": sock} if sock is not None else {"host": host, "port": 0}
        self._server = await loop.create_server(lambda: Wire(self._came), backlog=4096, **where)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop_listening(self) -> None:
        """From now on the port is refused; connections stay."""
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        """Ends everything at once."""
        self.stop_listening()
        for wire in self.wires:
            if not wire.is_over:
                wire.transport.abort()

    def _came(self, wire: Wire) -> None:
        self.wires.append(wire)
        self._waiting.put_nowait(wire)


@contextlib.asynccontextmanager
async def pod_listening(host: str = "127.0.0.1") -> AsyncIterator[Pod]:
    """Yields a Pod that listens."""
    pod = Pod()
    await pod.listen(host=host)
    try:
        yield pod
    finally:
        pod.close()


@contextlib.asynccontextmanager
async def serving(
    pod: Pod, reply: Reply | None = None, *, by: Callable[[Wire], Awaitable[None]] | None = None
) -> AsyncIterator[None]:
    """Lets the pod answer by itself: each request with `reply(request)`, or each connection as `by` handles it."""
    say = reply or (lambda message: answer(body=message.target))
    tasks = TaskSet()

    async def answer_each(wire: Wire) -> None:
        while True:
            wire.send(say(await wire.request()))

    async def attend(wire: Wire) -> None:
        try:
            await (by or answer_each)(wire)
        except CutShortError:
            wire.close()

    async def accept_for_ever() -> None:
        while True:
            tasks.start(attend(await pod.next()), name="attend")

    tasks.start(accept_for_ever(), name="accept")
    try:
        yield
    finally:
        await tasks.close()


def bound_socket() -> socket.socket:
    """Returns a bound socket that doesn't listen: its port is refused, and nobody else gets it."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.bind(("127.0.0.1", 0))
    return sock
