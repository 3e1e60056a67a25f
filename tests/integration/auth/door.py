"""A whole router in this process, a sandbox that remembers what reached it, and raw requests between them."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from router.app.sockets import Sockets
from router.app.worker import Stop, Worker
from router.settings import load
from router.settings.groups import Settings

REDIRECT = (
    b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n"
)
POD = "3b0c6c1e-0000-4000-8000-000000000001"


class Sandbox:
    """An HTTP/1.1 server that keeps every head it got, answers 200, and echoes bytes after an Upgrade."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        self.port = 0
        self.connections = 0
        self.open_connections = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Sandbox]:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                if b"/redirect" in head:
                    writer.write(REDIRECT)
                    continue
                if b"\r\nupgrade:" in head.lower():
                    await self._echo(reader, writer)
                    return
                if b"/endless" in head:
                    await self._stream(writer)
                    return
                writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open_connections -= 1
            writer.close()

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        )
        while data := await reader.read(65536):
            writer.write(data)

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        while True:
            writer.write(b"data: tick\n\n")
            await writer.drain()
            await asyncio.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response, with the informational ones that came before it."""

    status: int
    headers: dict[str, str]
    body: bytes
    informational: tuple[int, ...] = ()

    @property
    def code(self) -> str:
        """The router's own code; "" when the sandbox answered."""
        return self.headers.get("x-sandbox-router-error", "")

    @property
    def detail(self) -> str:
        """The detail of the router's own answer."""
        detail: str = json.loads(self.body)["detail"]
        return detail


@dataclass
class Door:
    """The running router and how to knock."""

    worker: Worker
    http: tuple[str, int]
    https: tuple[str, int] | None
    sandbox: Sandbox
    settings: Settings
    opened: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(
        self, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Returns a connection to the router."""
        address = self.http if tls is None else self.https
        assert address is not None
        reader, writer = await asyncio.open_connection(
            *address, ssl=tls, server_hostname="localhost" if tls is not None else None
        )
        self.opened.append(writer)
        return reader, writer

    async def ask(
        self,
        *headers: tuple[str, str | bytes],
        method: str = "GET",
        path: str = "/",
        name: str = "box-a",
        namespace: str = "team-a",
        port: int = 8888,
        tls: ssl.SSLContext | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Returns the answer to one request on its own connection."""
        async with asyncio.timeout(10):
            reader, writer = await self.connect(tls)
            writer.write(
                request(
                    *headers, method=method, path=path, name=name, namespace=namespace, port=port
                )
                + body
            )
            return await read_answer(reader)

    def reached(self) -> int:
        """Returns how many requests the sandbox has seen."""
        return len(self.sandbox.heads)


def request(
    *headers: tuple[str, str | bytes],
    method: str = "GET",
    path: str = "/",
    name: str = "box-a",
    namespace: str = "team-a",
    port: int = 8888,
) -> bytes:
    """Returns a request head for a sandbox."""
    lines = [
        f"{method} {path} HTTP/1.1".encode(),
        b"Host: router.example",
        f"X-Sandbox-ID: {name}".encode(),
        f"X-Sandbox-Namespace: {namespace}".encode(),
        f"X-Sandbox-Port: {port}".encode(),
    ]
    for key, value in headers:
        lines.append(key.encode() + b": " + (value.encode() if isinstance(value, str) else value))
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Returns the next final response."""
    informational = []
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")[:-2]
        status = int(status_line.split(" ")[1])
        headers: dict[str, str] = {}
        for key, _, value in (line.partition(":") for line in lines):
            earlier = headers.get(key.lower())
            headers[key.lower()] = (
                value.strip() if earlier is None else f"{earlier}, {value.strip()}"
            )
        if status >= 200 or status == 101:
            length = int(headers.get("content-length", "0"))
            return Answer(status, headers, await reader.readexactly(length), tuple(informational))
        informational.append(status)


@asynccontextmanager
async def open_door(tmp_path: Path, **flags: Any) -> AsyncIterator[Door]:
    """Runs a router with these settings (underscores for dashes) before a sandbox `team-a/box-a`."""
    sandbox = Sandbox()
    async with sandbox.serving():
        if "kubeconfig" not in flags:
            flags = {
                "discovery": "file",
                "sandboxes_file": _sandboxes(tmp_path, sandbox.port),
                **flags,
            }
        given = {key.replace("_", "-"): str(value) for key, value in flags.items()}
        given = {"drain-delay": "0", "shutdown-timeout": "1s", "access-log": "false", **given}
        http, https = _bound(), _bound() if "tls-cert-file" in given else None
        if https is not None:
            given["https-bind"] = "127.0.0.1:1"  # its own sockets are handed over below
        settings = load(given).settings
        own = [sock.getsockname() for sock in (http, https) if sock is not None]
        worker = Worker(
            settings, Sockets(http=[http], https=[https] if https is not None else [], own=own)
        )
        stop, listening = Stop(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(worker.run(stop, on_listening=listening.set))
            waiting = group.create_task(listening.wait())
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                waiting.cancel()
                running.result()
            door = Door(worker, own[0], own[1] if https is not None else None, sandbox, settings)
            try:
                yield door
            finally:
                for writer in door.opened:
                    writer.close()
                stop.ask()
                stop.ask()
    gc.unfreeze()


def _bound() -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    return sock


def _sandboxes(tmp_path: Path, port: int) -> Path:
    """Returns a sandboxes-file: box-a is there, box-s is not ready, all in team-a; box-b is team-b's."""
    ports = {8888: port, 80: port}
    entry = {"namespace": "team-a", "host": "127.0.0.1", "ports": ports}
    public = {"uid": POD, "public-ports": "80"}
    path = tmp_path / "sandboxes.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "sandboxes": [
                    {**entry, "name": "box-a", "uid": POD},
                    {**entry, "name": "box-s", "state": "starting"},
                    {**entry, "name": "box-p", **public},
                    {**entry, "name": "box-z", **public, "state": "suspended"},
                    {**entry, "name": "box-b", "namespace": "team-b"},
                ]
            }
        )
    )
    return path
