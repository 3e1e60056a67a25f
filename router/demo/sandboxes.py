"""The demo's sandboxes: three small web apps, each its own process (`python -m router.demo.sandboxes NAME PORT [SECONDS]`)."""

from __future__ import annotations

import asyncio
import html
import json
import socket
import sys
import time
from collections.abc import Callable
from importlib import resources

from aiohttp import web

LISTENING = "listening on "
"""Begins the line that a sandbox prints once it serves; the port follows."""
TICK_S = 0.2


def hello_app(name: str) -> web.Application:
    """Returns a plain HTTP app that tells what reached it, so that one sees what the router kept back."""

    async def tell(request: web.Request) -> web.Response:
        body = await request.read()
        lines = [
            f"Hello from sandbox {name}.",
            f"{request.method} {request.raw_path} came with a body of {len(body)} bytes, and these headers:",
            *(f"  {key}: {value}" for key, value in request.headers.items()),
        ]
        return web.Response(text="\n".join(lines) + "\n")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", tell)
    return app


def ticker_app(name: str) -> web.Application:
    """Returns an app that streams server-sent events: `/events?count=3`, or for ever without a count."""

    async def events(request: web.Request) -> web.StreamResponse:
        count = request.query.get("count", "")
        stream = web.StreamResponse(headers={"Cache-Control": "no-store"})
        stream.content_type = "text/event-stream"
        await stream.prepare(request)
        tick = 1
        while True:
            data = json.dumps({"sandbox": name, "tick": tick})
            await stream.write(f"id: {tick}\nevent: tick\ndata: {data}\n\n".encode())
            if count.isdecimal() and tick >= int(count):
                return stream
            tick += 1
            await asyncio.sleep(TICK_S)

    app = web.Application()
    app.router.add_get("/events", events)
    return app


def echo_app(name: str) -> web.Application:
    """Returns an app with a WebSocket echo at `/ws`, and a web page at `/` that talks to it."""
    page = resources.files("router.demo").joinpath("page.html").read_text("utf-8")
    page = page.replace("{{name}}", html.escape(name))

    async def show(_: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    async def echo(request: web.Request) -> web.WebSocketResponse:
        connection = web.WebSocketResponse(compress=False)
        await connection.prepare(request)
        async for message in connection:
            if message.type is web.WSMsgType.TEXT:
                await connection.send_str(message.data)
            elif message.type is web.WSMsgType.BINARY:
                await connection.send_bytes(message.data)
        return connection

    app = web.Application()
    app.router.add_get("/", show)
    app.router.add_get("/ws", echo)
    return app


SANDBOXES: dict[str, Callable[[str], web.Application]] = {
    "hello": hello_app,
    "ticker": ticker_app,
    "echo": echo_app,
}


def main(arguments: list[str]) -> None:
    """Serves the sandbox `NAME` on the loopback `PORT` (0: one that the kernel picks) until SIGTERM or Ctrl-C.

    With SECONDS it listens only after them, as a pod does whose image, volume and app take their time.
    """
    name, port, boot_s = [*arguments, "0"][:3] if len(arguments) in (2, 3) else ("", "", "")
    if name not in SANDBOXES or not port.isdecimal() or not boot_s.isdecimal():
        names = "|".join(SANDBOXES)
        raise SystemExit(f"usage: python -m router.demo.sandboxes {names} PORT [SECONDS]")
    time.sleep(int(boot_s))
    listener = socket.create_server(("127.0.0.1", int(port)))
    line = f"{LISTENING}{listener.getsockname()[1]}"
    web.run_app(
        SANDBOXES[name](name),
        sock=listener,
        print=lambda _banner: print(line, flush=True),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=1.0,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
