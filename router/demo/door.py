"""Door: lets a browser on this machine into one demo sandbox, adding the token that a browser can't send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler

from router.demo.stage import Place

AnyWebSocket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse
ASKED = ("Accept", "Purpose", "Sec-Fetch-Mode", "Sec-Purpose")
"""By what a browser says whether a person opens the page: only then may it wake a sandbox."""
TOLD = (
    "Cache-Control",
    "Content-Security-Policy",
    "Content-Type",
    "Retry-After",
    "X-Sandbox-Router-Error",
)
ROUTER = web.AppKey("router", aiohttp.ClientSession)


@asynccontextmanager
async def open_door(place: Place, *, sandbox: str) -> AsyncIterator[str]:
    """Yields the URL of a loopback server that asks the router for everything, as a signed-in web front would."""
    app = web.Application(middlewares=[_only_from_here])
    root = place.path(sandbox)

    async def page(request: web.Request) -> web.Response:
        asked = {name: request.headers[name] for name in ASKED if name in request.headers}
        async with request.app[ROUTER].get(root, headers=asked) as answer:
            told = {name: answer.headers[name] for name in TOLD if name in answer.headers}
            return web.Response(status=answer.status, body=await answer.read(), headers=told)

    async def websocket(request: web.Request) -> web.WebSocketResponse:
        # The sandbox first: its refusal must reach the browser as a refusal.
        async with request.app[ROUTER].ws_connect(f"{root}ws") as sandbox_side:
            browser_side = web.WebSocketResponse(compress=False)
            await browser_side.prepare(request)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass_on(browser_side, sandbox_side), name="browser to sandbox")
                group.create_task(_pass_on(sandbox_side, browser_side), name="sandbox to browser")
        return browser_side

    app.router.add_get("/", page)
    app.router.add_get("/ws", websocket)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    async with aiohttp.ClientSession(place.url, headers=place.credential) as session:
        app[ROUTER] = session
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
        finally:
            await runner.cleanup()


@web.middleware
async def _only_from_here(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses other web sites: a foreign Origin, or a foreign name that was pointed at this address."""
    origin = request.headers.get("Origin")
    host = urlsplit(f"//{request.host}").hostname
    if host not in ("127.0.0.1", "localhost"):
        raise web.HTTPForbidden(text="This door opens on 127.0.0.1 only.\n")
    if origin is not None and origin != f"http://{request.host}":
        raise web.HTTPForbidden(text="This door is not for other web sites.\n")
    try:
        return await handler(request)
    except aiohttp.ClientError as error:
        raise web.HTTPBadGateway(text=f"The router did not answer: {error}\n") from error


async def _pass_on(source: AnyWebSocket, sink: AnyWebSocket) -> None:
    """Passes messages on until one side closes, then closes the other."""
    async for message in source:
        if message.type is aiohttp.WSMsgType.TEXT:
            await sink.send_str(message.data)
        elif message.type is aiohttp.WSMsgType.BINARY:
            await sink.send_bytes(message.data)
    await sink.close()
