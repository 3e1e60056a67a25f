"""Mode `token-review`: Kubernetes tokens, checked by the API server and remembered for a short while."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from cachetools import LRUCache

from router.auth.jws import NotJwsError, parse_jws
from router.auth.principal import Principal
from router.auth.review import Reviewer, SharedCalls
from router.auth.verifier import Reason, Refusal, Verdict
from router.errors import AuthUnavailable

MAX_REMEMBERED = 4096
NEGATIVE_TTL_S = 3.0
"""Short: a token may become valid (a new ServiceAccount) a moment later, yet a client in a loop is stopped here."""

_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*", re.ASCII)

_MALFORMED = Refusal("token-review", Reason.MALFORMED, "The token is malformed.", is_final=False)
_REJECTED = Refusal(
    "token-review", Reason.REJECTED, "The token is not accepted by Kubernetes.", is_final=False
)
_WRONG_AUDIENCE = Refusal(
    "token-review", Reason.WRONG_AUDIENCE, "The token is for another audience.", is_final=False
)
_EXPIRED = Refusal("token-review", Reason.EXPIRED, "The token has expired.")
_REVOKED = Refusal("token-review", Reason.REVOKED, "The token has been revoked.")


class _Remembered(NamedTuple):
    verdict: Verdict
    until: float


class TokenReviewVerifier:
    """Asks the API server about tokens it hasn't asked about within `ttl_s`; never longer than the token's own `exp`.

    `audiences` empty means the API server's own. `is_refused` is the policy's revocation. An answer that can't be had
    refuses the caller (503), and is not remembered.
    """

    mode = "token-review"
    is_local = False

    def __init__(
        self,
        *,
        reviewer: Reviewer,
        audiences: tuple[str, ...],
        ttl_s: float,
        is_refused: Callable[[Principal], bool],
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._reviewer = reviewer
        self._audiences = audiences
        self._ttl_s = ttl_s
        self._is_refused = is_refused
        self._clock = clock
        self._remembered: LRUCache[bytes, _Remembered] = LRUCache(MAX_REMEMBERED)
        self._listeners: list[Callable[[], None]] = []
        self._calls: SharedCalls[bytes, Verdict] = SharedCalls(
            name="token-review", timeout_s=timeout_s
        )

    def __repr__(self) -> str:
        return f"<TokenReviewVerifier remembered={len(self._remembered)} {self._calls!r}>"

    @property
    def calls_started(self) -> int:
        """How many reviews were asked for."""
        return self._calls.calls_started

    @property
    def calls_failed(self) -> int:
        """How many of them had no answer."""
        return self._calls.calls_failed

    def forget(self) -> None:
        """Forgets every answer; for a policy that changed."""
        self._remembered.clear()
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` whenever the answers were forgotten."""
        self._listeners.append(listener)

    def valid_until(self, principal: Principal) -> float:
        """Returns the end of the answer that named `principal`: `ttl_s` after it, or the token's own expiry if that is sooner."""
        return principal.believed_until

    async def close(self) -> None:
        """Ends the reviews that still run."""
        await self._calls.close()

    def verify(self, token: bytes) -> Verdict | Awaitable[Verdict]:
        """Returns the remembered answer at once, else the awaitable one of the API server."""
        digest = hashlib.sha256(token).digest()
        known = self._remembered.get(digest)
        if known is not None:
            if self._clock() < known.until:
                return known.verdict
            del self._remembered[digest]
        if not _TOKEN.fullmatch(token):
            return _MALFORMED
        return self._ask(token, digest)

    async def _ask(self, token: bytes, digest: bytes) -> Verdict:
        try:
            verdict = await self._calls.ask(digest, partial(self._review, token, digest))
        except AuthUnavailable as error:
            return Refusal("token-review", Reason.UNAVAILABLE, "", log=error.reason)
        if isinstance(verdict, Principal) and self._is_refused(verdict):
            return _REVOKED
        return verdict

    async def _review(self, token: bytes, digest: bytes) -> Verdict:
        """Asks, and remembers the answer."""
        spec: dict[str, Any] = {"token": token.decode("ascii")}
        if self._audiences:
            spec["audiences"] = list(self._audiences)
        answer = await self._reviewer.review(
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        )
        now = self._clock()
        verdict = self._read(answer, token, now)
        if isinstance(verdict, Refusal):
            self._remembered[digest] = _Remembered(verdict, now + min(NEGATIVE_TTL_S, self._ttl_s))
            return verdict
        if verdict.expires_at is not None and verdict.expires_at <= now:
            return _EXPIRED
        if not self._is_refused(verdict):
            self._remembered[digest] = _Remembered(verdict, verdict.believed_until)
        return verdict

    def _read(self, answer: dict[str, Any], token: bytes, now: float) -> Verdict:
        """Returns the caller that a TokenReview's status names. Raises AuthUnavailable when it makes no sense."""
        status = answer.get("status")
        if not isinstance(status, dict):
            raise AuthUnavailable(reason="the TokenReview came back without a status")
        if status.get("authenticated") is not True:
            return _REJECTED
        # An API server that doesn't know audiences says yes and names none: that is no yes to ours.
        if self._audiences and not set(self._audiences) & set(_texts(status.get("audiences"))):
            return _WRONG_AUDIENCE
        user = status.get("user")
        if not isinstance(user, dict) or not isinstance(name := user.get("username"), str):
            raise AuthUnavailable(reason="the TokenReview came back without a user")
        claims = _claims_of(token)
        return Principal(
            subject=name,
            mode="token-review",
            groups=_texts(user.get("groups")),
            issuer=claims.issuer,
            token_id=claims.token_id,
            issued_at=claims.issued_at,
            expires_at=claims.expires_at,
            believed_until=_sooner(now + self._ttl_s, claims.expires_at),
            extra=_extra(user.get("extra")),
            user_uid=uid if isinstance(uid := user.get("uid"), str) else "",
        )


def _sooner(end: float, expires_at: float | None) -> float:
    return end if expires_at is None else min(end, expires_at)


class _Claims(NamedTuple):
    issuer: str = ""
    token_id: str = ""
    issued_at: float | None = None
    expires_at: float | None = None


def _claims_of(token: bytes) -> _Claims:
    """Returns what a token that the API server accepted says of itself; nothing for an opaque one.

    The API server vouches for these very bytes, and what is read here only ever narrows the right.
    """
    try:
        claims = parse_jws(token).claims
    except NotJwsError:
        return _Claims()
    issuer, token_id = claims.get("iss"), claims.get("jti")
    return _Claims(
        issuer=issuer if isinstance(issuer, str) else "",
        token_id=token_id if isinstance(token_id, str) else "",
        issued_at=_number(claims.get("iat")),
        expires_at=_number(claims.get("exp")),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _extra(value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, dict):
        return ()
    return tuple((str(key), _texts(values)) for key, values in sorted(value.items()))
