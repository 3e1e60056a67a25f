"""The product's own worker without a network: an event loop whose connections are the harness's.

The only module of the plane measurements that knows how the router is put together.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import jwt
import uvloop

from router.app.sockets import Sockets
from router.app.worker import Stop, Worker
from router.settings import load

CLIENT_ADDRESS = ("127.0.0.1", 40_000)
SESSION_KEYS = "{directory}/session-keys"
"""In a case's settings: the file with the keys that the stage's session is signed by."""
_SECRET = base64.b64encode(bytes(range(48)))
_SESSION_SECRET = base64.b64encode(bytes(range(48, 96)))
_START_TIMEOUT_S = 30.0


class Wire:
    """A connection's transport, whose bytes the harness carries: what is written is noted, and nothing is sent.

    `arrive(data)` gives the protocol behind it bytes, as an event loop would. A wire that was written to puts itself
    on the list `written` once, until the harness sets `is_noted` back.
    """

    __slots__ = ("_is_closing", "_protocol", "_sent", "_socket", "_written", "arrive", "is_noted")

    def __init__(self, written: list[Wire], quiet: socket.socket) -> None:
        """`quiet` is for protocols that ask the kernel what waits to be read: nothing ever does."""
        self._written = written
        self._socket = quiet
        self._is_closing = False
        self.is_noted = False
        self._sent: bytes | list[bytes] = b""
        self.arrive: Callable[[bytes], object]

    def text(self) -> bytes:
        """What was written last."""
        return b"".join(self._sent) if isinstance(self._sent, list) else bytes(self._sent)

    # --- asyncio.Transport, as far as protocols use it ---

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            self.arrive = _into_buffer_of(protocol)
        else:
            self.arrive = protocol.data_received

    def get_protocol(self) -> Any:
        return self._protocol

    def write(self, data: bytes | list[bytes]) -> None:
        self._sent = data
        if not self.is_noted:
            self.is_noted = True
            self._written.append(self)

    writelines = write

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {"peername": CLIENT_ADDRESS, "socket": self._socket}
        return known.get(name, default)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_reading(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self._is_closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close


def _into_buffer_of(protocol: asyncio.BufferedProtocol) -> Callable[[bytes], object]:
    def arrive(data: bytes) -> None:
        view = memoryview(data)
        while view:
            buffer = memoryview(protocol.get_buffer(len(view)))
            taken = min(len(buffer), len(view))
            buffer[:taken] = view[:taken]
            protocol.buffer_updated(taken)
            view = view[taken:]

    return arrive


class _Server:
    """What a listener holds while it accepts."""

    sockets = ()

    def close(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass


class _Loop(uvloop.Loop):
    """Accepts and dials nothing: whoever listens or connects gets Wires."""

    def __init__(self) -> None:
        super().__init__()
        self.make_client: Callable[[], Any] | None = None
        self.pair = socket.socketpair()
        self.to_clients: list[Wire] = []
        self.to_sandboxes: list[Wire] = []

    def wire(self, protocol: Any, written: list[Wire]) -> Wire:
        wire = Wire(written, self.pair[0])
        wire.set_protocol(protocol)
        protocol.connection_made(wire)
        return wire

    async def create_server(
        self, protocol_factory: Callable[[], Any], *_: Any, sock: Any = None, **__: Any
    ) -> Any:
        self.make_client = protocol_factory
        if sock is not None:
            sock.close()
        return _Server()

    async def create_connection(
        self, protocol_factory: Callable[[], Any], *_: Any, **__: Any
    ) -> Any:
        protocol = protocol_factory()
        return self.wire(protocol, self.to_sandboxes), protocol


class Stage:
    """One running worker, its clients' wires and its sandboxes'."""

    def __init__(self, loop: _Loop, token: str, session: str) -> None:
        """`session` is a session's token for box-0 on port 8888."""
        self._loop = loop
        self.token = token
        self.session = session

    @property
    def to_clients(self) -> list[Wire]:
        """The clients' wires that were written to."""
        return self._loop.to_clients

    @property
    def to_sandboxes(self) -> list[Wire]:
        """The sandboxes' wires that were written to."""
        return self._loop.to_sandboxes

    def connect(self) -> Wire:
        """One more client."""
        assert self._loop.make_client is not None
        return self._loop.wire(self._loop.make_client(), self._loop.to_clients)


@contextlib.asynccontextmanager
async def _staged(settings: Mapping[str, str], sandboxes: int) -> AsyncIterator[Stage]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _Loop)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        asked = {key: value.replace("{directory}", name) for key, value in settings.items()}
        flags = {**_flags(Path(name), sandboxes), **asked}
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        loaded = load(flags)
        worker = Worker(loaded.settings, Sockets(http=[listener]))
        stop, listening = Stop(), asyncio.Event()
        running = loop.create_task(worker.run(stop, on_listening=listening.set))
        ready = loop.create_task(listening.wait())
        try:
            await asyncio.wait(
                (running, ready), timeout=_START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
            )
            if running.done():
                running.result()
            yield Stage(loop, _token(), _session())
        finally:
            ready.cancel()
            stop.ask()
            stop.ask()
            await asyncio.wait((running, ready))
            for each in (listener, *loop.pair):
                each.close()


def perform(
    act: Callable[[Stage], Any], settings: Mapping[str, str] | None = None, *, sandboxes: int = 1
) -> Any:
    """Returns what `await act(stage)` returns, on a worker with these settings that knows box-0 and so on."""

    async def performance() -> Any:
        async with _staged(settings or {}, sandboxes) as stage:
            return await act(stage)

    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(performance())


def _flags(directory: Path, sandboxes: int) -> dict[str, str]:
    table = directory / "sandboxes.yaml"
    entries = (f"  - {{name: box-{n}, host: 127.0.0.1}}\n" for n in range(sandboxes))
    table.write_text("sandboxes:\n" + "".join(entries))
    secret = directory / "secret"
    secret.write_bytes(_SECRET)
    (directory / "session-keys").write_bytes(_SESSION_SECRET)
    return {
        "http-bind": "127.0.0.1:8080",
        "discovery": "file",
        "sandboxes-file": str(table),
        "auth": "jwt",
        "jwt-secret-file": str(secret),
        "access-log": "false",
        "drain-delay": "0s",
        "shutdown-timeout": "1s",
    }


def _token() -> str:
    """A gateway token for every sandbox."""
    claims = {
        "sub": "session-8c1f",
        "jti": "5f0c6c7e",
        "exp": int(time.time()) + 86_400,
        "sandboxes": [{"namespace": "default", "name": "*"}],
    }
    return jwt.encode(claims, _SECRET, "HS256")


def _session() -> str:
    """A session in box-0 on port 8888."""
    now = int(time.time())
    claims = {
        "sid": "5f0c6c7e5f0c6c7e",
        "sub": "session-8c1f",
        "iat": now,
        "exp": now + 86_400,
        "namespace": "default",
        "name": "box-0",
        "port": 8888,
    }
    return jwt.encode(claims, _SESSION_SECRET, "HS256", headers={"typ": "session+jwt"})
