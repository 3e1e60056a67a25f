"""BearerVerifier: one kind of bearer token, checked or declined without raising."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from router.auth.principal import Principal


class Reason(enum.Enum):
    """Why a credential was refused: the closed set of values of a metric's label."""

    MISSING = "missing"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    MISMATCH = "mismatch"
    UNKNOWN_KEY = "unknown_key"
    WRONG_ALGORITHM = "wrong_algorithm"
    BAD_SIGNATURE = "bad_signature"
    BAD_CLAIMS = "bad_claims"
    WRONG_ISSUER = "wrong_issuer"
    WRONG_AUDIENCE = "wrong_audience"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    REVOKED = "revoked"
    REJECTED = "rejected"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a verifier did not accept a token. `detail` goes to the client, so it never repeats any of the token."""

    mode: str
    reason: Reason
    detail: str
    is_final: bool = True
    """False when the token is simply not of this kind: the next verifier is asked."""
    log: str = ""
    """More for the log alone."""


Verdict: TypeAlias = Principal | Refusal


class BearerVerifier(Protocol):
    """Checks bearer tokens of one mode. Answers at once where it can; never raises for a bad token."""

    @property
    def mode(self) -> str:
        """The mode's name in the settings."""
        ...

    @property
    def is_local(self) -> bool:
        """True when a verdict on a token can change only by time or with on_change(); False when somebody else is asked."""
        ...

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` whenever an earlier verdict may be another now."""
        ...

    def valid_until(self, principal: Principal) -> float:
        """Returns until when (Unix seconds) the token that proved `principal` proves it, unless on_change() says otherwise."""
        ...

    def verify(self, token: bytes) -> Verdict | Awaitable[Verdict]:
        """Returns the caller that `token` proves, or why it proves none."""
        ...
