"""Console: the operator's page on the admin port. Rendered here; a small script keeps it up to date."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from aiohttp import web

from router.admin.overview import Overview, Rates
from router.admin.sandbox_listing import Filter
from router.errors import BadRequest, Overloaded
from router.routing.endpoint import State
from router.telemetry.snapshot import Snapshot

if TYPE_CHECKING:
    import jinja2

PAGE_SIZE: Final = 50
EVERY_S: Final = 2.0
"""How often an open page is told of changes."""
MAX_STREAMS: Final = 16
"""Open pages that are kept up to date; others show what was true when they were loaded."""
_MAX_PAGE: Final = 100_000
_MAX_SEARCH: Final = 400
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
    "Server": "sandbox-router",
}
_FILES: Final = {
    "look.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
}
_TEMPLATES: Final = ("page.html", "overview.html", "sandboxes.html")
_UNKNOWN: Final = "\N{EN DASH}"
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class Console:
    """Answers for the operator's page. Belongs to the loop's thread; whoever asks at the same time shares one answer."""

    def __init__(
        self,
        *,
        snapshot: Callable[[], Awaitable[Snapshot]],
        missing: Callable[[], Awaitable[Sequence[str]]],
        notes: Callable[[], Awaitable[Sequence[str]]],
        sandboxes: Callable[[Filter], Awaitable[Mapping[str, Any]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._snapshot = snapshot
        self._missing = missing
        self._notes = notes
        self._sandboxes = sandboxes
        self._clock = clock
        self._rates = Rates(clock=clock)
        self._latest: tuple[float, str] | None = None
        self._making = asyncio.Lock()
        self._streams = 0
        self._folder = resources.files("router.admin") / "pages"
        look = resources.files("router") / "looks" / "look.css"
        self._files = {
            "look.css": look.read_bytes(),
            "console.js": (self._folder / "console.js").read_bytes(),
        }

    def __repr__(self) -> str:
        return f"<Console streams={self._streams}>"

    # --- what is asked for ---

    async def page(self, query: Mapping[str, str]) -> web.Response:
        """Returns the whole page. Raises BadRequest for a query that isn't understood."""
        overview = await self._overview()
        sandboxes = await self._table(query)
        html = self._render(
            "page.html", overview=overview, sandboxes=sandboxes, query=_asked(query)
        )
        return _response(html)

    async def table(self, query: Mapping[str, str]) -> web.Response:
        """Returns the list of sandboxes alone. Raises BadRequest for a query that isn't understood."""
        return _response(await self._table(query))

    def file(self, name: str) -> web.Response:
        """Returns one of _FILES."""
        headers = _HEADERS | {"Content-Type": _FILES[name], "Cache-Control": "no-cache"}
        return web.Response(body=self._files[name], headers=headers)

    async def events(self, request: web.BaseRequest) -> web.StreamResponse:
        """Tells an open page how things are now, until it goes. Raises Overloaded when too many are told already."""
        if self._streams >= MAX_STREAMS:
            raise Overloaded("Too many pages are kept up to date already.")
        self._streams += 1
        try:
            headers = _HEADERS | {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
            response = web.StreamResponse(headers=headers)
            await response.prepare(request)
            told = ""
            while request.method == "GET":
                overview = await self._overview()
                # Always something: that is how the other side's end is noticed.
                await response.write(_event(overview) if overview != told else b": as before\n\n")
                told = overview
                await asyncio.sleep(EVERY_S)
        except ConnectionError:
            pass
        finally:
            self._streams -= 1
        return response

    # --- how it is made ---

    async def _overview(self) -> str:
        """Returns the overview's markup, at most EVERY_S old."""
        async with self._making:
            now = self._clock()
            if self._latest is None or now - self._latest[0] >= EVERY_S * 0.9:
                overview = self._rates.overview(
                    await self._snapshot(), missing=await self._missing(), notes=await self._notes()
                )
                self._latest = (now, self._render("overview.html", **_shown(overview)))
            return self._latest[1]

    async def _table(self, query: Mapping[str, str]) -> str:
        asked = _asked(query)
        state = State(asked["state"]) if asked["state"] else None
        number = int(asked["page"])
        listed = await self._sandboxes(
            Filter(
                state=state,
                search=asked["search"],
                offset=(number - 1) * PAGE_SIZE,
                limit=PAGE_SIZE,
            )
        )
        return self._render(
            "sandboxes.html",
            listed=listed,
            asked=asked,
            all=sum(listed["states"].values()),
            page=number,
            pages=max(1, -(-listed["total"] // PAGE_SIZE)),
            address=_address,
        )

    def _render(self, name: str, **parts: Any) -> str:
        return self._templates.get_template(name).render(parts)

    @cached_property
    def _templates(self) -> jinja2.Environment:
        import jinja2  # two megabytes that a router whose page nobody opens can spare

        texts = {name: (self._folder / name).read_text("utf-8") for name in _TEMPLATES}
        templates = jinja2.Environment(
            loader=jinja2.DictLoader(texts),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        templates.filters |= {"count": count_text, "rate": rate_text, "size": size_text}
        return templates


def _shown(overview: Overview) -> dict[str, Any]:
    return {"it": overview}


def _asked(query: Mapping[str, str]) -> dict[str, str]:
    """Returns what the page shows of the table: `search`, `state` ("" for any), `page` from 1. Raises BadRequest."""
    state, page = query.get("state", ""), query.get("page", "1") or "1"
    if state and state not in {each.value for each in State}:
        raise BadRequest(
            f"Unknown state; the states are {', '.join(each.value for each in State)}."
        )
    if not (page.isascii() and page.isdigit() and len(page) <= 6 and 1 <= int(page) <= _MAX_PAGE):
        raise BadRequest(f"The page is a number from 1 to {_MAX_PAGE}.")
    return {"search": query.get("search", "").strip()[:_MAX_SEARCH], "state": state, "page": page}


def _address(asked: Mapping[str, str], **other: str | int) -> str:
    """Returns the address, relative to the page's own, of the page with other parameters."""
    wanted = {**asked, **{name: str(value) for name, value in other.items()}}
    return "?" + urlencode({name: value for name, value in wanted.items() if value})


def _event(markup: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in markup.splitlines())
    return f"event: overview\n{lines}\n".encode("utf-8", "replace")


def _response(html: str) -> web.Response:
    headers = _HEADERS | {"Content-Type": "text/html; charset=utf-8", "Vary": "Accept"}
    return web.Response(body=html.encode("utf-8", "replace"), headers=headers)


# --- numbers for people ---


def count_text(number: float) -> str:
    """Returns a count with its thousands apart."""
    return f"{number:,.0f}"


def rate_text(per_second: float | None) -> str:
    """Returns so many each second; a dash while that isn't known."""
    if per_second is None:
        return _UNKNOWN
    return f"{per_second:,.0f}/s" if per_second >= 10 or not per_second else f"{per_second:.1f}/s"


def size_text(size: float | None) -> str:
    """Returns so many bytes in the unit that suits them; a dash while that isn't known."""
    if size is None:
        return _UNKNOWN
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} {_UNITS[-1]}"
