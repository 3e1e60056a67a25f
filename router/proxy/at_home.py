"""AtHome: requests to the base domain itself, which name no sandbox: a person's own page.

    GET  /                                  the sandboxes that the caller may open
    GET  /.sandbox-router/sandboxes         the same list alone, for the page's script
    POST /.sandbox-router/open              leads to the sandbox that the query names
    POST /.sandbox-router/wake              wakes it, and leads back
    GET  /.sandbox-router/session?link=…    begins a session on this page
    POST /.sandbox-router/logout            ends it
    GET  /.sandbox-router/look.css, home.js what the page loads

What the page says is its room's business (router/home); here is who may ask.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from router.auth.authenticator import Authenticated
from router.auth.principal import Principal
from router.auth.session_desk import SessionDesk
from router.errors import (
    BadRequest,
    CrossOrigin,
    MethodNotAllowed,
    Misdirected,
    Overloaded,
    Unauthenticated,
)
from router.proxy.admission import Admission
from router.proxy.request import Request
from router.proxy.session_paths import AnsweredHere
from router.proxy.wire.cross_site import is_by_a_person, is_from_elsewhere, why_foreign
from router.proxy.wire.error_pages import signed_out_page
from router.proxy.wire.local_responses import home_answer, session_answer, signed_out_answer
from router.proxy.wire.navigation import is_shown_to_a_person
from router.proxy.wire.peer import called_host, called_scheme
from router.proxy.wire.router_paths import LOGOUT, PREFIX, SESSION, link_in
from router.proxy.wire.session_cookie import (
    OF_A_HOST,
    ON_LOOPBACK,
    SessionCookie,
    SessionRules,
    is_loopback,
)

_AUTHORITY: Final = re.compile(rb"([a-z0-9.-]{1,253}?)\.?(?::[0-9]{1,5})?")
_LIMIT_S: Final = 10.0
_ROOT: Final = b"/"
_OPEN: Final = PREFIX + b"open"
_WAKE: Final = PREFIX + b"wake"
_LIST: Final = PREFIX + b"sandboxes"
_SESSION: Final = PREFIX + SESSION
_LOGOUT: Final = PREFIX + LOGOUT
_FILES: Final = (PREFIX + b"look.css", PREFIX + b"home.js")
_READ: Final = (b"GET", b"HEAD")
_WRITTEN: Final = (b"POST",)
_METHODS: Final = {
    _ROOT: _READ,
    _LIST: _READ,
    _SESSION: _READ,
    **dict.fromkeys(_FILES, _READ),
    _OPEN: _WRITTEN,
    _WAKE: _WRITTEN,
    _LOGOUT: _WRITTEN,
}


class Visit(NamedTuple):
    """What a caller asks of the page."""

    query: bytes
    principal: Principal
    client: str
    authority: bytes
    """The base domain as the browser knows it, with its port if that isn't the usual one."""


class Shown(NamedTuple):
    """A response, without what the connection adds to it."""

    status: int
    kind: bytes
    """The content's type."""
    lines: tuple[bytes, ...]
    """More header lines, line ends included."""
    body: bytes


_Answer: TypeAlias = tuple[int, Callable[..., bytes]]
"""The status, and what writes the response."""


class HomePage(Protocol):
    """What is shown, and done, at home."""

    def file(self, name: bytes) -> Shown:
        """Returns `look.css` or `home.js`."""
        ...

    async def page(self, visit: Visit) -> Shown:
        """Returns the page. Raises BadRequest."""
        ...

    async def listing(self, visit: Visit) -> Shown:
        """Returns the list of sandboxes alone. Raises BadRequest."""
        ...

    async def open(self, visit: Visit) -> Shown:
        """Leads to the sandbox that the query names. Raises BadRequest, Forbidden, AuthUnavailable."""
        ...

    async def wake(self, visit: Visit) -> Shown:
        """Wakes the sandbox that the query names. Raises what open() does, and WakeLimited, WakeUnavailable."""
        ...


class AtHome:
    """Answers what is asked of the base domain itself."""

    def __init__(
        self,
        *,
        base_domain: str,
        admission: Admission,
        page: HomePage,
        desk: SessionDesk | None,
        rules: SessionRules | None,
    ) -> None:
        """Without `desk` and `rules` there are no sessions here either."""
        self._domain = base_domain.lower().strip(".").encode("ascii")
        self._admission = admission
        self._page = page
        self._desk = desk
        self._rules = SessionRules() if rules is None else rules

    def __repr__(self) -> str:
        return f"<AtHome {self._domain!r}>"

    def takes(self, request: Request, error: Exception) -> bool:
        """Returns True when a request that named no sandbox, which is the error, is for this page."""
        if not isinstance(error, Misdirected):
            return False
        head = request.head
        called = _AUTHORITY.fullmatch(called_host(head, request.caller.peer).lower())
        return called is not None and called[1] == self._domain and _path_of(request) in _METHODS

    async def answering(self, request: Request) -> AnsweredHere:
        """Returns the answer to a request that takes() took. Raises the RouterError of a refusal."""
        try:
            async with asyncio.timeout(_LIMIT_S):
                return AnsweredHere(*await self._decide(request))
        except TimeoutError:
            raise Overloaded("The page took too long.") from None

    async def _decide(self, request: Request) -> _Answer:
        head, path = request.head, _path_of(request)
        if head.method not in _METHODS[path]:
            raise MethodNotAllowed(allow=_METHODS[path][0].decode("ascii"))
        if head.has_body:
            raise BadRequest("Nothing here takes a body.")
        if path in _FILES:
            return _shown(self._page.file(path.removeprefix(PREFIX)))
        if path == _SESSION:
            return self._begin(request)
        caller = await self._caller(request)
        if path == _LOGOUT:
            return self._end(request, caller)
        visit = Visit(
            head.target.partition(b"?")[2],
            caller,
            request.outcome.client,
            called_host(head, request.caller.peer),
        )
        return _shown(await self._ask_page(path, visit))

    async def _ask_page(self, path: bytes, visit: Visit) -> Shown:
        if path == _OPEN:
            return await self._page.open(visit)
        if path == _WAKE:
            return await self._page.wake(visit)
        if path == _LIST:
            return await self._page.listing(visit)
        return await self._page.page(visit)

    # --- who calls ---

    async def _caller(self, request: Request) -> Principal:
        """Returns who calls. Raises Unauthenticated, AuthUnavailable, and CrossOrigin for a page of another origin."""
        head = request.head
        is_explicit = head.authorization is not None or head.sandbox_token is not None
        cookie, found = self._cookie(request), None
        value = cookie.value_in(head.cookie) if head.cookie and self._desk else None
        if value is not None and not is_explicit:
            assert self._desk is not None
            found = self._desk.whose_home(value)
            if found is None:
                error = Unauthenticated("The session has ended, or is none of this page.")
                error.set_cookie = cookie.setting(b"", max_age_s=0)
                raise error
            authenticated = Authenticated(found, consumed_authorization=False)
        else:
            answer = self._admission.caller(request)
            authenticated = answer if isinstance(answer, Authenticated) else await answer
        self._admission.note_caller(request, authenticated)
        if not is_explicit:
            why = why_foreign(head, request.caller.peer, self._rules)
            if why:
                raise CrossOrigin(reason=why)
        return authenticated.principal

    # --- sessions ---

    def _begin(self, request: Request) -> _Answer:
        head, desk = request.head, self._desk
        if not is_by_a_person(head, self._rules):
            raise CrossOrigin("A session begins where a person opens its link, not inside a page.")
        cookie = self._cookie(request)
        if called_scheme(head, request.caller.peer) == b"http" and cookie.is_secure:
            raise BadRequest("A session needs https: browsers keep its cookie for nothing else.")
        link = link_in(head.target)
        caller = None if desk is None else desk.home_link(link)
        if desk is None or caller is None:
            raise Unauthenticated("The link is no longer good, or is none for this page.")
        present = cookie.value_in(head.cookie) if head.cookie else None
        if present and is_from_elsewhere(head):
            who = desk.whose_home(present)
            if who is not None and (who.issuer, who.subject) != (caller.issuer, caller.subject):
                error = CrossOrigin(
                    "This browser has a session of somebody else here. Sign out first."
                )
                error.is_of_somebody_else = True
                raise error
        self._admission.note_caller(request, Authenticated(caller, consumed_authorization=False))
        session = desk.begin_home(caller, link)
        setting = cookie.setting(session.token.encode("ascii"), max_age_s=session.ttl_s)
        return 303, partial(session_answer, session.path.encode("ascii"), setting)

    def _end(self, request: Request, caller: Principal) -> _Answer:
        if self._desk is not None and caller.mode == "home":
            self._desk.end(caller)
        setting = self._cookie(request).setting(b"", max_age_s=0)
        page = signed_out_page() if is_shown_to_a_person(request.head) else None
        return 200, partial(signed_out_answer, setting, page)

    def _cookie(self, request: Request) -> SessionCookie:
        head, peer = request.head, request.caller.peer
        tries = called_scheme(head, peer) != b"https" and is_loopback(called_host(head, peer))
        return SessionCookie(ON_LOOPBACK if tries else OF_A_HOST, b"/", iframe=False)


def _path_of(request: Request) -> bytes:
    return request.head.target.partition(b"?")[0]


def _shown(shown: Shown) -> _Answer:
    return shown.status, partial(home_answer, *shown)
