"""SessionDesk: where people's sessions begin and end, as the data path sees it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from router.auth.principal import Principal
from router.routing.endpoint import Endpoint, SandboxRef


class BegunSession(NamedTuple):
    """A session that has just begun: the cookie's value, its seconds to live, and the path that its link leads to."""

    token: str
    ttl_s: int
    path: str


class SessionDesk(Protocol):
    """Begins sessions, and ends them before their time."""

    def begin(self, caller: Principal, link: bytes, endpoint: Endpoint) -> BegunSession:
        """Returns a new session of whoever the link is for, which has been verified, in the sandbox as it is now."""
        ...

    def link(
        self,
        caller: Principal,
        ref: SandboxRef,
        port: int,
        *,
        uid: str = "",
        path: str = "/",
        wake: bool = False,
    ) -> str:
        """Returns a link to a sandbox for a caller who may call it, signed by the router itself, good for half a minute.

        The session that it begins lasts no longer than the caller's own right, and is revoked with it.
        """
        ...

    def begin_home(self, caller: Principal, link: bytes) -> BegunSession:
        """Returns a new session on the home page of whoever the link is for, which has been verified."""
        ...

    def home_link(self, link: bytes) -> Principal | None:
        """Returns whom a link to the home page is for; None for one that isn't good."""
        ...

    def whose_home(self, cookie: bytes) -> Principal | None:
        """Returns whose session on the home page a cookie's value is; None for none that is good."""
        ...

    def whose(self, cookie: bytes) -> Principal | None:
        """Returns whose session a cookie's value is; None for none that is good."""
        ...

    def end(self, session: Principal) -> None:
        """Ends a session: its cookie is refused, and its streams and tunnels are closed."""
