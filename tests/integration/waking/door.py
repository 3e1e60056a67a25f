"""A router with waking on, beside an API server and a cluster that honours `operatingMode`; all in this process."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from router.admin.explain import Question
from router.admin.sandbox_listing import Filter
from router.app.sockets import Sockets
from router.app.stop import Stop
from router.app.worker import Worker
from router.server.listeners import addresses_of, bind, close_all
from router.settings import load
from router.telemetry.access_log import AccessLog
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.sleepy_cluster import SleepyCluster

ON_REQUEST = {"router.agents.x-k8s.io/wake": "on-request"}


@dataclass
class Answer:
    """What a client got."""

    status: int
    headers: Any
    text: str

    @property
    def code(self) -> str:
        return str(self.headers.get("X-Sandbox-Router-Error", ""))


class Records(logging.Handler):
    """Keeps what the router logs."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def fields(self, message: str) -> list[dict[str, Any]]:
        """Returns the fields of every line with that message."""
        found = [record for record in self.records if record.getMessage() == message]
        return [dict(getattr(record, "fields", {})) for record in found]


@dataclass
class Door:
    """The three together, and clients."""

    api: FakeKubernetes
    cluster: SleepyCluster
    worker: Worker
    address: tuple[str, int]
    log: Records
    lines: io.BytesIO = field(default_factory=io.BytesIO)

    async def ask(
        self,
        name: str,
        path: str = "/",
        *,
        method: str = "GET",
        namespace: str = "default",
        body: bytes | None = None,
        **headers: str,
    ) -> Answer:
        """Returns the response to a request for a sandbox; `_` in a header's name stands for `-`."""
        named = {"X-Sandbox-ID": name, "X-Sandbox-Namespace": namespace}
        named |= {key.replace("_", "-"): value for key, value in headers.items()}
        data = None if body is None else io.BytesIO(body)
        url = f"http://{self.address[0]}:{self.address[1]}{path}"
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
            session.request(method, url, headers=named, data=data) as response,
        ):
            return Answer(response.status, response.headers, await response.text())

    @property
    def patches(self) -> int:
        """How often a Sandbox was patched."""
        return sum(request[:2] == ("patch", "sandboxes") for request in self.api.requests)

    async def explain(
        self, name: str, *headers: tuple[bytes, bytes], **query: str
    ) -> dict[str, Any]:
        """Returns what /debug/route answers."""
        return await self.worker.explain(
            Question.of(((b"Host", b"router"), *headers), {"name": name, **query})
        )

    async def listed(self, name: str) -> dict[str, Any] | None:
        """Returns the sandbox's line of /debug/sandboxes."""
        found = await self.worker.list_sandboxes(Filter.of({"name": name}))
        return dict(found["sandboxes"][0]) if found["total"] else None

    async def until_seen(self, name: str, state: str) -> None:
        """Returns once the router knows the sandbox in that state."""
        async with asyncio.timeout(10):
            while (await self.listed(name) or {}).get("state") != state:
                await asyncio.sleep(0.01)

    async def until_woken(self, outcome: str, count: int = 1) -> None:
        """Returns once so many wakes have ended so."""

        def is_counted() -> bool:
            series = dict(self.worker.metrics.snapshot()["sandbox_router_wakes_total"])
            return series[(outcome,)] == [count]

        await until(is_counted)

    async def access_log(self, count: int = 1) -> list[dict[str, Any]]:
        """Returns the access log once it has so many lines."""
        await until(lambda: self.lines.getvalue().count(b"\n") >= count)
        return [json.loads(line) for line in self.lines.getvalue().splitlines()]


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_true():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def door(
    folder: Path,
    *,
    pace: dict[str, float] | None = None,
    api: FakeKubernetes | None = None,
    **flags: str,
) -> AsyncIterator[Door]:
    """Runs them while the block runs; `pace` is the cluster's, `flags` the router's with `_` for `-`."""
    log, lines = Records(), io.BytesIO()
    logger = logging.getLogger("sandbox_router")
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    async with api or FakeKubernetes() as api, SleepyCluster(api, **(pace or {})) as cluster:
        given = {
            "discovery": "kubernetes",
            "kubeconfig": str(api.write_kubeconfig(folder / "kubeconfig")),
            "auth": "none",
            "http-bind": "127.0.0.1:0",
            "admin-bind": "off",
            "drain-delay": "0",
            "shutdown-timeout": "1s",
        }
        settings = load(
            given | {key.replace("_", "-"): value for key, value in flags.items()}
        ).settings
        assert settings.listeners.http_bind is not None
        sockets = bind(settings.listeners.http_bind, setting="http-bind")
        [address] = addresses_of(sockets)
        worker = Worker(settings, Sockets(http=sockets, own=[address]))
        worker._access_log = AccessLog(sink=lines, is_shared=False)
        stop, listening = Stop(), asyncio.Event()
        threshold = gc.get_threshold()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(worker.run(stop, on_listening=listening.set))
                await listening.wait()
                await until(lambda: worker.missing() == [])
                try:
                    yield Door(api, cluster, worker, address, log, lines)
                finally:
                    stop.insist()
        finally:
            # What was aborted just now closes its socket a turn of the loop later.
            await asyncio.sleep(0.05)
            # asyncio leaves the socket of a refused dial to the collector, which would blame the next test.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
            logger.removeHandler(log)
            close_all(sockets)
            gc.unfreeze()
            gc.set_threshold(*threshold)
