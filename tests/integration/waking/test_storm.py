"""A storm: thousands of requests for hundreds of suspended sandboxes within a second, and an API server that takes few calls at a time.

Ten times as fast as the case that bench/storm.py measures, so that it takes seconds: 20 ms a call instead of 200, ten times the rates.
"""

from __future__ import annotations

import asyncio
import random
import resource
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from tests.fakes.kubernetes_api import FakeKubernetes
from tests.integration.waking.door import Door, door

SANDBOXES = 500
REQUESTS = 2000
NAMESPACES = 10
CALL_S = 0.02
CALLS_AT_ONCE = 5
NAMED = {"sandbox_waking", "wake_limited", "wake_unavailable", "sandbox_not_ready"}


class SlowApi:
    """Makes patches slow, and refuses those beyond a few at once, as priority and fairness does."""

    def __init__(self, api: FakeKubernetes) -> None:
        self._serve: Callable[[web.Request], Awaitable[web.StreamResponse]] = api._serve
        self.running = self.most = self.refused = 0
        self.times: list[float] = []
        self.patched: Counter[str] = Counter()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.method != "PATCH":
            return await self._serve(request)
        if self.running >= CALLS_AT_ONCE:
            self.refused += 1
            return web.Response(status=429, headers={"Retry-After": "1"})
        self.running += 1
        self.most = max(self.most, self.running)
        self.times.append(asyncio.get_running_loop().time())
        self.patched[request.path] += 1
        try:
            await asyncio.sleep(CALL_S)
            return await self._serve(request)
        finally:
            self.running -= 1


@pytest.mark.alone
async def test_a_storm_costs_one_call_for_each_sandbox_and_everyone_is_answered(
    tmp_path: Path,
) -> None:
    flags = {
        "wake": "all",
        "wake_rate": "200",
        "wake_rate_per_namespace": "50",
        "waiting_room": "4000",
        "waiting_room_per_namespace": "400",
    }
    api = FakeKubernetes()
    slow = SlowApi(api)
    api._serve = slow.serve  # type: ignore[method-assign]
    async with door(tmp_path, api=api, pace={"starts_s": 0.3}, **flags) as the:
        names = [(f"box-{n}", f"team-{n % NAMESPACES}") for n in range(SANDBOXES)]
        for name, namespace in names:
            the.cluster.add(name, namespace=namespace)
        await the.until_seen(f"box-{SANDBOXES - 1}", "suspended")
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        answers = await asyncio.gather(*(_one(the, *names[n % SANDBOXES]) for n in range(REQUESTS)))

        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
        codes = Counter(answers)
        assert codes.keys() <= {"200"} | NAMED, codes
        assert codes["200"] >= REQUESTS * 0.99, codes
        assert set(slow.patched.values()) == {1}, slow.patched.most_common(3)
        assert len(slow.patched) == SANDBOXES
        assert (slow.most <= CALLS_AT_ONCE, slow.refused) == (True, 0)
        for begin in slow.times:
            within = sum(begin <= at < begin + 1.0 for at in slow.times)
            assert within <= 2 * 200 + 200
        assert grown_kb < 200_000
        assert len(the.worker.gateway._connector.wakes or ()) == 0  # type: ignore[arg-type]


async def _one(the: Door, name: str, namespace: str) -> str:
    await asyncio.sleep(random.uniform(0.0, 1.0))
    # A plain socket: thousands of client sessions would be the measurement.
    reader, writer = await asyncio.open_connection(*the.address)
    head = f"GET / HTTP/1.1\r\nHost: r\r\nX-Sandbox-ID: {name}\r\nX-Sandbox-Namespace: {namespace}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(60):
        told = (await reader.read()).decode("latin-1")
    writer.close()
    status = told.split(" ", 2)[1]
    _, found, rest = told.partition("X-Sandbox-Router-Error: ")
    return rest.split("\r\n", 1)[0] if found else status
