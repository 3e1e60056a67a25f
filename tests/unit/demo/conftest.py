"""A stand-in for the router and its sandboxes in one, which misbehaves when told to."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from router.demo.sandboxes import TICK_S
from router.demo.stage import Place, free_port


@dataclass
class StandIn:
    """What it does wrong; nothing by default."""

    place: Place
    lets_everybody_in: bool = False
    holds_events_back: bool = False
    says: str = "Hello from sandbox hello."
    echo_prefix: str = ""
    refuses_upgrades: bool = False
    asked_for_page: Mapping[str, str] = field(default_factory=dict)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/", self._hello)
        app.router.add_get("/events", self._events)
        app.router.add_get("/ws", self._websocket)
        app.router.add_get(self.place.path("echo"), self._page)
        app.router.add_get(self.place.path("echo", "/ws"), self._websocket)
        return app

    @web.middleware
    async def _guard(self, request, handler):
        is_allowed = request.headers.get("Authorization") == f"Bearer {self.place.token}"
        if is_allowed or self.lets_everybody_in:
            return await handler(request)
        headers = {"X-Sandbox-Router-Error": "unauthenticated"}
        return web.json_response({"code": "unauthenticated"}, status=401, headers=headers)

    async def _hello(self, _):
        return web.Response(text=f"{self.says}\nmore\n")

    async def _page(self, request):
        self.asked_for_page = request.headers
        headers = {"Content-Security-Policy": "default-src 'none'", "Set-Cookie": "a=b"}
        return web.Response(
            text="<title>Sandbox echo</title>", content_type="text/html", headers=headers
        )

    async def _events(self, request):
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        held = b""
        for tick in range(int(request.query["count"])):
            event = f"data: {json.dumps({'tick': tick})}\n\n".encode()
            if self.holds_events_back:
                held += event
            else:
                await stream.write(event)
            await asyncio.sleep(TICK_S)
        await stream.write(held)
        return stream

    async def _websocket(self, request):
        if self.refuses_upgrades:
            raise web.HTTPServiceUnavailable
        connection = web.WebSocketResponse()
        await connection.prepare(request)
        async for message in connection:
            await connection.send_str(self.echo_prefix + message.data)
        return connection


@pytest.fixture
async def stand_in() -> AsyncIterator[StandIn]:
    port = free_port(0)
    stand_in = StandIn(Place(port, 1, "a-token"))
    runner = web.AppRunner(stand_in.app(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield stand_in
    await runner.cleanup()
