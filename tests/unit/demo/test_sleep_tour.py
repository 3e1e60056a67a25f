"""The tour of a sandbox that sleeps: right answers are called right, and each kind of wrong one is caught."""

import asyncio
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from router.demo import sleep_tour
from router.demo.sleep_tour import SleepTour
from router.demo.stage import Place, free_port

LOG = '… INFO wake a request woke a sandbox sandbox=default/echo for="owner" outcome=woken'


@dataclass
class StandIn:
    """A router and its sleeper in one, which misbehaves when told to."""

    place: Place
    name: str = "echo"
    pid: int | None = 100
    starts: int = 0
    outcome: str = "woken"
    lets_wake: set[str] = field(default_factory=set)
    starts_each: bool = False
    title: str = "Sandbox echo"
    log: str = LOG

    async def suspend(self) -> bool:
        self.pid = None
        return True

    async def line_with(self, words: str) -> str:
        if words not in self.log:
            await asyncio.Event().wait()
        return self.log

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/debug/sandboxes", self._listing)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/{path:.*}", self._proxy)
        return app

    async def _listing(self, _):
        state = "ready" if self.pid else "suspended"
        return web.json_response({"sandboxes": [{"name": self.name, "state": state}]})

    async def _metrics(self, _):
        lines = [
            f'sandbox_router_wakes_total{{outcome="{self.outcome}"}} {float(self.starts)}',
            'sandbox_router_wakes_total{outcome="gone"} 0.0',
        ]
        return web.Response(text="\n".join(lines) + "\n")

    def _kind(self, request) -> str:
        if request.headers["Authorization"] == "Bearer guest":
            return "guest"
        if "Sec-Purpose" in request.headers:
            return "prefetch"
        return "websocket" if "Upgrade" in request.headers else ""

    async def _proxy(self, request):
        if request.headers["X-Sandbox-ID"] == "hello":
            return web.Response(text="Hello from sandbox hello.\n")
        kind = self._kind(request)
        if self.pid is None and kind and kind not in self.lets_wake:
            code = {"X-Sandbox-Router-Error": "sandbox_suspended"}
            return web.Response(status=409, headers=code)
        if self.pid is None or self.starts_each:
            self.starts += self.pid is None or self.starts > 0
            self.pid = 200 + self.starts
        return web.Response(text=f"<title>{self.title}</title>", content_type="text/html")


@pytest.fixture
async def stand_in():
    port = free_port(0)
    stand_in = StandIn(Place(port, port, "owner"))
    runner = web.AppRunner(stand_in.app(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield stand_in
    await runner.cleanup()


async def take(stand_in):
    tour = SleepTour(stand_in.place, stand_in, guest="guest", line_with=stand_in.line_with)
    return await tour.take()


def wrong(rows):
    return [row.request for row in rows if not row.is_right]


async def test_a_router_that_does_its_work_gets_ten_right_rows(stand_in):
    rows = await take(stand_in)
    assert wrong(rows) == []
    assert [row.status for row in rows] == [200, 200, 0, 409, 409, 409, 200, 200, 0, 200]
    assert rows[2].answer == "process 100 has ended, the file says suspended"
    assert rows[6].answer == "its page, by process 201, new"
    assert rows[8].answer.startswith("a request woke a sandbox sandbox=default/echo")


@pytest.mark.parametrize(
    ("fault", "value", "caught"),
    [
        ("lets_wake", {"websocket"}, "WebSocket /ws that reconnects"),
        ("lets_wake", {"prefetch"}, "GET / as a prefetch"),
        ("lets_wake", {"guest"}, "GET / without the right to wake"),
        ("starts_each", True, "GET / at the same moment"),
        ("outcome", "already", "GET /metrics"),
        ("title", "Another page", "GET / that wakes it"),
        ("log", LOG.replace("outcome=woken", "outcome=gone"), "(the router's log)"),
        ("log", "nothing", "(the router's log)"),
    ],
)
async def test_a_fault_makes_its_row_wrong(stand_in, fault, value, caught, monkeypatch):
    monkeypatch.setattr(sleep_tour, "LOG_S", 0.2)
    setattr(stand_in, fault, value)
    assert caught in wrong(await take(stand_in))


async def test_whoever_is_refused_after_somebody_woke_it_is_no_proof(stand_in):
    stand_in.lets_wake = {"guest"}
    rows = await take(stand_in)
    assert "GET / as a prefetch" in wrong(rows)
