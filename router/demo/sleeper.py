"""Sleeper: a sandbox of the demo that is suspended by ending its process, and woken by starting another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from router.demo.child import Child, StepFailed
from router.demo.stage import NAMESPACE, Stage, port_of, write_sandboxes_file

BOOT_S = 3
"""How long the woken sandbox takes before it listens: without an image to pull, a process would be there too soon to see."""


class Sleeper:
    """Owns one sandbox's process, and says in the sandboxes file whether there is one; the other sandboxes just run."""

    def __init__(self, name: str, *, stage: Stage, child: Child, ports: Mapping[str, int]) -> None:
        self.name = name
        self.starts = 0
        """Processes that were started to wake it."""
        self._stage = stage
        self._child: Child | None = child
        self._ports = dict(ports)
        self._changing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Sleeper {self.name} pid={self.pid} starts={self.starts}>"

    @property
    def pid(self) -> int | None:
        """Its process, None while it is suspended."""
        return None if self._child is None else self._child.pid

    async def suspend(self) -> bool:
        """Returns True once its process is gone and the file says so, False when it was suspended before."""
        async with self._changing:
            child, self._child = self._child, None
            if child is None:
                return False
            self._tell(suspended=self.name)
            await self._stage.end_sandbox(child)
            return True

    async def wake(self) -> bool:
        """Returns True when this call began to start it, False when it runs or is being started. Raises StepFailed.

        The file says so once it listens.
        """
        async with self._changing:
            if self._child is not None:
                return False
            self._child = await self._stage.start_sandbox(self.name, boot_s=BOOT_S)
            self.starts += 1
        self._stage.tasks.start(self._until_it_listens(self._child), name=f"wake {self.name}")
        return True

    async def _until_it_listens(self, child: Child) -> None:
        try:
            port = await port_of(child)
        except StepFailed:
            return  # it was suspended meanwhile, or has ended by itself: then the stage ends the demo
        if child is self._child:
            self._ports[self.name] = port
            self._tell(suspended=None)

    def _tell(self, *, suspended: str | None) -> None:
        write_sandboxes_file(self._stage.sandboxes_file, self._ports, suspended=suspended)


@asynccontextmanager
async def open_switch(sleeper: Sleeper, path: Path) -> AsyncIterator[None]:
    """Listens on a Unix socket for `POST /wake/NAMESPACE/NAME`, which the router's waker asks, and `POST /suspend`."""

    async def wake(request: web.Request) -> web.Response:
        if request.match_info["name"] != sleeper.name:
            raise web.HTTPNotFound(text="This sandbox never sleeps.\n")
        try:
            return web.Response(text="started\n" if await sleeper.wake() else "running\n")
        except StepFailed as error:
            raise web.HTTPServiceUnavailable(text=f"{error}\n") from error

    async def suspend(_: web.Request) -> web.Response:
        did = await sleeper.suspend()
        return web.Response(text=f"{sleeper.name} {'is suspended' if did else 'was asleep'}\n")

    app = web.Application()
    app.router.add_post(f"/wake/{NAMESPACE}/{{name}}", wake)
    app.router.add_post("/suspend", suspend)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.UnixSite(runner, path).start()
        yield
    finally:
        await runner.cleanup()
