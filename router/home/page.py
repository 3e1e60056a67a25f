"""HomePage: a person's own page on the base domain: the sandboxes that they may open, and the way in."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlencode

from router.auth.session_desk import SessionDesk
from router.errors import BadRequest, Forbidden, RouterError, SandboxNotFound
from router.home.rights import Openables
from router.proxy.at_home import Shown, Visit
from router.proxy.ports import WakeDesk
from router.routing.endpoint import Endpoint, SandboxRef, State

if TYPE_CHECKING:
    import jinja2

PAGE_SIZE: Final = 50
_MAX_SEARCH: Final = 400
_MAX_PAGE: Final = 100_000
_MAX_LABEL: Final = 63
_WITHOUT_SESSION: Final = frozenset({"none", "forwarded", "mtls"})
"""Modes whose callers a sandbox's own host recognises as well, whatever they may do there."""
_TEMPLATES: Final = ("home.html", "sandboxes.html")
_HTML: Final = b"text/html; charset=utf-8"
_LINES: Final = (
    b"Content-Security-Policy: default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    b"img-src data:; base-uri 'none'; form-action 'self' %b; frame-ancestors 'none'\r\n",
    b"Cross-Origin-Opener-Policy: same-origin\r\n",
    b"Cross-Origin-Resource-Policy: same-origin\r\n",
    b"Referrer-Policy: same-origin\r\n",
    b"Vary: Cookie\r\n",
    b"X-Content-Type-Options: nosniff\r\n",
    b"X-Robots-Tag: noindex\r\n",
)
_FILES: Final = {
    b"look.css": b"text/css; charset=utf-8",
    b"home.js": b"text/javascript; charset=utf-8",
}


class SandboxesPage:
    """Implements proxy.at_home.HomePage. Belongs to the loop's thread."""

    def __init__(
        self,
        *,
        openables: Openables,
        find: Callable[[SandboxRef], Endpoint | None],
        desk: SessionDesk | None,
        wakes: WakeDesk | None,
        wake_timeout_s: float,
        default_namespace: str,
        base_domain: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without a `desk` there are no sessions: a sandbox's own host has to recognise its callers. Without `wakes` none is woken."""
        self._openables = openables
        self._find = find
        self._desk = desk
        self._wakes = wakes
        self._wake_timeout_s = wake_timeout_s
        self._default_namespace = default_namespace
        self._base_domain = base_domain
        self._clock = clock
        self._folder = resources.files("router.home") / "pages"
        look = resources.files("router") / "looks" / "look.css"
        self._files = {
            b"look.css": look.read_bytes(),
            b"home.js": (self._folder / "home.js").read_bytes(),
        }

    def __repr__(self) -> str:
        return f"<SandboxesPage {self._base_domain!r}>"

    # --- what is asked for ---

    def file(self, name: bytes) -> Shown:
        """Returns `look.css` or `home.js`."""
        lines = (b"X-Content-Type-Options: nosniff\r\n",)
        return Shown(200, _FILES[name], lines, self._files[name])

    async def page(self, visit: Visit) -> Shown:
        """Returns the page. Raises BadRequest."""
        asked = _asked(visit.query)
        parts = await self._parts(visit, asked)
        listing = self._render("sandboxes.html", parts)
        who = "" if visit.principal.mode in ("none", "static") else visit.principal.subject
        may_leave = visit.principal.mode == "home"
        shown = {"sandboxes": listing, "asked": asked, "who": who, "may_leave": may_leave}
        return self._shown(visit, self._render("home.html", shown))

    async def listing(self, visit: Visit) -> Shown:
        """Returns the list of sandboxes alone. Raises BadRequest."""
        parts = await self._parts(visit, _asked(visit.query))
        return self._shown(visit, self._render("sandboxes.html", parts))

    async def open(self, visit: Visit) -> Shown:
        """Leads to the sandbox that the query names. Raises BadRequest, Forbidden, SandboxNotFound."""
        endpoint, port = self._named(visit.query)
        caller, ref = visit.principal, endpoint.ref
        if not self._openables.may_open(caller, endpoint, port):
            raise Forbidden(
                reason="the home page opens nothing that the caller may not call by every method"
            )
        host = self._host_of(ref, port)
        if not host:
            raise BadRequest("The sandbox's name is too long for a host: it can't be opened here.")
        place = f"//{host}.{visit.authority.decode('latin-1')}"
        if self._desk is None or caller.mode in _WITHOUT_SESSION:
            return _redirect(f"{place}/")
        link = self._desk.link(
            caller,
            ref,
            port,
            uid=endpoint.sandbox_uid or endpoint.uid,
            wake=self._openables.may_wake(caller, endpoint, port),
        )
        return _redirect(f"{place}/.sandbox-router/session?link={link}")

    async def wake(self, visit: Visit) -> Shown:
        """Wakes the sandbox that the query names. Raises BadRequest, Forbidden, SandboxNotFound, WakeLimited, WakeUnavailable."""
        endpoint, port = self._named(visit.query)
        caller = visit.principal
        if not self._openables.may_open(caller, endpoint, port):
            raise Forbidden(reason="the home page wakes nothing that the caller may not open")
        if endpoint.state is State.SUSPENDED:
            if self._wakes is None or not self._openables.may_wake(caller, endpoint, port):
                raise Forbidden("You may open this sandbox, but not wake it.")
            until = self._clock() + self._wake_timeout_s
            by = f"{caller.subject} ({visit.client})" if caller.subject else visit.client
            # The wake goes on; what comes of it is seen on the page.
            self._wakes.want(endpoint, by=by, until=until, failed=_ignored).cancel()
        return _redirect("/")

    # --- how it is made ---

    def _named(self, query: bytes) -> tuple[Endpoint, int]:
        asked = _query(query)
        namespace, _, name = asked.get("sandbox", "").partition("/")
        port = asked.get("port", "")
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
            raise BadRequest("The port is a number from 1 to 65535.")
        endpoint = self._find(SandboxRef(namespace, name)) if name else None
        if endpoint is None:
            raise SandboxNotFound
        return endpoint, int(port)

    def _host_of(self, ref: SandboxRef, port: int) -> str:
        """Returns the label that names the sandbox below the base domain; "" where it is too long for one."""
        label = f"{port}-{ref.name}"
        if ref.namespace != self._default_namespace or "--" in ref.name:
            label += f"--{ref.namespace}"
        return label if len(label) <= _MAX_LABEL else ""

    async def _parts(self, visit: Visit, asked: dict[str, str]) -> dict[str, Any]:
        number = int(asked["page"])
        total, found = await self._openables.of(
            visit.principal, asked["search"], skip=(number - 1) * PAGE_SIZE, take=PAGE_SIZE
        )
        return {
            "found": [(one, bool(self._host_of(one.endpoint.ref, 65535))) for one in found],
            "asked": asked,
            "total": total,
            "page": number,
            "pages": max(1, -(-total // PAGE_SIZE)),
            "address": _address,
            "has_wakes": self._wakes is not None,
        }

    def _shown(self, visit: Visit, html: str) -> Shown:
        authority = visit.authority.decode("latin-1")
        # A form's redirect is held to the policy too: to the sandboxes' own hosts.
        targets = f"*.{authority}".encode("latin-1")
        lines = (_LINES[0] % targets, *_LINES[1:])
        return Shown(200, _HTML, lines, html.encode("utf-8", "replace"))

    def _render(self, name: str, parts: dict[str, Any]) -> str:
        return self._templates.get_template(name).render(parts)

    @cached_property
    def _templates(self) -> jinja2.Environment:
        import jinja2  # two megabytes that a router whose page nobody opens can spare

        texts = {name: (self._folder / name).read_text("utf-8") for name in _TEMPLATES}
        return jinja2.Environment(
            loader=jinja2.DictLoader(texts),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )


def _redirect(location: str) -> Shown:
    lines = (
        b"Location: %b\r\n" % location.encode("latin-1"),
        b"Referrer-Policy: no-referrer\r\n",
    )
    return Shown(303, _HTML, lines, b"")


def _ignored(error: RouterError) -> None:
    """Nobody waits for it."""


def _query(query: bytes) -> dict[str, str]:
    """Returns the query's parameters. Raises BadRequest."""
    try:
        found = parse_qs(
            query.decode("ascii"), keep_blank_values=True, max_num_fields=16, errors="strict"
        )
    except ValueError:
        raise BadRequest("The query can't be read.") from None
    return {name: values[0] for name, values in found.items()}


def _asked(query: bytes) -> dict[str, str]:
    """Returns what is shown: `search`, `page` from 1. Raises BadRequest."""
    said = _query(query)
    page = said.get("page") or "1"
    if not (page.isascii() and page.isdigit() and len(page) <= 6 and 1 <= int(page) <= _MAX_PAGE):
        raise BadRequest(f"The page is a number from 1 to {_MAX_PAGE}.")
    return {"search": said.get("search", "").strip()[:_MAX_SEARCH], "page": page}


def _address(asked: dict[str, str], page: int) -> str:
    wanted = {"search": asked["search"], "page": str(page) if page > 1 else ""}
    return "?" + urlencode({name: value for name, value in wanted.items() if value})
