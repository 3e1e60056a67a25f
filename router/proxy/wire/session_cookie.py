"""The session cookie: its name and attributes for a sandbox as it was named, and what no sandbox may set (RFC 6265bis §4.1.3)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from router.proxy.wire.forwarding import front_prefix
from router.proxy.wire.peer import Peer, called_host, called_scheme
from router.proxy.wire.request_head import RequestHead
from router.routing.target import NamedBy, Target

OF_A_HOST: Final = b"__Host-sandbox-router"
OF_A_PATH: Final = b"__Secure-sandbox-router"
ON_LOOPBACK: Final = b"sandbox-router"
RESERVED: Final = frozenset(name.lower() for name in (OF_A_HOST, OF_A_PATH, ON_LOOPBACK))

SECURE_MARK: Final = b"-sandbox-router="
"""Is in every Cookie header that has the cookie in a form that browsers send by https alone."""

_WHITESPACE: Final = b" \t"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRules:
    """How browsers may use sessions: `iframe` in pages of other sites, `path_mode` on an origin that sandboxes share.

    `origins` are other origins (`https://host[:port]`, lower case) whose pages may do what the sandbox's own may.
    """

    iframe: bool = False
    path_mode: bool = False
    origins: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class SessionCookie:
    """The cookie of one sandbox in one browser, without its value."""

    name: bytes
    path: bytes
    iframe: bool

    @property
    def is_secure(self) -> bool:
        """False for the form that is for trying things out on one's own machine."""
        return self.name != ON_LOOPBACK

    def value_in(self, cookies: bytes) -> bytes | None:
        """Returns the value that a Cookie header has for it, None without one; b"" for several, of which none is to be believed."""
        if self.name not in cookies:
            return None
        found = [
            value.strip(_WHITESPACE)
            for name, equals, value in (pair.partition(b"=") for pair in cookies.split(b";"))
            if equals and name.strip(_WHITESPACE) == self.name
        ]
        if not found:
            return None
        return found[0] if len(found) == 1 else b""

    def setting(self, value: bytes, *, max_age_s: int) -> bytes:
        """Returns the value of a Set-Cookie; 0 seconds take the cookie away."""
        security = b"; Secure" if self.is_secure else b""
        same_site = b"None; Partitioned" if self.iframe and self.is_secure else b"Lax"
        return b"%b=%b; Path=%b; Max-Age=%d; HttpOnly%b; SameSite=%b" % (
            self.name,
            value,
            self.path,
            max_age_s,
            security,
            same_site,
        )


def session_cookie(
    target: Target, head: RequestHead, peer: Peer, rules: SessionRules
) -> SessionCookie | None:
    """Returns the cookie of the sandbox that a browser has named; None where the way of naming allows none."""
    if target.named_by is NamedBy.HOST:
        path = b"/"
    elif target.named_by is NamedBy.PATH and rules.path_mode:
        path = front_prefix(head, peer) + target.path_root
    else:
        return None
    if called_scheme(head, peer) != b"https" and is_loopback(called_host(head, peer)):
        return SessionCookie(ON_LOOPBACK, path, rules.iframe)
    return SessionCookie(OF_A_HOST if path == b"/" else OF_A_PATH, path, rules.iframe)


def is_loopback(host: bytes) -> bool:
    """Returns True for a host (with or without a port) that browsers look for on their own machine alone (RFC 6761 §6.3)."""
    name = host.lower()
    name = name[1:].partition(b"]")[0] if name.startswith(b"[") else name.partition(b":")[0]
    if name == b"localhost" or name.endswith(b".localhost"):
        return True
    if not name[:1].isdigit() and b":" not in name:
        return False
    try:
        return ipaddress.ip_address(name.decode("latin-1")).is_loopback
    except ValueError:
        return False


def sets_reserved(value: bytes) -> bool:
    """Returns True for a Set-Cookie that sets, or that a browser would send back as, one of the session cookie's names."""
    # A cookie without a name is sent back as its value alone, which may look like a name and a value.
    pair = value.partition(b";")[0].lstrip(b"= \t")
    return pair.partition(b"=")[0].strip(_WHITESPACE).lower() in RESERVED
