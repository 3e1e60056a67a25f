"""Replicas of the router, each a real process, and who may get new connections: what a Kubernetes Service does for pods."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path

from tests.fakes.router_process import RouterProcess, router
from tests.integration.rollout.load import Address

PROBE_INTERVAL_S = 0.1
PATIENCE_S = 40.0

DRAIN_DELAY_S = 2.0
"""Scaled down; many times the interval of the probes, so that a busy machine can miss some."""
SHUTDOWN_TIMEOUT_S = 3.0


class Replicas:
    """Starts routers that all have the same settings."""

    def __init__(self, table: Path, stack: contextlib.AsyncExitStack, *flags: str) -> None:
        self._stack = stack
        self._flags = (
            "--auth=none",
            "--discovery=file",
            f"--sandboxes-file={table}",
            f"--drain-delay={DRAIN_DELAY_S}s",
            f"--shutdown-timeout={SHUTDOWN_TIMEOUT_S}s",
            *flags,
        )

    async def start(self) -> RouterProcess:
        """Returns a new router that is ready."""
        replica = await self._stack.enter_async_context(router(*self._flags))
        await replica.until_ready()
        return replica


@contextlib.asynccontextmanager
async def replicas(table: Path, *flags: str) -> AsyncIterator[Replicas]:
    """Yields what starts replicas; all of them end with the block."""
    async with contextlib.AsyncExitStack() as stack:
        yield Replicas(table, stack, *flags)


async def reading(replica: RouterProcess, name: str) -> int:
    """Returns the sum of a metric's series."""
    _, page = await replica.admin("/metrics")
    return sum(
        round(float(value))
        for value in re.findall(rf"^sandbox_router_{name}(?:\{{[^}}]*\}})? (\S+)", page, re.M)
    )


async def until_it_carries(replica: RouterProcess) -> tuple[int, int]:
    """Returns how many requests and WebSockets a replica carries, once it has some of both: its end is then worth watching."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            tunnels, requests = (
                await reading(replica, "open_tunnels"),
                await reading(replica, "inflight_requests"),
            )
            if tunnels and requests > tunnels:
                return requests - tunnels, tunnels
            await asyncio.sleep(0.02)


async def ended(replica: RouterProcess) -> int | None:
    """Returns the exit code, once it has ended by itself."""
    async with asyncio.timeout(PATIENCE_S):
        await replica.process.wait()
    return replica.process.returncode


class Service:
    """Hands new connections to replicas whose readiness probe succeeds, in turn; connections that are open stay where they are."""

    def __init__(self) -> None:
        self._replicas: list[RouterProcess] = []
        self._ready: list[Address] = []
        self._turn = itertools.count()

    def pick(self) -> Address:
        """Returns where the next connection goes."""
        assert self._ready, "no replica is ready"
        return self._ready[next(self._turn) % len(self._ready)]

    async def add(self, *replicas: RouterProcess) -> None:
        """Returns once the replicas get connections."""
        self._replicas += replicas
        await self._probe()

    def remove(self, replica: RouterProcess) -> None:
        self._replicas.remove(replica)

    async def run(self) -> None:
        while True:
            await self._probe()
            await asyncio.sleep(PROBE_INTERVAL_S)

    async def _probe(self) -> None:
        ready = []
        for replica in self._replicas:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                if await _is_ready(replica):
                    ready.append(("127.0.0.1", replica.http_port))
        self._ready = ready


async def _is_ready(replica: RouterProcess) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", replica.admin_port)
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n")
        return b" 200 " in await reader.readline()
    finally:
        writer.close()
