"""Claims: each one checked, and none coerced into what it isn't."""

from __future__ import annotations

from typing import Any

import pytest

from router.auth.claims import BadClaimsError, ClaimRules, principal_of
from router.auth.principal import Grant
from router.auth.verifier import Reason

NOW = 1_800_000_000.0
ANYBODY = ClaimRules(issuer=None, audiences=(), leeway_s=0.0)


def _refusal(claims: dict[str, Any], rules: ClaimRules = ANYBODY) -> BadClaimsError:
    with pytest.raises(BadClaimsError) as caught:
        principal_of({"exp": NOW + 60, **claims}, rules, NOW)
    return caught.value


def test_a_principal_has_all_that_its_token_says() -> None:
    principal = principal_of(
        {
            "sub": "alice",
            "iss": "https://i.example",
            "jti": "id-1",
            "iat": NOW - 5,
            "exp": NOW + 60,
            "groups": ["dev"],
            "sandboxes": [{"namespace": "a", "name": "b"}],
        },
        ANYBODY,
        NOW,
    )

    assert (principal.subject, principal.issuer, principal.token_id) == (
        "alice",
        "https://i.example",
        "id-1",
    )
    assert (principal.issued_at, principal.expires_at) == (NOW - 5, NOW + 60)
    assert (principal.groups, principal.grants) == (("dev",), (Grant("a", "b"),))


def test_a_token_without_exp_is_refused() -> None:
    with pytest.raises(BadClaimsError, match="no expiry"):
        principal_of({"sub": "alice"}, ANYBODY, NOW)


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize(
    "value",
    ["1800000060", None, True, [], {}, -1, 1_800_000_060_000, 1e300, float("nan"), float("inf")],
)
def test_a_time_is_a_number_of_seconds(name: str, value: Any) -> None:
    error = _refusal({name: value})

    assert error.reason is Reason.BAD_CLAIMS
    assert name in str(error)


@pytest.mark.parametrize(
    ("claims", "leeway_s", "reason"),
    [
        ({"exp": NOW}, 0.0, Reason.EXPIRED),
        ({"exp": NOW - 30}, 30.0, Reason.EXPIRED),
        ({"exp": NOW - 29}, 30.0, None),
        ({"nbf": NOW + 1}, 0.0, Reason.NOT_YET_VALID),
        ({"nbf": NOW + 30}, 30.0, None),
        ({"nbf": NOW + 31}, 30.0, Reason.NOT_YET_VALID),
        ({"iat": NOW + 31}, 30.0, Reason.NOT_YET_VALID),
        ({"iat": NOW + 30}, 30.0, None),
    ],
)
def test_times_are_held_to_with_the_leeway_and_no_more(
    claims: dict[str, Any], leeway_s: float, reason: Reason | None
) -> None:
    rules = ClaimRules(None, (), leeway_s)
    try:
        principal_of({"exp": NOW + 60, **claims}, rules, NOW)
    except BadClaimsError as error:
        assert error.reason is reason  # noqa: PT017 - the other outcome is asserted below
    else:
        assert reason is None


@pytest.mark.parametrize("issuer", ["https://other", "", "https://i.example/", 5, None])
def test_another_issuer_is_refused(issuer: Any) -> None:
    error = _refusal({"iss": issuer}, ClaimRules("https://i.example", (), 0.0))

    assert error.reason in (Reason.WRONG_ISSUER, Reason.BAD_CLAIMS)


def test_a_missing_issuer_is_refused_where_one_is_wanted() -> None:
    assert _refusal({}, ClaimRules("https://i", (), 0.0)).reason is Reason.WRONG_ISSUER


@pytest.mark.parametrize("audience", ["router", ["router"], ["other", "router"]])
def test_a_token_for_this_router_may_be_for_others_too(audience: Any) -> None:
    rules = ClaimRules(None, ("router", "gateway"), 0.0)

    assert principal_of({"exp": NOW + 60, "aud": audience}, rules, NOW)


@pytest.mark.parametrize("audience", ["other", "", "route", [], ["other"], None])
def test_a_token_for_somebody_else_or_nobody_is_refused(audience: Any) -> None:
    error = _refusal({"aud": audience}, ClaimRules(None, ("router",), 0.0))

    assert error.reason is Reason.WRONG_AUDIENCE


@pytest.mark.parametrize("audience", ["router", ["x"]])
def test_a_token_for_an_audience_is_refused_where_none_is_configured(audience: Any) -> None:
    assert _refusal({"aud": audience}).reason is Reason.WRONG_AUDIENCE


@pytest.mark.parametrize("audience", [5, {"router": 1}, ["router", 5], [["router"]]])
def test_a_malformed_audience_is_refused_even_if_part_of_it_would_do(audience: Any) -> None:
    error = _refusal({"aud": audience}, ClaimRules(None, ("router",), 0.0))

    assert error.reason is Reason.BAD_CLAIMS


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": 5},
        {"sub": None},
        {"jti": 5},
        {"iss": ["https://i"]},
        {"groups": "admins"},
        {"groups": [5]},
        {"groups": None},
        {"sandboxes": "*"},
        {"sandboxes": None},
        {"sandboxes": [{"namespace": "a", "name": "b", "paths": ["/x"]}]},
    ],
)
def test_a_claim_of_another_shape_is_refused(claims: dict[str, Any]) -> None:
    assert _refusal(claims).reason is Reason.BAD_CLAIMS


def test_a_malformed_grant_is_named() -> None:
    error = _refusal({"sandboxes": [{"namespace": "a", "name": "b", "ports": [0]}]})

    assert "sandboxes[0].ports" in str(error)
