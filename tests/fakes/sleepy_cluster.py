"""SleepyCluster: a stand-in for the controller and the kubelet that honours `operatingMode`, as slowly and as rudely as the real ones.

A suspended Sandbox loses its pod. A resumed one gets another pod with another UID and address, which is Ready before its server
listens, while conditions of the sleep linger.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.cluster_objects import pod, ready_condition, sandbox
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import PODS, SANDBOXES, JsonObject, NotFound

PORT = 8888
_numbers = itertools.count(1)
_NETWORK = f"127.{65 + os.getpid() % 150}"
"""Tests that run side by side have addresses of their own."""


@dataclass
class App:
    """The server in one pod: it answers every request with its pod's UID, the method and the size of the body."""

    uid: str
    address: str
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    """Method, path and bytes of each request's body."""
    server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, self.address, PORT)

    def stop(self) -> None:
        """Ends like a killed container."""
        if self.server is not None:
            self.server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await self._answer(reader, writer)
        self._open.discard(writer)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split(" ", 2)
        lines = [line.split(":", 1) for line in head.split("\r\n")[1:] if ":" in line]
        headers = {name.lower(): value.strip() for name, value in lines}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append((method, path, len(body)))
        if headers.get("upgrade"):
            writer.write(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            )
            return
        said = f"{self.uid} {method} {len(body)}".encode()
        if path == "/execute":
            # As the runtime that the SDK talks to answers.
            said = b'{"stdout": "%b", "stderr": "", "exit_code": 0}' % said
        kind = b"text/html" if "text/html" in headers.get("accept", "") else b"text/plain"
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (kind, len(said), said)
        )


@dataclass
class SleepyCluster:
    """Acts on the Sandboxes of a fake API server. Use as `async with`."""

    api: FakeKubernetes
    notices_s: float = 0.02
    """Until the controller acts on a change of the mode."""
    starts_s: float = 0.1
    """Until a new pod is Ready."""
    listens_s: float = 0.1
    """From Ready until its server listens."""
    dies_s: float = 0.05
    """From the order to end until the pod is gone; its server refuses connections meanwhile."""
    apps: dict[str, App] = field(default_factory=dict)
    """The app of each sandbox that has a pod, by name."""
    all_apps: list[App] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _modes: dict[tuple[str, str], str] = field(default_factory=dict)

    async def __aenter__(self) -> SleepyCluster:
        self._watch = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (self._watch, *self._tasks):
            task.cancel()
        await asyncio.gather(self._watch, *self._tasks, return_exceptions=True)
        for app in self.all_apps:
            app.stop()

    def add(
        self,
        name: str,
        *,
        mode: str = "Suspended",
        namespace: str = "default",
        spec: JsonObject | None = None,
        **shape: Any,
    ) -> JsonObject:
        """Creates a Sandbox; `spec` adds to its spec."""
        reason = "SandboxSuspended" if mode == "Suspended" else "DependenciesNotReady"
        shape.setdefault("reason", reason)
        item = sandbox(name, namespace=namespace, mode=mode, **shape)
        item["spec"] |= spec or {}
        return self.api.store.create(SANDBOXES, item)

    def suspend(self, name: str, namespace: str = "default") -> None:
        """Sets the mode as the suspender does."""
        self._set_mode(namespace, name, "Suspended")

    def mode(self, name: str, namespace: str = "default") -> str:
        return str(self.api.store.get(SANDBOXES, namespace, name)["spec"]["operatingMode"])

    def _set_mode(self, namespace: str, name: str, mode: str) -> None:
        def change(item: JsonObject) -> JsonObject:
            item["spec"]["operatingMode"] = mode
            return item

        self.api.store.update(SANDBOXES, namespace, name, change)

    async def _run(self) -> None:
        while True:
            for item in self.api.store.items(SANDBOXES, None):
                key = item["metadata"]["namespace"], item["metadata"]["name"]
                mode = item["spec"]["operatingMode"]
                if self._modes.get(key) != mode:
                    self._modes[key] = mode
                    task = asyncio.get_running_loop().create_task(self._act(item, mode))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            await self.api.store.changed(1.0)

    async def _act(self, item: JsonObject, mode: str) -> None:
        await asyncio.sleep(self.notices_s)
        with contextlib.suppress(NotFound):
            if mode == "Suspended":
                await self._stop(item)
            else:
                await self._start(item)

    async def _stop(self, item: JsonObject) -> None:
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        app = self.apps.pop(name, None)
        if app is None:
            return
        self._tell(namespace, name, is_ready=False, reason="SandboxSuspended")

        def end(item: JsonObject) -> JsonObject:
            item["metadata"]["deletionTimestamp"] = "2026-12-01T00:00:00Z"
            return item

        # The container may be gone before anyone hears that its pod ends.
        app.stop()
        await asyncio.sleep(self.dies_s / 2)
        self.api.store.update(PODS, namespace, name, end)
        await asyncio.sleep(self.dies_s / 2)
        self.api.store.delete(PODS, namespace, name)

    async def _start(self, item: JsonObject) -> None:
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        while self._has_pod(namespace, name):
            await asyncio.sleep(0.01)
        number = next(_numbers)
        address = f"{_NETWORK}.{number >> 8 & 255}.{number & 255}"
        made = self.api.store.create(PODS, pod(name, of=item, address=address))
        app = App(made["metadata"]["uid"], address)
        self.all_apps.append(app)
        # "SandboxSuspended" lingers for the whole start.
        await asyncio.sleep(self.starts_s)

        def become_ready(item: JsonObject) -> JsonObject:
            item["status"]["conditions"] = [ready_condition(True, "")]
            return item

        self.api.store.update(PODS, namespace, name, become_ready)
        self._tell(namespace, name, is_ready=True, reason="DependenciesReady")
        await asyncio.sleep(self.listens_s)
        self.apps[name] = app
        await app.start()

    def _has_pod(self, namespace: str, name: str) -> bool:
        try:
            self.api.store.get(PODS, namespace, name)
        except NotFound:
            return False
        return True

    def _tell(self, namespace: str, name: str, *, is_ready: bool, reason: str) -> None:
        def change(item: JsonObject) -> JsonObject:
            item["status"]["conditions"] = [ready_condition(is_ready, reason)]
            return item

        self.api.store.update(SANDBOXES, namespace, name, change)
