"""AdminServer: metrics, probes and explanations on a port that is never exposed."""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from router.admin.activity import ActivityFilter, Seen, document
from router.admin.console import Console
from router.admin.explain import Question
from router.admin.sandbox_listing import Filter
from router.errors import RouterError
from router.telemetry.exposition import content_type_for, render
from router.telemetry.snapshot import Snapshot

logger = logging.getLogger("sandbox_router.admin")

MAX_CONNECTIONS: Final = 256
"""Beyond these, a newcomer takes the place of an idle connection: probes get through, descriptors don't run out."""
FIRST_REQUEST_TIMEOUT_S: Final = 10.0
KEEPALIVE_TIMEOUT_S: Final = 75.0
MAX_HEADER_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 256
EVENTS: Final = "/events"
"""An open page's stream of changes."""
_JSON: Final = "application/json"
_MIN_COMPRESSED_BYTES: Final = 4096

INDEX: Final = """\
Sandbox Router, admin port. Never expose it outside the cluster.

/                  in a browser: the state of the router and its sandboxes, live
/metrics           numbers for Prometheus (docs/metrics.md)
/healthz           200 while the process lives
/readyz            200 when it can serve, else 503 and what is missing; with notes on what works less well than it could
/debug/route       what would be decided about a request: send its headers, or ?namespace=&name=&port=, ?path=, ?method=
/debug/sandboxes   the table of sandboxes: ?namespace=&name=&state=&search=&offset=&limit=
/activity          when each sandbox was used last (docs/sleeping.md): ?namespace=&name=
"""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


async def _healthy() -> list[str]:
    return []


class AdminServer:
    """Serves the admin pages on sockets that are already bound. May be started and stopped once; stop() any number of times.

    `snapshot` returns the numbers of all workers; `missing` says in sentences what keeps the router from being ready,
    `notes` what works less well than it could;
    `explain` and `sandboxes` answer the two debug pages (Explainer.explain, sandbox_listing.listing); `activity` says what
    all workers saw of sandboxes' use.
    """

    def __init__(
        self,
        *,
        sockets: Sequence[socket.socket],
        snapshot: Callable[[], Awaitable[Snapshot]],
        missing: Callable[[], Sequence[str] | Awaitable[Sequence[str]]],
        notes: Callable[[], Awaitable[Sequence[str]]],
        explain: Callable[[Question], Awaitable[Mapping[str, Any]]],
        sandboxes: Callable[[Filter], Awaitable[Mapping[str, Any]]],
        activity: Callable[[ActivityFilter], Awaitable[Seen]],
        health: Callable[[], Awaitable[list[str]]] = _healthy,
        page_timeout_s: float = 10.0,
    ) -> None:
        self._sockets = tuple(sockets)
        self._snapshot = snapshot
        self._missing = missing
        self._notes = notes
        self._health = health
        self._explain = explain
        self._sandboxes = sandboxes
        self._activity = activity
        self._page_timeout_s = page_timeout_s
        self._console = Console(
            snapshot=snapshot, missing=self._whats_missing, notes=notes, sandboxes=sandboxes
        )
        self._runner: web.ServerRunner | None = None
        self._pages: dict[str, Handler] = {
            "/": self._index,
            "/metrics": self._metrics,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/debug/route": self._debug_route,
            "/debug/sandboxes": self._debug_sandboxes,
            "/activity": self._activity_page,
            EVENTS: self._console.events,
            "/sandboxes": self._table,
            "/look.css": self._style,
            "/console.js": self._script,
        }

    def __repr__(self) -> str:
        return f"<AdminServer {'serving' if self._runner is not None else 'stopped'}>"

    async def __aenter__(self) -> AdminServer:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Begins to answer; does nothing when it already does."""
        if self._runner is not None:
            return
        self._runner = web.ServerRunner(
            _Server(self._answer, handler_cancellation=True), shutdown_timeout=1.0
        )
        await self._runner.setup()
        for sock in self._sockets:
            await web.SockSite(self._runner, sock).start()

    async def stop(self) -> None:
        """Closes sockets and connections."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        for sock in self._sockets:
            sock.close()

    # --- from request to page ---------------------------------------------------------------

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if isinstance(request.protocol, _Connection):
            request.protocol.has_asked()
        page = self._pages.get(request.path)
        if page is None:
            return _error(404, "not_found", "There is no such page; / lists them.")
        if request.method not in ("GET", "HEAD"):
            response = _error(405, "method_not_allowed", "Only GET and HEAD are answered here.")
            response.headers["Allow"] = "GET, HEAD"
            return response
        try:
            async with asyncio.timeout(None if request.path == EVENTS else self._page_timeout_s):
                return await page(request)
        except RouterError as error:
            return _error(error.status, error.code, error.detail)
        except TimeoutError:
            logger.warning("an admin page took too long", extra={"fields": {"page": request.path}})
            return _error(503, "timeout", "The page took too long.")

    async def _index(self, request: web.BaseRequest) -> web.Response:
        if "text/html" in request.headers.get("Accept", ""):
            return await self._console.page(request.query)
        response = _response(200, INDEX.encode(), "text/plain; charset=utf-8")
        response.headers["Vary"] = "Accept"
        return response

    async def _table(self, request: web.BaseRequest) -> web.Response:
        return await self._console.table(request.query)

    async def _style(self, request: web.BaseRequest) -> web.Response:
        return self._console.file("look.css")

    async def _script(self, request: web.BaseRequest) -> web.Response:
        return self._console.file("console.js")

    async def _metrics(self, request: web.BaseRequest) -> web.Response:
        content_type = content_type_for(request.headers.get("Accept", ""))
        snapshot = await self._snapshot()
        # In a thread: with thousands of series the text takes long enough to be felt by requests.
        body = await asyncio.to_thread(render, snapshot, content_type)
        response = _response(200, body, content_type)
        if len(body) >= _MIN_COMPRESSED_BYTES:
            response.enable_compression()
        return response

    async def _healthz(self, request: web.BaseRequest) -> web.Response:
        ailing = await self._health()
        if ailing:
            return _json(503, {"status": "failing", "failing": ailing})
        return _json(200, {"status": "ok"})

    async def _readyz(self, request: web.BaseRequest) -> web.Response:
        missing = await self._whats_missing()
        notes = list(await self._notes())
        told = {"notes": notes} if notes else {}
        if missing:
            return _json(503, {"status": "not ready", "missing": list(missing), **told})
        return _json(200, {"status": "ready", **told})

    async def _whats_missing(self) -> Sequence[str]:
        missing = self._missing()
        return await missing if inspect.isawaitable(missing) else missing

    async def _debug_route(self, request: web.BaseRequest) -> web.Response:
        question = Question.of(request.raw_headers, request.query)
        return _json(200, await self._explain(question))

    async def _debug_sandboxes(self, request: web.BaseRequest) -> web.Response:
        return _json(200, await self._sandboxes(Filter.of(request.query)))

    async def _activity_page(self, request: web.BaseRequest) -> web.Response:
        seen = await self._activity(ActivityFilter.of(request.query))
        body = await document(seen)
        response = _response(200, body, _JSON)
        if len(body) >= _MIN_COMPRESSED_BYTES:
            response.enable_compression()
        return response


# --- answers ---------------------------------------------------------------------------------


def _response(status: int, body: bytes, content_type: str) -> web.Response:
    return web.Response(
        status=status,
        body=body,
        headers={
            "Content-Type": content_type,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            # Without it aiohttp tells its own version and Python's.
            "Server": "sandbox-router",
        },
    )


def _json(status: int, content: Mapping[str, Any]) -> web.Response:
    body = orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return _response(status, body, _JSON)


def _error(status: int, code: str, detail: str) -> web.Response:
    return _json(status, {"detail": detail, "code": code})


# --- connections -----------------------------------------------------------------------------


class _Connection(web.RequestHandler):
    """One connection: what is not HTTP gets a short answer and no traceback; who says nothing is cut off."""

    __slots__ = ("_silence", "host", "idle_since")

    _silence: asyncio.TimerHandle | None
    host: str
    """Who connected."""
    idle_since: float | None
    """The loop's time since which it asks nothing; None while a request is answered."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else ""
        self.idle_since = loop.time()
        self._silence = loop.call_later(FIRST_REQUEST_TIMEOUT_S, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.has_asked()
        super().connection_lost(exc)

    def has_asked(self) -> None:
        """Notes that a whole request came; from here on the keep-alive timeout watches."""
        self.idle_since = None
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Writes the whole answer; from here on the connection is idle."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self.idle_since = asyncio.get_running_loop().time()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Returns the answer to bytes that are no request, or to a request that met a bug."""
        if isinstance(exc, HttpProcessingError):
            logger.debug("not a request", extra={"fields": {"error": type(exc).__name__}})
            response = _error(status, "bad_request", "This is not a request that is understood.")
        else:
            logger.error("an admin page failed", exc_info=exc)
            response = _error(500, "internal_error", "Internal error.")
        response.force_close()
        return response


class _Refusal(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class _Server(web.Server):
    """Makes a _Connection for each client, within the limit."""

    def __call__(self) -> Any:
        if len(self.connections) >= MAX_CONNECTIONS and not self._give_up_an_idle_one():
            return _Refusal()
        return _Connection(
            self,
            loop=asyncio.get_running_loop(),
            logger=logger,
            access_log=None,  # type: ignore[arg-type]  # the documented way to have none
            keepalive_timeout=KEEPALIVE_TIMEOUT_S,
            lingering_time=0,
            auto_decompress=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
        )

    def _give_up_an_idle_one(self) -> bool:
        """Closes the longest idle connection of whoever has most of them. Returns False when all are busy."""
        idle = [
            connection
            for connection in self.connections
            if isinstance(connection, _Connection) and connection.idle_since is not None
        ]
        if not idle:
            return False
        held = Counter(connection.host for connection in idle)
        victim = max(idle, key=lambda each: (held[each.host], -(each.idle_since or 0.0)))
        victim.force_close()
        # It leaves the list only with its last callback; until then it must not be found again.
        victim.idle_since = None
        return True
