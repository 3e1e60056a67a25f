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
    layer (or a trusted proxy's X-Forwarded-Client-Cert) vouches for, None without one. `fetch_mode` is the raw value of
    Sec-Fetch-Mode, no credential but what a browser says it asks for: it decides which challenges make sense.
    `session` is the value of this sandbox's session cookie. `link` is the link's token of a request that begins a session, b""
    where it brings none; None for every other request. `forwarded` is whom a trusted proxy says that it has signed in. `is_public` says that the port asked for needs no credential.
    """

    authorization: bytes | None = None
    sandbox_token: bytes | None = None
    subprotocol_token: bytes | None = None
    certificate: CertificateIdentity | None = None
    fetch_mode: bytes | None = None
    session: bytes | None = None
    link: bytes | None = None
    forwarded: ForwardedIdentity | None = None
    is_public: bool = False

    def __repr__(self) -> str:
        values = {
            "authorization": self.authorization,
            "sandbox_token": self.sandbox_token,
            "subprotocol_token": self.subprotocol_token,
            "certificate": self.certificate,
            "session": self.session,
            "link": self.link,
            "forwarded": self.forwarded,
        }
        return (
            f"<Credentials offered={[name for name, value in values.items() if value is not None]}>"
        )


@dataclass(frozen=True, slots=True)
class CertificateIdentity:
    """Who a verified client certificate names: the first URI SAN, else the first DNS SAN, else the subject CN."""

    identity: str
    kind: str
    """`uri`, `dns` or `cn`."""
    not_after: float | None = None
    """When the certificate expires (Unix seconds); None when a trusted proxy vouches for it and doesn't say."""


class ForwardedIdentity(NamedTuple):
    """Who has signed in at a trusted proxy; `subject` "" where it doesn't say one name."""

    subject: str
    groups: tuple[str, ...] = ()


class Authenticated(NamedTuple):
    """A verified caller, and whether the Authorization header was used up (then it never reaches the sandbox)."""

    principal: Principal
    consumed_authorization: bool
    is_sole_credential: bool = True
    """False when several credentials were presented, all of which have to stay valid."""


class Authenticator(Protocol):
    """Decides who calls. Finishes at once where it can (a cached or local check); awaits only for a remote one.

    `generation` changes whenever an earlier answer may be another now (keys, policy, tokens). Who keeps an answer reads
    it before asking, and keeps the answer while it is the same and valid_until() lies ahead.
    """

    generation: int

    def valid_until(self, authenticated: Authenticated) -> float:
        """Returns until when (Unix seconds) the same credentials give this answer within the generation; 0 for no time at all."""
        ...

    def authenticate(self, credentials: Credentials) -> Authenticated | Awaitable[Authenticated]:
        """Returns the caller. Raises Unauthenticated, AuthUnavailable (at once or from the awaitable)."""
        ...
