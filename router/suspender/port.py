"""The suspender's own port: `/metrics` and `/healthz`."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4


@asynccontextmanager
async def own_port(
    sockets: list[socket.socket], *, exposition: Callable[[], bytes], is_alive: Callable[[], bool]
) -> AsyncIterator[None]:
    """Serves on bound sockets while the block runs."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=exposition(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def healthz(_: web.Request) -> web.Response:
        if is_alive():
            return web.json_response({"status": "ok"})
        return web.json_response({"status": "no round has ended for too long"}, status=503)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        for each in sockets:
            await web.SockSite(runner, each).start()
        yield
    finally:
        await runner.cleanup()
