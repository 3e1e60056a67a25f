"""A sandbox for rollouts: short answers, streams that end by themselves, WebSockets that last, requests that wait."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

EVENTS = 10
EVERY_S = 0.1
"""A stream lasts a second: longer than a moment, shorter than the grace that the tests give."""


@dataclass(slots=True)
class Sandbox:
    """Where it listens, and what its held requests wait for."""

    port: int = 0
    held: int = 0
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    def write_table(self, folder: Path) -> Path:
        """Returns a sandboxes-file in which this is `box`."""
        path = folder / "sandboxes.yaml"
        entry = f"{{name: box, host: 127.0.0.1, ports: {{8888: {self.port}}}}}"
        path.write_text(f"sandboxes: [{entry}]\n")
        return path

    async def get(self, request: web.Request) -> web.Response:
        return web.Response(text=request.path)

    async def post(self, request: web.Request) -> web.Response:
        return web.Response(text=hashlib.sha256(await request.read()).hexdigest())

    async def events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(EVENTS):
            await response.write(b"data: %d\n\n" % number)
            await asyncio.sleep(EVERY_S)
        return response

    async def hold(self, request: web.Request) -> web.Response:
        self.held += 1
        await self.let_go.wait()
        return web.Response(text="let go")

    async def download(self, request: web.Request) -> web.Response:
        return web.Response(body=bytes(int(request.query["size"])))

    async def socket(self, request: web.Request) -> web.WebSocketResponse:
        echo = web.WebSocketResponse(compress=False)
        await echo.prepare(request)
        async for message in echo:
            await echo.send_bytes(message.data)
        return echo


@contextlib.asynccontextmanager
async def sandbox() -> AsyncIterator[Sandbox]:
    """Serves a Sandbox on a port of its own."""
    box = Sandbox()
    app = web.Application()
    app.router.add_post("/post", box.post)
    app.router.add_get("/events", box.events)
    app.router.add_get("/hold", box.hold)
    app.router.add_get("/download", box.download)
    app.router.add_get("/socket", box.socket)
    app.router.add_get("/{rest:.*}", box.get)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        box.port = runner.addresses[0][1]
        yield box
    finally:
        box.let_go.set()
        await runner.cleanup()
