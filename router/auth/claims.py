"""The claims of a verified token (RFC 7519 §4.1), checked one by one, to the Principal that they describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from router.auth.grants import GrantError, parse_grants
from router.auth.principal import Grant, Principal
from router.auth.verifier import Reason

MAX_TIME_S = 253_402_300_799
"""The end of the year 9999: a later time is a mistake, most often milliseconds, and would never end."""


class BadClaimsError(ValueError):
    """A claim that forbids the token; the message is for the caller and repeats nothing of it."""

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """What is asked of every token. `issuer` None: any; `audiences` empty: only tokens without an audience."""

    issuer: str | None
    audiences: tuple[str, ...]
    leeway_s: float


def principal_of(
    claims: dict[str, Any], rules: ClaimRules, now: float, *, key_id: str = ""
) -> Principal:
    """Returns the caller that `claims`, verified by the key `key_id`, describe at the time `now`. Raises BadClaimsError."""
    facts = checked(claims, rules, now)
    return Principal(
        subject=facts.subject,
        mode="jwt",
        groups=_groups(claims),
        issuer=facts.issuer,
        grants=_grants(claims),
        token_id=text_claim(claims, "jti"),
        key_id=key_id,
        issued_at=facts.issued_at,
        expires_at=facts.expires_at,
    )


class Facts(NamedTuple):
    """What every kind of token says: who it is about, who says so, and from when to when (Unix seconds)."""

    subject: str
    issuer: str
    issued_at: float | None
    expires_at: float


def checked(claims: dict[str, Any], rules: ClaimRules, now: float) -> Facts:
    """Returns the facts of a token that is good at the time `now` by the rules. Raises BadClaimsError."""
    expires_at = _time(claims, "exp")
    if expires_at is None:
        raise BadClaimsError(Reason.BAD_CLAIMS, "The token has no expiry (exp).")
    if now >= expires_at + rules.leeway_s:
        raise BadClaimsError(Reason.EXPIRED, "The token has expired.")
    issued_at = _time(claims, "iat")
    for moment in (_time(claims, "nbf"), issued_at):
        if moment is not None and moment > now + rules.leeway_s:
            raise BadClaimsError(Reason.NOT_YET_VALID, "The token is not valid yet.")
    issuer = text_claim(claims, "iss")
    if rules.issuer is not None and issuer != rules.issuer:
        raise BadClaimsError(Reason.WRONG_ISSUER, "The token's issuer is not accepted.")
    _check_audience(claims.get("aud"), rules.audiences)
    return Facts(text_claim(claims, "sub"), issuer, issued_at, expires_at)


def _time(claims: dict[str, Any], name: str) -> float | None:
    """Returns a NumericDate. A text that looks like a number is none."""
    if name not in claims:
        return None
    value = claims[name]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and 0 <= value <= MAX_TIME_S:
        return float(value)
    raise BadClaimsError(Reason.BAD_CLAIMS, f"The token's {name} is not a time in seconds.")


def text_claim(claims: dict[str, Any], name: str) -> str:
    """Returns a text, "" where there is none. Raises BadClaimsError."""
    value = claims.get(name, "")
    if isinstance(value, str):
        return value
    raise BadClaimsError(Reason.BAD_CLAIMS, f"The token's {name} is not a text.")


def _check_audience(value: object, accepted: tuple[str, ...]) -> None:
    """A token for somebody else is refused, also where no audience is configured (RFC 7519 §4.1.3)."""
    named = [value] if isinstance(value, str) else value if value is not None else []
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        raise BadClaimsError(Reason.BAD_CLAIMS, "The token's audience is malformed.")
    if not accepted and not named:
        return
    if not any(one in accepted for one in named):
        raise BadClaimsError(Reason.WRONG_AUDIENCE, "The token is for another audience.")


def _groups(claims: dict[str, Any]) -> tuple[str, ...]:
    value = claims.get("groups", [])
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    raise BadClaimsError(Reason.BAD_CLAIMS, "The token's groups are not a list of texts.")


def _grants(claims: dict[str, Any]) -> tuple[Grant, ...]:
    if "sandboxes" not in claims:
        return ()
    try:
        return parse_grants(claims["sandboxes"], at=("sandboxes",))
    except GrantError as error:
        raise BadClaimsError(
            Reason.BAD_CLAIMS, f"The token's claim sandboxes is malformed: {error}."
        ) from None
