"""SessionUse: what of a request concerns its browser's session: the cookie, the link, and the page that it comes from."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from router.auth.authenticator import Authenticated, Authenticator, Credentials
from router.auth.principal import Principal
from router.errors import CrossOrigin, Unauthenticated
from router.proxy.request import Request
from router.proxy.wire.cross_site import why_foreign
from router.proxy.wire.router_paths import LOGOUT, SESSION, link_in, own_path
from router.proxy.wire.session_cookie import SECURE_MARK, SessionRules, session_cookie
from router.routing.target import Target

_NO_SESSIONS: Final = SessionRules()
_OF_SESSIONS: Final = (SESSION, LOGOUT)


class SessionUse:
    """Reads requests by the rules for sessions. Reads no socket and awaits nothing."""

    def __init__(self, rules: SessionRules | None) -> None:
        """Without `rules` there are no sessions."""
        self._rules = rules

    def __repr__(self) -> str:
        return f"<SessionUse {self._rules!r}>"

    def authenticate(
        self,
        request: Request,
        target: Target,
        credentials: Credentials,
        authenticator: Authenticator,
    ) -> Authenticated | Awaitable[Authenticated]:
        """Returns the caller, or who has to be asked. Raises Unauthenticated, AuthUnavailable.

        A session that is refused is taken away from the browser, so that the next request is one without.
        """
        if self._rules is None:
            return authenticator.authenticate(credentials)
        head, peer = request.head, request.caller.peer
        path = own_path(head.target, target.path_root)
        request.needs_no_pod = path in _OF_SESSIONS
        cookie = None
        if path == SESSION:
            credentials.link = link_in(head.target)
        elif head.cookie is not None:
            cookie = session_cookie(target, head, peer, self._rules)
            if cookie is not None:
                credentials.session = cookie.value_in(head.cookie)
        try:
            return authenticator.authenticate(credentials)
        except Unauthenticated as error:
            if cookie is not None and credentials.session is not None:
                error.set_cookie = cookie.setting(b"", max_age_s=0)
            raise

    def refuse_foreign_pages(self, request: Request, principal: Principal) -> None:
        """Raises CrossOrigin for what a page of another origin asks for with a credential that the browser adds by itself."""
        request.is_ambient = True
        head = request.head
        needs_tls = (
            principal.mode == "session" and head.cookie is not None and SECURE_MARK in head.cookie
        )
        why = why_foreign(
            head, request.caller.peer, self._rules or _NO_SESSIONS, needs_tls=needs_tls
        )
        if why:
            raise CrossOrigin(reason=why)
