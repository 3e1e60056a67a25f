"""The program of a worker, as a real process whose supervisor is the test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pickle
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from router.app.channel import Channel
from router.app.shared_counts import SharedCounts
from router.app.supervisor import _WORKER_PROGRAM
from router.app.worker_process import END_AT_ONCE, LISTENING, Plan
from router.server.listeners import addresses_of, bind, close_all
from router.settings import Settings
from tests.unit.app.conftest import MakeSettings

ROOT = Path(__file__).parents[3]


class Process:
    """A worker process and our end of its channel."""

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel, port: int) -> None:
        self.process = process
        self.channel = channel
        self.port = port
        self.events: list[str] = []
        self.listening = asyncio.Event()

    async def serve(self) -> None:
        await self.channel.serve(answer=_nothing, on_event=self._heard)

    def _heard(self, event: str) -> None:
        self.events.append(event)
        self.listening.set()

    async def ended(self) -> tuple[int, list[dict[str, Any]]]:
        """Returns the exit code and the lines of the log."""
        _, log = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, [json.loads(line) for line in log.splitlines()]


async def _nothing(question: str, argument: Any) -> Any:
    raise KeyError(question)


@contextlib.asynccontextmanager
async def started(settings: Settings) -> AsyncIterator[Process]:
    ours, theirs = socket.socketpair()
    address = settings.listeners.http_bind
    assert address is not None
    sockets = bind(address, setting="http-bind")
    fds = tuple(sock.fileno() for sock in sockets)
    own = tuple(addresses_of(sockets))
    counts = SharedCounts.create(workers=1)
    share = counts.share(0, b"secret")
    with theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _WORKER_PROGRAM,
            str(theirs.fileno()),
            pass_fds=(theirs.fileno(), share.fd, *fds),
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
    place = Process(process, await Channel.open(ours), own[0][1])
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            await place.channel.send(pickle.dumps(Plan(settings, fds, (), (), own, share)))
            serving = tasks.create_task(place.serve())
            yield place
            serving.cancel()
    finally:
        counts.close()
        place.channel.close()
        close_all(sockets)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_worker_serves_and_answers_until_its_supervisor_is_gone(
    make_settings: MakeSettings,
) -> None:
    async with started(make_settings()) as worker:
        await worker.listening.wait()
        assert worker.events == [LISTENING]
        assert await worker.channel.ask("missing") == []
        assert "sandbox_router_build_info" in await worker.channel.ask("snapshot")
        reader, writer = await asyncio.open_connection("127.0.0.1", worker.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
        worker.channel.close()
        code, log = await worker.ended()
    assert code == 0
    assert [line["message"] for line in log] == ["the supervisor is gone: draining"]


async def test_a_worker_that_cannot_start_says_why_and_fails(
    make_settings: MakeSettings, sandboxes_file: Path
) -> None:
    sandboxes_file.write_text("sandboxes: [{name: BOX}]")
    async with started(make_settings()) as worker:
        code, log = await worker.ended()
    assert code == 1
    (line,) = [line for line in log if line["message"] == "the worker cannot go on"]
    assert str(sandboxes_file) in line["reason"]
    assert worker.events == []


async def test_only_the_supervisor_can_hurry_a_worker(make_settings: MakeSettings) -> None:
    """Whoever signals a whole group of processes repeats what the supervisor has said already."""
    async with started(make_settings(shutdown_timeout="50s")) as worker:
        await worker.listening.wait()
        _, writer = await asyncio.open_connection("127.0.0.1", worker.port)
        writer.write(
            b"GET / HTTP/1.1\r\nHost: a\r\nX-Sandbox-ID: box-b\r\nX-Sandbox-Namespace: team-b\r\n\r\n"
        )
        await until_asked(worker)
        for _ in range(2):
            worker.process.send_signal(signal.SIGTERM)
            await until_missing(worker, "the router is shutting down")
        worker.process.send_signal(signal.SIGINT)
        assert await worker.channel.ask("missing") == ["the router is shutting down"]
        worker.process.send_signal(END_AT_ONCE)
        code, _ = await worker.ended()
        writer.close()
    assert code == 0


async def until_asked(worker: Process) -> None:
    """Waits until the request is waiting for its sandbox."""
    while True:
        snapshot = await worker.channel.ask("snapshot")
        waiting = snapshot.get("sandbox_router_inflight_requests", [])
        if any(series[0] for _, series in waiting):
            return
        await asyncio.sleep(0.01)


async def until_missing(worker: Process, reason: str) -> None:
    while reason not in await worker.channel.ask("missing"):
        await asyncio.sleep(0.01)
