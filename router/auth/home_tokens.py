"""Home tokens: a link to the home page, and the session that it begins there. Neither opens a sandbox by itself.

Both carry grants, as a gateway token does: they decide which sandboxes the page shows, and lets its reader open and wake.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from router.auth.claims import BadClaimsError, ClaimRules, checked, text_claim
from router.auth.grants import GrantError, parse_grants
from router.auth.jws import HOME_LINK_TYPES, HOME_TYPES
from router.auth.jwt import TokenKind
from router.auth.links import MAX_LIFE_S, read_link
from router.auth.principal import Grant, Principal
from router.auth.verifier import Reason

GRANTS: Final = "sandboxes"


def home_link_principal(
    claims: dict[str, Any], rules: ClaimRules, now: float, *, key_id: str
) -> Principal:
    """Returns who begins a session on the home page by the link. Raises BadClaimsError."""
    principal = _read(claims, rules, now, mode="home-link", id_claim="jti", key_id=key_id)
    assert principal.issued_at is not None
    assert principal.expires_at is not None
    if principal.expires_at - principal.issued_at > MAX_LIFE_S:
        raise BadClaimsError(
            Reason.BAD_CLAIMS, f"The link is good for more than {MAX_LIFE_S} seconds."
        )
    read_link(claims)
    return principal


def home_principal(
    claims: dict[str, Any], rules: ClaimRules, now: float, *, key_id: str
) -> Principal:
    """Returns whose session on the home page it is. Raises BadClaimsError."""
    return _read(claims, rules, now, mode="home", id_claim="sid", key_id=key_id)


HOME_LINKS: Final = TokenKind("home-link", HOME_LINK_TYPES, home_link_principal)
HOMES: Final = TokenKind("home", HOME_TYPES, home_principal)


def home_session_claims(
    caller: Principal, link: dict[str, Any], *, now: float, longest_s: float
) -> dict[str, Any]:
    """Returns the claims of a session that begins by a verified link, whose own claims are `link`."""
    wanted_s = read_link(link).session_ttl_s
    begins_at = int(now)
    ttl_s = longest_s if wanted_s is None else min(wanted_s, longest_s)
    claims: dict[str, Any] = {
        "sid": secrets.token_hex(16),
        "jti": caller.token_id,
        "iat": begins_at,
        "exp": begins_at + max(1, int(ttl_s)),
        GRANTS: link[GRANTS],
    }
    more = {"sub": caller.subject, "iss": caller.issuer}
    return claims | {name: value for name, value in more.items() if value}


def _read(
    claims: dict[str, Any], rules: ClaimRules, now: float, *, mode: str, id_claim: str, key_id: str
) -> Principal:
    facts = checked(claims, rules, now)
    token_id = text_claim(claims, id_claim)
    if not token_id or facts.issued_at is None:
        raise BadClaimsError(
            Reason.BAD_CLAIMS, f"The token has no id ({id_claim}) or beginning (iat)."
        )
    return Principal(
        subject=facts.subject,
        mode=mode,
        issuer=facts.issuer,
        grants=_grants(claims),
        token_id=token_id,
        made_of=text_claim(claims, "jti") if id_claim != "jti" else "",
        key_id=key_id,
        issued_at=facts.issued_at,
        expires_at=facts.expires_at,
    )


def _grants(claims: dict[str, Any]) -> tuple[Grant, ...]:
    try:
        return parse_grants(claims.get(GRANTS))
    except GrantError as error:
        raise BadClaimsError(Reason.BAD_CLAIMS, f"The claim {GRANTS}: {error}") from None
