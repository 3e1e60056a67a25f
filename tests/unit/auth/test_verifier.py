"""Refusals: a closed set of reasons, since they become a metric's label."""

from __future__ import annotations

import pytest

from router.auth.verifier import Reason, Refusal


def test_reasons_are_plain_words() -> None:
    assert all(reason.value.replace("_", "").isalpha() for reason in Reason)
    assert len({reason.value for reason in Reason}) == len(Reason)


def test_a_refusal_is_final_unless_it_says_otherwise() -> None:
    assert Refusal("jwt", Reason.EXPIRED, "The token has expired.").is_final


def test_a_refusal_never_changes() -> None:
    with pytest.raises(AttributeError):
        Refusal("jwt", Reason.EXPIRED, "x").detail = "y"  # type: ignore[misc]
