"""Mode `none`: everybody may call, said explicitly by the operator."""

from __future__ import annotations

import math

from router.auth.authenticator import Authenticated, Credentials
from router.auth.principal import Principal

PREFLIGHT = Principal(subject="", mode="preflight")
"""A browser that asks whether a page may send its request (CORS): it has no credential yet."""
PUBLIC = Principal(subject="", mode="public")
"""Whoever calls a port that its sandbox's owner and the operator have both opened to everybody."""
ANONYMOUS = Principal(subject="anonymous", mode="none")


class AnonymousAuthenticator:
    """Lets every caller in and leaves every credential to the app."""

    def __init__(self) -> None:
        self._everybody = Authenticated(ANONYMOUS, consumed_authorization=False)
        self.generation = 0

    def __repr__(self) -> str:
        return "<AnonymousAuthenticator>"

    def valid_until(self, authenticated: Authenticated) -> float:
        """Returns infinity: everybody stays welcome."""
        return math.inf

    def authenticate(self, credentials: Credentials) -> Authenticated:
        """Returns the anonymous caller, whatever was presented."""
        return self._everybody
