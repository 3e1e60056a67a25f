"""The shipped defaults under the shipped memory limit, while clients and sandboxes try to take more."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from tests.integration.cage import Cage, cage

pytestmark = [pytest.mark.alone, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0
"""Thousands of clients share two cores with the router while they come."""
SILENT, HEADS, DOWNLOADS, UPLOADS, PIPELINES = 500, 2500, 2500, 3500, 200
WATCHED_S = 20.0
"""Longer than header-timeout, and than anyone is left stuck while others wait."""


def shipped_limit_bytes() -> int:
    """Returns the memory limit of the chart, which the manifests share."""
    values = yaml.safe_load((ROOT / "charts/router/values.yaml").read_text())
    deployment = (ROOT / "deploy/base/deployment.yaml").read_text()
    limit = values["resources"]["limits"]["memory"]
    assert f"memory: {limit}" in deployment
    assert limit.endswith("Gi")
    return int(limit.removesuffix("Gi")) * 2**30


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@asynccontextmanager
async def running(*words: str, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs a command until the block ends."""
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,  # the access log
            stderr=out,
            cwd=ROOT,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def answered(port: int, path: bytes, *, sandbox: bytes = b"honest") -> bytes:
    """Returns the whole response to a GET on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            b"GET %s HTTP/1.1\r\nHost: router\r\nX-Sandbox-ID: %s\r\nConnection: close\r\n\r\n"
            % (path, sandbox)
        )
        return await reader.read()
    finally:
        writer.close()


async def eventually_answered(port: int, path: bytes) -> bytes:
    """Returns the response, once there is one."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(OSError):
                if response := await answered(port, path):
                    return response
            await asyncio.sleep(0.1)


async def metric(admin: int, name: str) -> float:
    page = (await eventually_answered(admin, b"/metrics")).decode()
    return float(next(line for line in page.splitlines() if line.startswith(f"{name} ")).split()[1])


class Router:
    """A router in a cage, a sandbox that does harm and one that doesn't."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, admin: int) -> None:
        self.process = process
        self.port = port
        self.admin = admin


@pytest.fixture
def caged() -> Iterator[Cage]:
    with cage(shipped_limit_bytes()) as made:
        yield made


@pytest.fixture
async def router(caged: Cage, tmp_path: Path) -> AsyncIterator[Router]:
    ports = {"hostile": free_port(), "honest": free_port()}
    boxes = [
        {"name": name, "host": "127.0.0.1", "ports": {8888: port}} for name, port in ports.items()
    ]
    table = tmp_path / "sandboxes.yaml"
    table.write_text(yaml.safe_dump({"sandboxes": boxes}))
    port, admin = free_port(), free_port()
    flags = {
        "http-bind": f"127.0.0.1:{port}",
        "admin-bind": f"127.0.0.1:{admin}",
        "discovery": "file",
        "sandboxes-file": str(table),
        "auth": "none",
    }
    command = caged.command(
        *(sys.executable, "-m", "router", "serve"),
        *(f"--{name}={value}" for name, value in flags.items()),
    )
    async with contextlib.AsyncExitStack() as stack:
        for name, where in ports.items():
            words = (sys.executable, "-m", "tests.integration.hostile_sandboxes", str(where))
            await stack.enter_async_context(running(*words, log=tmp_path / f"{name}.log"))
        process = await stack.enter_async_context(running(*command, log=tmp_path / "router.log"))
        await eventually_answered(port, b"/ok")
        yield Router(process, port, admin)


@asynccontextmanager
async def hostile(router: Router, log: Path, **kinds: int) -> AsyncIterator[None]:
    """Lets so many clients of each kind at the router, each kind in a process (and with descriptors) of its own."""
    async with contextlib.AsyncExitStack() as stack:
        for kind, count in kinds.items():
            words = (sys.executable, "-m", "tests.integration.hostile_clients", str(router.port))
            await stack.enter_async_context(
                running(*words, kind, str(count), log=log / f"{kind}.log")
            )
        yield


async def watch(router: Router, caged: Cage, *, until_held: float) -> dict[str, float]:
    """Holds the router to its limit until so much is held, and for a while after; honest requests are answered meanwhile."""
    slowest_s, most_held, full_at = 0.0, 0.0, None
    deadline = time.monotonic() + 2 * PATIENCE_S
    while full_at is None or time.monotonic() < full_at + WATCHED_S:
        assert router.process.returncode is None, "the router was killed"
        assert caged.peak_bytes(router.process.pid) < caged.limit_bytes
        assert time.monotonic() < deadline, f"only {most_held:.0f} bytes were ever held"
        began = time.monotonic()
        response = await eventually_answered(router.port, b"/ok")
        assert response.startswith(b"HTTP/1.1 200 ")
        if full_at is not None:
            slowest_s = max(slowest_s, time.monotonic() - began)
        held = await metric(router.admin, "sandbox_router_buffered_bytes")
        most_held = max(most_held, held)
        if full_at is None and held >= until_held:
            full_at = time.monotonic()
        await asyncio.sleep(0.2)
    return {
        "held_mb": most_held / 1e6,
        "peak_mb": caged.peak_bytes(router.process.pid) / 1e6,
        "slowest_s": slowest_s,
        "ended": await metric(router.admin, "sandbox_router_buffers_ended_total"),
    }


async def test_the_shipped_defaults_stay_under_the_shipped_limit_whatever_clients_and_sandboxes_do(
    router, caged, tmp_path, record_property
):
    limit = await metric(router.admin, "sandbox_router_buffered_bytes_limit")
    if "control group" in caged.how:
        assert limit == caged.limit_bytes // 4
    assert len(await answered(router.port, b"/large")) > 1_000_000

    async with hostile(
        router,
        tmp_path,
        uploads=UPLOADS,
        downloads=DOWNLOADS,
        heads=HEADS,
        pipelines=PIPELINES,
        silent=SILENT,
    ):
        seen = await watch(router, caged, until_held=0.9 * limit)
        large = await eventually_answered(router.port, b"/large")

    print(f"held to the limit by: {caged.how}; {seen}")
    record_property("held_by", caged.how)
    assert len(large) > 1_000_000
    assert seen["held_mb"] * 1e6 < 1.6 * limit
    assert router.process.returncode is None
