"""The shipped defaults under the shipped memory limit, while clients and sandboxes try to take more."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from router.tasks import TaskSet
from tests.integration.cage import Cage, cage

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0
"""Thousands of clients share two cores with the router while they come."""
SILENT, HEADS, DOWNLOADS, UPLOADS, PIPELINES = 500, 2200, 1000, 2000, 200
"""They would hold twice what the budget allows."""
WATCHED_S = 15.0
"""Longer than header-timeout, and than anyone is left stuck while others wait."""
SOON_S = 5.0
"""In which memory is given back."""
ANSWER_S = 20.0
"""For who means no harm, on two cores that the attackers share: thousands of newcomers stand before it, and the loop accepts one a round."""


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

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        hostile_sandbox: asyncio.subprocess.Process,
        port: int,
        admin: int,
    ) -> None:
        self.process = process
        self.hostile_sandbox = hostile_sandbox
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
        sandboxes = {
            name: await stack.enter_async_context(
                running(
                    *(sys.executable, "-m", "tests.integration.hostile_sandboxes", str(where)),
                    log=tmp_path / f"{name}.log",
                )
            )
            for name, where in ports.items()
        }
        process = await stack.enter_async_context(running(*command, log=tmp_path / "router.log"))
        await eventually_answered(port, b"/ok")
        yield Router(process, sandboxes["hostile"], port, admin)


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


class Watch:
    """Asks for something small again and again, and looks how much is held, until the block ends."""

    def __init__(self, router: Router, caged: Cage) -> None:
        self._router = router
        self._caged = caged
        self._tasks = TaskSet()
        self._task: asyncio.Task[None] | None = None
        self.slowest_s = 0.0
        self.held_bytes = 0.0
        self.most_held_bytes = 0.0

    async def __aenter__(self) -> Watch:
        self._task = self._tasks.start(self._run(), name="watch")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            response = await answered(self._router.port, b"/ok")
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            assert response.startswith(b"HTTP/1.1 200 "), response[:500]
            self.held_bytes = await metric(self._router.admin, "sandbox_router_buffered_bytes")
            self.most_held_bytes = max(self.most_held_bytes, self.held_bytes)
            await asyncio.sleep(0.1)

    async def until(self, is_so: Callable[[], bool], what: str) -> float:
        """Returns after how many seconds it was so."""
        began = time.monotonic()
        while not is_so():
            await self.look()
            assert time.monotonic() - began < PATIENCE_S, f"not {what}: {self.held_bytes:.0f} bytes"
        return time.monotonic() - began

    async def look(self) -> None:
        """Waits a moment; fails when the router has gone, or what it was asked for didn't come."""
        assert self._task is not None
        await asyncio.wait([self._task], timeout=0.1)
        assert self._router.process.returncode is None, "the router was killed"
        assert self._caged.peak_bytes(self._router.process.pid) < self._caged.limit_bytes
        if self._task.done():
            self._task.result()


async def test_the_shipped_defaults_stay_under_the_shipped_limit_whatever_clients_and_sandboxes_do(
    router, caged, tmp_path, record_property
):
    limit = await metric(router.admin, "sandbox_router_buffered_bytes_limit")
    if "control group" in caged.how:
        assert limit == caged.limit_bytes // 4
    assert len(await answered(router.port, b"/large")) > 1_000_000

    async with Watch(router, caged) as seen:
        async with hostile(
            router,
            tmp_path,
            uploads=UPLOADS,
            downloads=DOWNLOADS,
            heads=HEADS,
            pipelines=PIPELINES,
            silent=SILENT,
        ):
            full_s = await seen.until(lambda: seen.held_bytes > limit, "full")
            full_until = time.monotonic() + WATCHED_S
            while time.monotonic() < full_until:
                await seen.look()
            large = await answered(router.port, b"/large")
        # Whose clients are gone with bytes on their way can't be told from slow ones: they keep what others don't need.
        free_s = await seen.until(lambda: seen.held_bytes < limit, "free again")
        later = await answered(router.port, b"/large")
        router.hostile_sandbox.kill()
        empty_s = await seen.until(lambda: seen.held_bytes < 0.01 * limit, "empty")

    print(
        f"held to the limit by: {caged.how}; full after {full_s:.1f} s, free again after {free_s:.1f} s, "
        f"empty {empty_s:.1f} s after the sandbox went, peak {caged.peak_bytes(router.process.pid) / 1e6:.0f} MB, "
        f"held {seen.most_held_bytes / limit:.2f} of the budget, slowest answer {seen.slowest_s:.2f} s"
    )
    record_property("held_by", caged.how)
    assert min(len(large), len(later)) > 1_000_000
    assert seen.slowest_s < ANSWER_S
    assert max(free_s, empty_s) < SOON_S
    assert seen.most_held_bytes < 1.6 * limit
    assert "connections hold more than max-buffered-bytes" in (tmp_path / "router.log").read_text()
    assert await metric(router.admin, "sandbox_router_buffers_ended_total") > 0
