"""A storm of wakes: who asks, for how many sandboxes, and an API server that takes its time and few calls at once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web

from tests.fakes.kubernetes_api import FakeKubernetes

SANDBOXES = 500
REQUESTS = 2000
NAMESPACES = 10
CALLS_AT_ONCE = 5
NAMES = [(f"box-{n}", f"team-{n % NAMESPACES}") for n in range(SANDBOXES)]


class SlowApi:
    """Makes the patches of a FakeKubernetes slow, and refuses those beyond a few at once, as priority and fairness does."""

    def __init__(self, api: FakeKubernetes, *, call_s: float) -> None:
        self._serve: Callable[[web.Request], Awaitable[web.StreamResponse]] = api._serve
        self._call_s = call_s
        self.running = self.most = self.refused = 0
        self.times: list[float] = []
        self.patched: Counter[str] = Counter()
        api._serve = self.serve  # type: ignore[method-assign]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.method != "PATCH":
            return await self._serve(request)
        if self.running >= CALLS_AT_ONCE:
            self.refused += 1
            return web.Response(status=429, headers={"Retry-After": "1"})
        self.running += 1
        self.most = max(self.most, self.running)
        self.times.append(time.monotonic())
        self.patched[request.path] += 1
        try:
            await asyncio.sleep(self._call_s)
            return await self._serve(request)
        finally:
            self.running -= 1


async def asked(host: str, port: int, name: str, namespace: str) -> str:
    """Returns the response's status, or the router's code; over a plain socket: thousands of client sessions would be the measurement."""
    reader, writer = await asyncio.open_connection(host, port)
    lines = (
        "GET / HTTP/1.1",
        "Host: r",
        f"X-Sandbox-ID: {name}",
        f"X-Sandbox-Namespace: {namespace}",
        "Connection: close",
    )
    writer.write("\r\n".join([*lines, "", ""]).encode())
    told = (await reader.read()).decode("latin-1")
    writer.close()
    _, is_error, rest = told.partition("X-Sandbox-Router-Error: ")
    return rest.split("\r\n", 1)[0] if is_error else told.split(" ", 2)[1]
