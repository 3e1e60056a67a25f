"""SessionPaths: where a browser's session begins and ends.

    GET  /.sandbox-router/session?link=…    sets the session cookie, and leads to the path that the link names
    POST /.sandbox-router/logout            ends the session, and takes the cookie away

The link has been verified, and its right to this very sandbox, when a request comes here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from router.auth.principal import Principal
from router.auth.session_desk import SessionDesk
from router.errors import BadRequest, CrossOrigin, MethodNotAllowed
from router.proxy.exchange import Exchange
from router.proxy.request import Request
from router.proxy.wire.cross_site import is_by_a_person, is_from_elsewhere
from router.proxy.wire.error_pages import signed_out_page
from router.proxy.wire.forwarding import front_prefix
from router.proxy.wire.local_responses import session_answer, signed_out_answer
from router.proxy.wire.navigation import is_shown_to_a_person
from router.proxy.wire.peer import called_host, called_scheme
from router.proxy.wire.router_paths import LOGOUT, SESSION, link_in, own_path
from router.proxy.wire.session_cookie import (
    SessionCookie,
    SessionRules,
    is_loopback,
    session_cookie,
)

_METHODS: Final = {SESSION: (b"GET", b"HEAD"), LOGOUT: (b"POST",)}


class AnsweredHere:
    """Stands where a sandbox's connection would, for a request whose body nobody reads."""

    __slots__ = ("_answer", "_status")

    def __init__(self, status: int, answer: Callable[..., bytes]) -> None:
        self._status = status
        self._answer = answer

    def carry(self, exchange: Exchange, *, is_reused: bool) -> None:
        """Gives the exchange its response."""
        exchange.answered_here(self._status, self._answer)


class SessionPaths:
    """Answers the permitted requests that begin and end sessions."""

    def __init__(self, *, desk: SessionDesk, rules: SessionRules) -> None:
        self._desk = desk
        self._rules = rules

    def __repr__(self) -> str:
        return f"<SessionPaths {self._rules!r}>"

    def check(self, path: bytes, request: Request) -> None:
        """Refuses what is refused in any case. Raises MethodNotAllowed, BadRequest, CrossOrigin."""
        head = request.head
        allowed = _METHODS[path]
        if head.method not in allowed:
            raise MethodNotAllowed(allow=allowed[0].decode("ascii"))
        cookie = self._cookie(request)
        if path != SESSION:
            return
        if not is_by_a_person(head, self._rules):
            raise CrossOrigin("A session begins where a person opens its link, not inside a page.")
        assert request.authenticated is not None
        self._refuse_to_replace(request, cookie, request.authenticated.principal)

    def answering(self, request: Request) -> AnsweredHere | None:
        """Returns the answer to a request that check() has let pass, None for another path."""
        assert request.target is not None
        path = own_path(request.head.target, request.target.path_root)
        if path == SESSION:
            return self._begin(request)
        return self._end(request) if path == LOGOUT else None

    def _begin(self, request: Request) -> AnsweredHere:
        head, permit, target = request.head, request.permit, request.target
        assert permit is not None
        assert target is not None
        assert permit.principal.mode == "link", "nothing else opens this path"
        cookie = self._cookie(request)
        session = self._desk.begin(permit.principal, link_in(head.target), permit.endpoint)
        root = front_prefix(head, request.caller.peer) + target.path_root
        set_cookie = cookie.setting(session.token.encode("ascii"), max_age_s=session.ttl_s)
        location = root + session.path.encode("ascii")
        return AnsweredHere(303, partial(session_answer, location, set_cookie))

    def _end(self, request: Request) -> AnsweredHere:
        permit = request.permit
        assert permit is not None
        cookie = self._cookie(request)
        if permit.principal.mode == "session":
            self._desk.end(permit.principal)
        page = signed_out_page() if is_shown_to_a_person(request.head) else None
        return AnsweredHere(200, partial(signed_out_answer, cookie.setting(b"", max_age_s=0), page))

    def _cookie(self, request: Request) -> SessionCookie:
        """Returns the cookie of the sandbox that was named. Raises BadRequest where the browser could not keep it."""
        head, peer, target = request.head, request.caller.peer, request.target
        assert target is not None
        cookie = session_cookie(target, head, peer, self._rules)
        if cookie is None:
            raise BadRequest(
                "A session needs a sandbox that is named by its host (base-domain); by path only with session-path-mode."
            )
        if called_scheme(head, peer) == b"http" and not is_loopback(called_host(head, peer)):
            raise BadRequest("A session needs https: browsers keep its cookie for nothing else.")
        return cookie

    def _refuse_to_replace(
        self, request: Request, cookie: SessionCookie, caller: Principal
    ) -> None:
        """Raises CrossOrigin when a page of another origin would make the user somebody else."""
        cookies = request.head.cookie
        value = None if cookies is None else cookie.value_in(cookies)
        if not value or not is_from_elsewhere(request.head):
            return
        present = self._desk.whose(value)
        if present is not None and _person(present) != _person(caller):
            error = CrossOrigin(
                "This browser has a session of somebody else in this sandbox. Sign out, then open the link again."
            )
            error.is_of_somebody_else = True
            raise error


def _person(principal: Principal) -> tuple[str, str]:
    return principal.issuer, principal.subject
