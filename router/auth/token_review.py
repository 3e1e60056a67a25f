"""Mode `token-review`: Kubernetes tokens, checked by the API server and remembered for a short while."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from router.auth.jws import NotJwsError, parse_jws
from router.auth.principal import Principal
from router.auth.remembered import Answer, RememberedAnswers
from router.auth.review import Reviewer
from router.auth.verifier import Reason, Refusal, Verdict
from router.errors import AuthUnavailable

MAX_REMEMBERED = 4096
MAX_REFUSED = 1024
"""Their own memory: however many tokens strangers invent, they push none out that was accepted."""
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


_Memory: TypeAlias = RememberedAnswers[bytes, Verdict]


class TokenReviewVerifier:
    """Asks the API server about tokens it hasn't asked about within `ttl_s`; never longer than the token's own `exp`.

    `audiences` empty means the API server's own. `is_refused` is the policy's revocation. Where no answer can be had, a
    token that was accepted lately is accepted for `stale_s` longer; everybody else is refused (503).
    """

    mode = "token-review"
    is_local = False

    def __init__(
        self,
        *,
        reviewer: Reviewer,
        audiences: tuple[str, ...],
        ttl_s: float,
        stale_s: float = 0.0,
        is_refused: Callable[[Principal], bool],
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._reviewer = reviewer
        self._audiences = audiences
        self._ttl_s = ttl_s
        self._is_refused = is_refused
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self._answers: _Memory = RememberedAnswers(
            name="token-review",
            max_yes=MAX_REMEMBERED,
            max_no=MAX_REFUSED,
            stale_s=stale_s,
            timeout_s=timeout_s,
            clock=clock,
        )

    def __repr__(self) -> str:
        return f"<TokenReviewVerifier {self._answers!r}>"

    @property
    def calls_started(self) -> int:
        """How many reviews were asked for."""
        return self._answers.calls_started

    @property
    def calls_failed(self) -> int:
        """How many of them had no answer."""
        return self._answers.calls_failed

    @property
    def stale_answers(self) -> int:
        """How often a token was accepted by what was remembered, because the API server was away."""
        return self._answers.stale_answers

    def forget(self) -> None:
        """Holds every answer against the policy, which has changed.

        What the policy allows stays remembered: an API server that is away could not be asked about it again.
        """
        self._answers.forget_noes()
        self._answers.replace(self._refusal_by_policy)
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` whenever the policy has changed."""
        self._listeners.append(listener)

    def valid_until(self, principal: Principal) -> float:
        """Returns the end of the answer that named `principal`: `ttl_s` after it, or the token's own expiry if that is sooner."""
        return principal.believed_until

    async def close(self) -> None:
        """Ends the reviews that still run."""
        await self._answers.close()

    def verify(self, token: bytes) -> Verdict | Awaitable[Verdict]:
        """Returns the remembered answer at once, else the awaitable one of the API server."""
        digest = hashlib.sha256(token).digest()
        known = self._answers.fresh(digest)
        if known is not None:
            return known.value
        if not _TOKEN.fullmatch(token):
            return _MALFORMED
        review = partial(self._review, token)
        known = self._answers.stand_in(digest, review)
        return self._ask(digest, review) if known is None else known.value

    async def _ask(
        self, digest: bytes, review: Callable[[], Awaitable[Answer[Verdict]]]
    ) -> Verdict:
        try:
            verdict = await self._answers.ask(digest, review)
        except AuthUnavailable as error:
            return Refusal("token-review", Reason.UNAVAILABLE, "", log=error.reason)
        # The policy may have changed between the answer and this turn of the loop.
        if isinstance(verdict, Principal) and self._is_refused(verdict):
            return _REVOKED
        return verdict

    async def _review(self, token: bytes) -> Answer[Verdict]:
        """Asks the API server, and holds what it says against the policy of that moment."""
        spec: dict[str, Any] = {"token": token.decode("ascii")}
        if self._audiences:
            spec["audiences"] = list(self._audiences)
        answer = await self._reviewer.review(
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        )
        now = self._clock()
        verdict = self._read(answer, token, now)
        if isinstance(verdict, Principal):
            return self._accepted(verdict, now)
        return Answer(verdict, False, now + min(NEGATIVE_TTL_S, self._ttl_s), now)

    def _accepted(self, principal: Principal, now: float) -> Answer[Verdict]:
        ends = math.inf if principal.expires_at is None else principal.expires_at
        if ends <= now:
            return Answer(_EXPIRED, False, now, now)
        refusal = self._refusal_by_policy(principal)
        return refusal or Answer(principal, True, principal.believed_until, ends)

    def _refusal_by_policy(self, verdict: Verdict) -> Answer[Verdict] | None:
        """Returns the lasting no (until the policy changes) to a caller whose token is revoked."""
        if isinstance(verdict, Principal) and self._is_refused(verdict):
            return Answer(_REVOKED, False, math.inf, math.inf)
        return None

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
