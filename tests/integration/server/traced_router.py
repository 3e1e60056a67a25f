"""A router whose spans go to a real OTLP receiver, and a sandbox that notes what it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

DEADLINE_S = 30.0


class Collector:
    """An OTLP/HTTP receiver that keeps every span, decoded and as bytes."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        self.requests: list[dict[str, str]] = []
        self.raw = b""
        self.endpoint = ""
        self._more = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Collector]:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.endpoint = f"http://{host}:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        message = ExportTraceServiceRequest.FromString(body)
        async with self._more:
            self.requests.append({name.lower(): value for name, value in request.headers.items()})
            self.raw += body
            for group in message.resource_spans:
                self.resources.append(values(group.resource.attributes))
                for scope in group.scope_spans:
                    self.spans += scope.spans
            self._more.notify_all()
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(),
            content_type="application/x-protobuf",
        )

    async def until(self, count: int) -> list[Span]:
        """Returns the spans once there are so many."""
        async with asyncio.timeout(DEADLINE_S), self._more:
            await self._more.wait_for(lambda: len(self.spans) >= count)
        return self.spans

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


def values(attributes: Any) -> dict[str, Any]:
    """Returns attributes as a dictionary of plain values."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in attributes}


class Sandbox:
    """Answers `ok` on connections that stay open, 101 to upgrades; keeps the header lines of each request."""

    def __init__(self) -> None:
        self.port = 0
        self.heads: list[list[str]] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Sandbox]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")[:-2]
                self.heads.append(lines)
                if "Upgrade: echo" in lines:
                    writer.write(
                        b"HTTP/1.1 101 Switching Protocols\r\n"
                        b"Connection: Upgrade\r\nUpgrade: echo\r\n\r\n"
                    )
                    while data := await reader.read(1024):
                        writer.write(data)
                    break
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    def trace_lines(self, request: int) -> list[str]:
        """Returns the lines of the trace context of one request, as they came."""
        return [line for line in self.heads[request] if line.lower().startswith("trace")]


@dataclass(frozen=True, slots=True)
class Router:
    """A running router process."""

    process: asyncio.subprocess.Process
    port: int
    admin_port: int
    table: Path

    async def ask(self, *lines: str, target: str = "/", sandbox: str = "box") -> tuple[int, bytes]:
        """Returns status and body of one request on a connection of its own."""
        return await self._ask(self.port, target, f"X-Sandbox-ID: {sandbox}", *lines)

    async def admin(self, target: str) -> str:
        _, body = await self._ask(self.admin_port, target)
        return body.decode()

    async def _ask(self, port: int, target: str, *lines: str) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = [f"GET {target} HTTP/1.1", "Host: router.example", "Connection: close", *lines]
        writer.write("\r\n".join([*head, "", ""]).encode("latin-1"))
        async with asyncio.timeout(DEADLINE_S):
            answer, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(answer.split()[1]), body

    async def end(self) -> list[dict[str, Any]]:
        """Ends it as Kubernetes does. Returns the lines of the access log."""
        self.process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            output, _ = await self.process.communicate()
        assert self.process.returncode == 0
        return [json.loads(line) for line in output.splitlines()]


def table_of(port: int, *, later: str = "starting") -> str:
    """Returns a sandboxes file; `later` is the state of one of them."""
    return f"""
sandboxes:
  - {{name: box, namespace: team-a, host: 127.0.0.1, ports: {{8888: {port}}}, uid: pod-1}}
  - {{name: later, namespace: team-a, host: 127.0.0.1, ports: {{8888: {port}}}, state: {later}}}
"""


def environment(**variables: str) -> dict[str, str]:
    """Returns this process's environment without what would steer a router, and with `variables`."""
    foreign = ("SANDBOX_ROUTER_", "ROUTER_", "OTEL_", "HTTP_PROXY", "http_proxy")
    plain = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
    return plain | variables


async def start(*flags: str, table: Path, variables: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "serve", "--discovery=file", "--auth=none"),
        *("--http-bind=127.0.0.1:0", "--admin-bind=127.0.0.1:0", "--drain-delay=0"),
        *("--default-namespace=team-a", f"--sandboxes-file={table}", *flags),
        env=environment(**variables),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@contextlib.asynccontextmanager
async def router(
    tmp_path: Path, sandbox: Sandbox, *flags: str, **variables: str
) -> AsyncIterator[Router]:
    """Runs a router in front of the sandbox; batches of spans leave after 50 ms unless `variables` say otherwise."""
    table = tmp_path / "sandboxes.yaml"
    table.write_text(table_of(sandbox.port))
    process = await start(
        *flags, table=table, variables={"OTEL_BSP_SCHEDULE_DELAY": "50"} | variables
    )
    assert process.stderr is not None
    try:
        facts: dict[str, Any] = {}
        async with asyncio.timeout(DEADLINE_S):
            while "admin" not in facts:
                line = await process.stderr.readline()
                assert line, "it ended before it listened"
                facts = json.loads(line)
        ports = [
            int(facts[name][0].rpartition(":")[2])
            for name in ("http" if "http" in facts else "listening", "admin")
        ]
        running = Router(process, *ports, table)
        await _until_ready(running)
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def _until_ready(running: Router) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while '"ready"' not in await running.admin("/readyz"):
            await asyncio.sleep(0.05)
