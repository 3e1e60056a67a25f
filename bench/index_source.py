"""The API server of a large simulated cluster: `python -m bench.index_source COUNT CERTIFICATE stream|pages`.

It prints its port. With `pages` it refuses to send lists as streams, as before Kubernetes 1.32.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from aiohttp import web

from bench.index_objects import FIRST_CHURNING, FLIPPING, Step, pod, sandbox

TICK_S = 0.01
FLIP_INTERVAL_S = 0.1
OBJECTS_AT_ONCE = 50

Item = Callable[[int], bytes]
"""Makes the object of a number as JSON, b"" when there is none."""
Follow = Callable[[web.Request, web.StreamResponse], Awaitable[None]]


class Source:
    """Serves lists and watches; sends events at the rate that /control sets."""

    def __init__(self, count: int, *, streams: bool) -> None:
        self.count = count
        self.streams = streams
        self.version = 1_000_000_000
        self.rate = 0.0
        self.sent = 0
        self.flips: list[float] = []
        """When each replacement of the flipping sandbox's pod was written (monotonic clock)."""
        self.listed_at = 0.0
        """When the last object of the latest list of pods was sent (monotonic clock)."""
        self._life = [1] * count
        self._step = [Step.READY] * count
        self._next = FIRST_CHURNING
        self._watch: web.StreamResponse | None = None
        self._owed = 0.0
        self._backlog: list[bytes] | None = None
        """Events that came while the list was streamed."""

    async def pods(self, request: web.Request) -> web.StreamResponse:
        return await self._served(request, self._pod, self._until_closed)

    async def sandboxes(self, request: web.Request) -> web.StreamResponse:
        return await self._served(
            request, lambda number: sandbox(number, self.version), self._bookmarks
        )

    async def claims(self, request: web.Request) -> web.StreamResponse:
        return await self._served(request, lambda number: b"", self._bookmarks)

    def _pod(self, number: int) -> bytes:
        step = self._step[number]
        return b"" if step is Step.GONE else pod(number, self._life[number], step, self.version)

    async def control(self, request: web.Request) -> web.Response:
        """Sets the rate, or expires the watch, or sends a number of events as fast as they are taken."""
        wanted: dict[str, Any] = await request.json()
        self.rate = float(wanted.get("rate", self.rate))
        self.sent = 0
        self.flips.clear()
        self._owed = 0.0
        if wanted.get("expire"):
            gone = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
            await self._send(gone)
        flood = int(wanted.get("flood", 0))
        while flood > self.sent and self._watch is not None:
            await self._send(self._events(min(100, flood - self.sent)))
        return web.json_response({"sent": self.sent})

    async def told(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"sent": self.sent, "flips": self.flips, "listed_at": self.listed_at}
        )

    async def run(self) -> None:
        """Sends events for ever."""
        flip_at = last_at = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            elapsed_s, last_at = time.monotonic() - last_at, time.monotonic()
            if time.monotonic() >= flip_at:
                flip_at = time.monotonic() + FLIP_INTERVAL_S
                flip = self._flip()
                self.flips.append(time.monotonic())
                await self._send(flip)
            # Behind by more than a fifth of a second is lost: the rate that was reached is told.
            self._owed = min(self._owed + self.rate * elapsed_s, self.rate / 5)
            if self._owed >= 1:
                await self._send(self._events(int(self._owed)))
                self._owed -= int(self._owed)

    async def _send(self, lines: bytes) -> None:
        """Sends events to the watch; without one they are in the next list."""
        try:
            if self._backlog is not None:
                self._backlog.append(lines)
            elif self._watch is not None:
                await self._watch.write(lines)
        except ConnectionError:
            self._watch = None

    def _events(self, count: int) -> bytes:
        lines = []
        for _ in range(count):
            number = self._next
            step = self._step[number] = Step((self._step[number] + 1) % len(Step))
            if step is Step.PENDING:
                self._life[number] += 1
            kind = {Step.GONE: b"DELETED", Step.PENDING: b"ADDED"}.get(step, b"MODIFIED")
            lines.append(self._line(kind, number, step))
            if step is Step.READY:
                # One life after the other, a few hundred at a time in different steps.
                self._next = number + 1 if number + 1 < self.count else FIRST_CHURNING
        self.sent += count
        return b"".join(lines)

    def _flip(self) -> bytes:
        going = self._line(b"MODIFIED", FLIPPING, Step.DELETING)
        gone = self._line(b"DELETED", FLIPPING, Step.GONE)
        self._life[FLIPPING] += 1
        return going + gone + self._line(b"ADDED", FLIPPING, Step.READY)

    def _line(self, kind: bytes, number: int, step: Step) -> bytes:
        self.version += 1
        item = pod(number, self._life[number], step, self.version)
        return b'{"type":"%s","object":%s}\n' % (kind, item)

    def _page(self, request: web.Request, item: Item) -> tuple[web.Response, bool]:
        start = int(request.query.get("continue", 0))
        end = min(self.count, start + int(request.query.get("limit", self.count)))
        items = [made for number in range(start, end) if (made := item(number))]
        is_last = end >= self.count
        return _list(b",".join(items), self.version, 0 if is_last else end), is_last

    async def _served(self, request: web.Request, item: Item, follow: Follow) -> web.StreamResponse:
        if "watch" not in request.query:
            page, is_last = self._page(request, item)
            if is_last and item == self._pod:
                self.listed_at = time.monotonic()
            return page
        if "sendInitialEvents" in request.query and not self.streams:
            return web.json_response({"code": 422, "reason": "Invalid"}, status=422)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        is_followed = follow == self._until_closed
        self._watch = response if is_followed else self._watch
        if "sendInitialEvents" in request.query:
            await self._stream(response, item, is_followed=is_followed)
        try:
            await follow(request, response)
        finally:
            if self._watch is response:
                self._watch = None
        return response

    async def _stream(self, response: web.StreamResponse, item: Item, *, is_followed: bool) -> None:
        """Sends the whole list, then what changed meanwhile, then the mark of the list's end."""
        if is_followed:
            self._backlog = []
        for start in range(0, self.count, OBJECTS_AT_ONCE):
            numbers = range(start, min(self.count, start + OBJECTS_AT_ONCE))
            made = (item(number) for number in numbers)
            await response.write(
                b"".join(b'{"type":"ADDED","object":%s}\n' % each for each in made if each)
            )
            await asyncio.sleep(0)
        if is_followed:
            backlog, self._backlog = self._backlog or [], None
            await response.write(b"".join(backlog))
        await response.write(_bookmark(self.version, ends_list=True))
        if is_followed:
            self.listed_at = time.monotonic()

    async def _until_closed(self, request: web.Request, response: web.StreamResponse) -> None:
        while request.transport is not None and not request.transport.is_closing():
            await asyncio.sleep(0.2)

    async def _bookmarks(self, request: web.Request, response: web.StreamResponse) -> None:
        while request.transport is not None and not request.transport.is_closing():
            await response.write(_bookmark(self.version))
            await asyncio.sleep(1.0)


def _bookmark(version: int, *, ends_list: bool = False) -> bytes:
    mark = b',"annotations":{"k8s.io/initial-events-end":"true"}' if ends_list else b""
    metadata = b'{"resourceVersion":"%d"%s}' % (version, mark)
    return b'{"type":"BOOKMARK","object":{"metadata":%s}}\n' % metadata


def _list(items: bytes, version: int, next_page: int) -> web.Response:
    following = b',"continue":"%d"' % next_page if next_page else b""
    body = b'{"metadata":{"resourceVersion":"%d"%s},"items":[%s]}' % (version, following, items)
    return web.Response(body=body, content_type="application/json")


async def main(count: int, certificate: str, way: str) -> None:
    source = Source(count, streams=way == "stream")
    app = web.Application()
    app.router.add_get("/api/v1/pods", source.pods)
    app.router.add_get("/apis/agents.x-k8s.io/v1beta1/sandboxes", source.sandboxes)
    app.router.add_get("/apis/extensions.agents.x-k8s.io/v1beta1/sandboxclaims", source.claims)
    app.router.add_post("/control", source.control)
    app.router.add_get("/told", source.told)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener, ssl_context=context).start()
    print(listener.getsockname()[1], flush=True)
    await source.run()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
