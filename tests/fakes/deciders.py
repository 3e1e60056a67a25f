"""Bases of authenticators and authorizers that tests write: none of their decisions may be kept."""

from __future__ import annotations

from router.auth.authenticator import Authenticated


class DecidesEachTime:
    """An Authenticator's or Authorizer's word that an earlier decision is never used again."""

    generation = -1

    def valid_until(self, authenticated: Authenticated) -> float:
        return 0.0
