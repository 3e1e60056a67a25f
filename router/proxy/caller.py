"""Caller: a client's connection, as far as it proves who calls, and what its last request was granted."""

from __future__ import annotations

from router.auth.authenticator import Authenticated, CertificateIdentity
from router.auth.authorizer import Permit
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead
from router.routing.target import Target


class Remembered:
    """What the last request of a connection was granted, for the next one that asks for the same with the same credential.

    It holds while nobody's generation moved, the credential is valid, and the name still leads to the very same Endpoint.
    """

    __slots__ = (
        "asked",
        "authenticated",
        "authenticator_generation",
        "authorization",
        "authorizer_generation",
        "authz",
        "client_cert",
        "cookie",
        "counts_cookie",
        "host",
        "is_ambient",
        "method",
        "names_generation",
        "permit",
        "sandbox_token",
        "target",
        "valid_until",
    )

    def __init__(
        self,
        head: RequestHead,
        target: Target,
        authenticated: Authenticated,
        permit: Permit,
        generations: tuple[int, int, int],
        valid_until: float,
        *,
        counts_cookie: bool,
        is_ambient: bool,
    ) -> None:
        # Not the head itself: an idle connection would keep all its lines in memory.
        self.asked = head.asked
        self.authorization = head.authorization
        self.host = head.host
        self.method = head.method
        self.sandbox_token = head.sandbox_token
        self.client_cert = head.client_cert
        self.counts_cookie = counts_cookie
        """Whether another Cookie header could make it another caller."""
        self.cookie = head.cookie if counts_cookie else None
        self.is_ambient = is_ambient
        """The browser adds the credential by itself, so each request is asked which page it is of."""
        self.target = target
        self.authenticated = authenticated
        self.permit = permit
        self.authz = "public" if permit.principal.mode == "public" else "allowed"
        self.authenticator_generation, self.authorizer_generation, self.names_generation = (
            generations
        )
        self.valid_until = valid_until
        """Unix seconds."""

    def has_credential_of(self, head: RequestHead) -> bool:
        """Returns True when the head has exactly the credential that this was granted for."""
        return (
            head.authorization == self.authorization
            and head.sandbox_token == self.sandbox_token
            and head.subprotocols is None
            and head.client_cert == self.client_cert
            and (not self.counts_cookie or head.cookie == self.cookie)
        )


class Caller:
    """A client's connection, as far as it proves who calls (made once a connection)."""

    __slots__ = ("certificate", "peer", "remembered")

    def __init__(self, peer: Peer, certificate: CertificateIdentity | None = None) -> None:
        self.peer = peer
        self.certificate = certificate
        self.remembered: Remembered | None = None
