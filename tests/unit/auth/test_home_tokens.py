"""Tokens of the home page: what they must say, and how long a session may last."""

from __future__ import annotations

from typing import Any

import pytest

from router.auth.claims import BadClaimsError, ClaimRules
from router.auth.home_tokens import (
    HOME_LINKS,
    HOMES,
    home_link_principal,
    home_principal,
    home_session_claims,
)
from router.auth.jws import BEARER_TYPES, LINK_TYPES, SESSION_TYPES
from router.auth.principal import Grant

RULES = ClaimRules(issuer=None, audiences=(), leeway_s=0.0)
NOW = 1_000_000.0
GRANTS = [{"namespace": "team-a", "name": "*", "wake": True}]


def claims(**more: Any) -> dict[str, Any]:
    said = {"jti": "link-1", "iat": int(NOW), "exp": int(NOW) + 60, "sub": "alice"}
    return {**said, "sandboxes": GRANTS, **more}


def test_a_link_is_for_whoever_it_names_with_its_grants() -> None:
    principal = home_link_principal(claims(), RULES, NOW, key_id="k1")
    assert (principal.subject, principal.mode, principal.token_id) == (
        "alice",
        "home-link",
        "link-1",
    )
    assert principal.grants == (Grant("team-a", "*", wake=True),)
    assert principal.key_id == "k1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"sandboxes": None},
        {"sandboxes": [{}]},
        {"jti": ""},
        {"iat": None},
        {"exp": int(NOW) + 601},
        {"session_ttl": -1},
    ],
    ids=str,
)
def test_a_link_that_says_too_little_or_too_much_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadClaimsError):
        home_link_principal(claims(**wrong), RULES, NOW, key_id="")


@pytest.mark.parametrize(
    ("wanted", "lasts"), [({}, 3600), ({"session_ttl": 60}, 60), ({"session_ttl": 9e6}, 3600)]
)
def test_a_session_lasts_as_long_as_its_link_wants_within_the_limit(
    wanted: dict[str, Any], lasts: int
) -> None:
    link = claims(**wanted)
    caller = home_link_principal(link, RULES, NOW, key_id="")
    session = home_session_claims(caller, link, now=NOW, longest_s=3600.0)
    principal = home_principal(session, RULES, NOW, key_id="")
    assert principal.expires_at == NOW + lasts
    assert (principal.mode, principal.made_of, principal.grants) == (
        "home",
        "link-1",
        caller.grants,
    )
    assert len(principal.token_id) == 32


def test_a_session_without_an_id_is_refused() -> None:
    with pytest.raises(BadClaimsError, match="sid"):
        home_principal(claims(), RULES, NOW, key_id="")


def test_no_other_kind_of_token_is_spelled_like_these() -> None:
    others = BEARER_TYPES | LINK_TYPES | SESSION_TYPES
    assert not (HOME_LINKS.types & HOMES.types)
    assert not others & (HOME_LINKS.types | HOMES.types)
