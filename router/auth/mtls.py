"""Mode `mtls`: who a verified client certificate names."""

from __future__ import annotations

import time
from collections.abc import Callable

from router.auth.authenticator import CertificateIdentity
from router.auth.principal import Principal
from router.auth.verifier import Reason, Refusal

MAX_REMEMBERED = 4096

_EXPIRED = Refusal("mtls", Reason.EXPIRED, "The client certificate has expired.")


class CertificateAuthenticator:
    """Accepts the identity that the TLS layer, or a trusted proxy, vouches for."""

    mode = "mtls"

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._principals: dict[CertificateIdentity, Principal] = {}

    def __repr__(self) -> str:
        return "<CertificateAuthenticator>"

    def verify(self, certificate: CertificateIdentity) -> Principal | Refusal:
        """Returns the caller; refuses a certificate that expired since the handshake on a connection that is still open."""
        if certificate.not_after is not None and certificate.not_after <= self._clock():
            return _EXPIRED
        principal = self._principals.get(certificate)
        if principal is None:
            if len(self._principals) >= MAX_REMEMBERED:
                self._principals.clear()
            # The same object again and again: what is derived from it is remembered by it.
            principal = self._principals[certificate] = Principal(
                subject=certificate.identity,
                mode="mtls",
                identity=certificate.identity,
                expires_at=certificate.not_after,
            )
        return principal
