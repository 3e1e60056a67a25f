"""ActivityRouter: an admin port that answers `GET /activity` as a router does, with what a test says that it saw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

NOW = datetime(2031, 5, 4, 3, 2, 1, tzinfo=UTC)
"""Far from this machine's time: nothing may compare the two."""


def activity(
    *,
    uptime_s: float = 1e6,
    now: datetime = NOW,
    is_complete: bool = True,
    idle_s: dict[str, float] | None = None,
    awake_s: dict[str, float] | None = None,
    busy: tuple[str, ...] = (),
    namespace: str = "default",
) -> dict[str, Any]:
    """Returns the document: how long each sandbox has been idle, who is to be kept awake for how long, who has an open request."""

    def at(seconds: float) -> str:
        return (now + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")

    idle_s, awake_s = idle_s or {}, awake_s or {}
    return {
        "now": at(0),
        "started": at(-uptime_s),
        "complete": is_complete,
        "sandboxes": [
            {
                "namespace": namespace,
                "name": name,
                "uid": "",
                "last_activity": at(-idle_s[name]) if name in idle_s else None,
                "open_requests": int(name in busy),
                "open_tunnels": 0,
                "awake_until": at(awake_s[name]) if name in awake_s else None,
            }
            for name in sorted({*idle_s, *awake_s, *busy})
        ],
    }


@dataclass
class ActivityRouter:
    """Use as `async with ActivityRouter() as router`."""

    document: Callable[[], Any] = activity
    status: int = 200
    delay_s: float = 0.0
    asked: int = 0
    port: int = 0
    _runner: web.AppRunner | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> ActivityRouter:
        app = web.Application()
        app.router.add_get("/activity", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        await asyncio.sleep(self.delay_s)
        return web.json_response(self.document(), status=self.status)
