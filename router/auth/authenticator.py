"""Authenticator: from a request's credentials to the Principal that they prove."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from router.auth.principal import Principal


@dataclass(slots=True)
class Credentials:
    """What one request or connection offers as proof of who calls; secrets, so never logged and without a repr.

    `authorization` and `sandbox_token` are raw header values (latin-1 bytes), None when absent. `subprotocol_token` is the
    token of an offered `sandbox-router.bearer.<token>` WebSocket subprotocol. `certificate` is the identity that the TLS
    layer (or a trusted proxy's X-Forwarded-Client-Cert) vouches for, None without one.
    """

    authorization: bytes | None = None
    sandbox_token: bytes | None = None
    subprotocol_token: bytes | None = None
    certificate: CertificateIdentity | None = None

    def __repr__(self) -> str:
        offered = [name for name in self.__slots__ if getattr(self, name) is not None]
        return f"<Credentials offered={offered}>"


@dataclass(frozen=True, slots=True)
class CertificateIdentity:
    """Who a verified client certificate names: the first URI SAN, else the first DNS SAN, else the subject CN."""

    identity: str
    kind: str
    """`uri`, `dns` or `cn`."""
    not_after: float | None = None
    """When the certificate expires (Unix seconds); None when a trusted proxy vouches for it and doesn't say."""


class Authenticated(NamedTuple):
    """A verified caller, and whether the Authorization header was used up (then it never reaches the sandbox)."""

    principal: Principal
    consumed_authorization: bool


class Authenticator(Protocol):
    """Decides who calls. Finishes at once where it can (a cached or local check); awaits only for a remote one."""

    def authenticate(self, credentials: Credentials) -> Authenticated | Awaitable[Authenticated]:
        """Returns the caller. Raises Unauthenticated, AuthUnavailable (at once or from the awaitable)."""
        ...
