"""A sandbox for tests through a gateway: it shows what arrives, when it arrives, and when its client leaves."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import WSMessage, WSMsgType, web

PIECE = bytes(range(256)) * 256
"""64 KiB that are no zeros."""


@dataclass(slots=True)
class Sandbox:
    """What a test may hold back, by names of its own choice, and what it may wait for."""

    port: int = 0
    gates: dict[str, asyncio.Event] = field(default_factory=dict)

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    async def told(self, request: web.Request) -> web.Response:
        """Answers with what it was sent."""
        seen = {
            "method": request.method,
            "target": request.raw_path,
            "headers": [[name.lower(), value] for name, value in request.headers.items()],
        }
        return web.Response(text=json.dumps(seen), content_type="application/json")

    async def events(self, request: web.Request) -> web.StreamResponse:
        """One event; the next when the gate opens. Notes when its client leaves."""
        gate, left = self.gate(request.query["gate"]), self.gate(request.query["gate"] + ".left")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: first\n\n")
        try:
            await gate.wait()
        except asyncio.CancelledError:
            left.set()
            raise
        await response.write(b"data: second\n\n")
        return response

    async def digest(self, request: web.Request) -> web.Response:
        """Opens one gate with the first piece, then reads on when the other one opens. Notes when its client leaves."""
        name = request.query.get("gate", "digest")
        total = hashlib.sha256()
        try:
            async for piece in request.content.iter_any():
                total.update(piece)
                if "gate" in request.query:
                    self.gate(f"{name}.begun").set()
                    await self.gate(name).wait()
        except (asyncio.CancelledError, ConnectionError):
            self.gate(f"{name}.left").set()
            raise
        return web.Response(text=total.hexdigest())

    async def download(self, request: web.Request) -> web.StreamResponse:
        size = int(request.query["size"])
        response = web.StreamResponse(headers={"Content-Length": str(size)})
        await response.prepare(request)
        for _ in range(size // len(PIECE)):
            await response.write(PIECE)
        return response

    async def socket(self, request: web.Request) -> web.WebSocketResponse:
        """Echoes; "bye" is answered by closing with 4321, "head" by what the handshake said. Notes when its client leaves."""
        echo = web.WebSocketResponse(protocols=("chat",), compress=False, max_msg_size=0)
        await echo.prepare(request)
        try:
            async for message in echo:
                await self._reply(request, echo, message)
        finally:
            self.gate(request.query.get("gate", "socket") + ".left").set()
        return echo

    async def _reply(
        self, request: web.Request, echo: web.WebSocketResponse, message: WSMessage
    ) -> None:
        if message.data == "bye":
            await echo.close(code=4321, message=b"as you wish")
        elif message.data == "head":
            said = [request.method, request.raw_path, dict(request.headers)]
            await echo.send_str(json.dumps(said))
        elif message.type is WSMsgType.TEXT:
            await echo.send_str(message.data)
        else:
            await echo.send_bytes(message.data)

    async def slow(self, request: web.Request) -> web.Response:
        await self.gate("slow").wait()
        return web.Response(text="late")

    async def hints(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n")
        return web.Response(text="hinted")


@contextlib.asynccontextmanager
async def sandbox() -> AsyncIterator[Sandbox]:
    """Serves a Sandbox on a port of its own."""
    box = Sandbox()
    app = web.Application(client_max_size=0)
    app.router.add_get("/events", box.events)
    app.router.add_post("/digest", box.digest)
    app.router.add_get("/download", box.download)
    app.router.add_get("/socket", box.socket)
    app.router.add_get("/slow", box.slow)
    app.router.add_get("/hints", box.hints)
    app.router.add_route("*", "/{rest:.*}", box.told)
    runner = web.AppRunner(app, shutdown_timeout=1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        box.port = runner.addresses[0][1]
        yield box
    finally:
        for gate in box.gates.values():
            gate.set()
        await runner.cleanup()
