"""Revocation: when a right that was once proven has ended, without a store of sessions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from router.auth.policy import CurrentPolicy
from router.auth.principal import Principal
from router.routing.endpoint import Endpoint

TOKEN_MODES = frozenset({"jwt", "token-review", "link", "session", "home-link", "home"})
"""The modes whose credentials are issued at a time and have an id; a shared token or a certificate is revoked at its source."""

_SESSIONS = frozenset({"session", "home"})

MAX_ENDED = 8192
_LEEWAY_S = 60.0
"""An ended session is remembered longer than any clock's difference would let it live."""


def older_than_allowed(principal: Principal, not_before: float) -> bool:
    """Returns True when the principal's token was issued before `not_before` (Unix seconds), or doesn't say when."""
    if principal.mode not in TOKEN_MODES:
        return False
    return principal.issued_at is None or principal.issued_at < not_before


class EndedSessions:
    """Sessions that ended before their time, remembered until then; `is_refused` of a Revocation that has it knows them.

    Bounded: the longest ended go first, so a flood of sign-outs costs no memory.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._on_learned: list[Callable[[], None]] = []
        self.on_end: Callable[[str, float], None] = lambda session_id, until: None
        """Called with the id of a session that was ended here, and until when it is remembered (Unix seconds)."""

    def __repr__(self) -> str:
        return f"<EndedSessions {len(self._until)}>"

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._until

    def add(self, session: Principal) -> None:
        """Remembers a session until it would have expired."""
        until = (session.expires_at or 0.0) + _LEEWAY_S
        self._remember(session.token_id, until)
        self.on_end(session.token_id, until)

    def learn(self, pairs: Iterable[tuple[str, float]]) -> None:
        """Remembers sessions that were ended elsewhere: each an id, and until when."""
        for session_id, until in pairs:
            self._remember(session_id, until)
        for tell in self._on_learned:
            tell()

    def on_learned(self, tell: Callable[[], None]) -> None:
        """Has `tell` called when sessions have ended elsewhere."""
        self._on_learned.append(tell)

    def known(self) -> list[tuple[str, float]]:
        """Returns all that are remembered, as learn() takes them."""
        return list(self._until.items())

    def _remember(self, session_id: str, until: float) -> None:
        if len(self._until) >= MAX_ENDED:
            now = self._clock()
            self._until = {sid: until for sid, until in self._until.items() if until > now}
        while len(self._until) >= MAX_ENDED:
            del self._until[next(iter(self._until))]
        self._until[session_id] = until


class Revocation:
    """Says when a caller's right ends, and whether it has been taken away.

    `auth_grace_s` 0 ends a stream with its credential, infinity never. `current` returns an endpoint as it is known now: what an open stream holds is the one that it was authorised for.
    """

    def __init__(
        self,
        *,
        policy: CurrentPolicy,
        auth_grace_s: float,
        current: Callable[[Endpoint], Endpoint] = lambda endpoint: endpoint,
    ) -> None:
        self.ended_sessions = EndedSessions()
        self._policy = policy
        self._auth_grace_s = auth_grace_s
        self._current = current

    def __repr__(self) -> str:
        return f"<Revocation grace={self._auth_grace_s:g}s {self._policy!r}>"

    def end_of_right(self, principal: Principal) -> float | None:
        """Returns when an open stream of this caller must end (Unix seconds): `auth-grace` after the credential's expiry; None for never."""
        if principal.expires_at is None or self._auth_grace_s == math.inf:
            return None
        return principal.expires_at + self._auth_grace_s

    def is_revoked(self, principal: Principal, endpoint: Endpoint) -> bool:
        """Returns True when the policy or the sandbox no longer accepts this caller's token."""
        not_before = self._current(endpoint).tokens_not_before
        if not_before and older_than_allowed(principal, not_before):
            return True
        return self.is_refused(principal)

    def is_refused(self, principal: Principal) -> bool:
        """Returns True when the policy file revokes this caller's token, by its id or by its age, or the session was ended."""
        policy = self._policy.policy
        if principal.mode not in TOKEN_MODES:
            return False
        ids = (principal.token_id, principal.made_of)
        # A sandbox's session that was opened from the home page is made of that page's, and ends with it.
        if principal.mode in _SESSIONS and any(known in self.ended_sessions for known in ids):
            return True
        if any(known in policy.revoked for known in ids if known):
            return True
        return any(
            (not rule.issuer or rule.issuer == principal.issuer)
            and (not rule.subject or rule.subject == principal.subject)
            and older_than_allowed(principal, rule.time)
            for rule in policy.not_before
        )
