"""A real `sandbox-router serve` process, started for a test and ended with it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

FOREIGN = ("SANDBOX_ROUTER_", "ROUTER_", "OTEL_", "KUBE", "HTTP_PROXY", "http_proxy")


@dataclass
class RouterProcess:
    """The process, where it listens, and the last lines that it wrote."""

    process: asyncio.subprocess.Process
    http_port: int
    admin_port: int
    checks_port: int = 0
    log: deque[str] = field(default_factory=lambda: deque(maxlen=2000))

    async def admin(self, path: str) -> tuple[int, str]:
        """Returns status and body of an admin page."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.admin_port}{path}") as response,
        ):
            return response.status, await response.text()

    async def until_ready(self, timeout_s: float = 20.0) -> None:
        async with asyncio.timeout(timeout_s):
            while (await self.admin("/readyz"))[0] != 200:
                await asyncio.sleep(0.05)

    def logged(self, level: str) -> list[dict[str, Any]]:
        """Returns the log lines of that level."""
        lines = [json.loads(line) for line in self.log if line.startswith("{")]
        return [line for line in lines if line.get("level") == level]


@asynccontextmanager
async def router(*flags: str) -> AsyncIterator[RouterProcess]:
    """Runs a router on ports of the kernel's choice while the block runs."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "router",
        "serve",
        "--http-bind=127.0.0.1:0",
        "--admin-bind=127.0.0.1:0",
        "--drain-delay=0",
        "--shutdown-timeout=1s",
        "--access-log=false",
        *flags,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    running = RouterProcess(process, 0, 0)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20.0):
            await _read_ports(running, process.stdout)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(_keep_reading(running, process.stdout))
            try:
                yield running
            finally:
                reading.cancel()
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(5.0):
                await process.communicate()
        except TimeoutError:
            process.kill()
            await process.communicate()


async def _read_ports(running: RouterProcess, stdout: asyncio.StreamReader) -> None:
    while line := (await stdout.readline()).decode(errors="replace"):
        running.log.append(line)
        if '"listening"' in line:
            told = json.loads(line)
            proxy = told["http"] if "http" in told else told["listening"]  # of workers
            running.http_port = int(proxy[0].rpartition(":")[2])
            if "checks" in told:
                running.checks_port = int(told["checks"][0].rpartition(":")[2])
            running.admin_port = int(told["admin"][0].rpartition(":")[2])
            return
    raise RuntimeError("the router did not start:\n" + "".join(running.log))


async def _keep_reading(running: RouterProcess, stdout: asyncio.StreamReader) -> None:
    while line := await stdout.readline():
        running.log.append(line.decode(errors="replace"))
