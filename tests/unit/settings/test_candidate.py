"""Tests of values on their way to become settings."""

from __future__ import annotations

import pytest

from router.settings.candidate import Candidate, UnreadableError
from router.settings.problems import DEFAULT, Origin, Source

FLAG = Origin(Source.FLAG, "--origin")


def test_a_stronger_value_replaces_a_weaker_one_and_a_bad_one() -> None:
    candidate = Candidate()
    candidate.accept("origin", "rewrite", DEFAULT)
    candidate.give_up("origin")

    candidate.accept("origin", "drop", FLAG)

    assert candidate["origin"] == "drop"
    assert candidate.is_said("origin")


def test_a_bad_value_hides_the_weaker_good_one() -> None:
    candidate = Candidate()
    candidate.accept("origin", "rewrite", DEFAULT)

    candidate.give_up("origin")

    assert not candidate.is_open("origin")
    with pytest.raises(UnreadableError):
        candidate["origin"]


def test_what_has_no_default_may_be_open() -> None:
    candidate = Candidate()

    assert candidate["auth"] is None
    assert candidate.is_open("auth")
    with pytest.raises(KeyError):
        candidate["origin"]


def test_a_default_was_said_by_nobody() -> None:
    candidate = Candidate()
    candidate.accept("origin", "rewrite", DEFAULT)

    assert not candidate.is_said("origin")
    assert not candidate.is_said("auth")


def test_a_problem_shows_value_and_origin_but_no_secret() -> None:
    candidate = Candidate()
    candidate.accept("auth", ("jwt", "none"), Origin(Source.FILE, "r.yaml", 3))
    candidate.accept("static-token", "correct", Origin(Source.ENVIRONMENT, "ROUTER_AUTH_TOKEN"))

    assert (
        str(candidate.problem("auth", "bad", "mend it"))
        == "auth = jwt,none (file r.yaml, line 3): bad; mend it"
    )
    assert (
        str(candidate.problem("static-token", "bad", "mend it"))
        == "static-token = (hidden) (environment ROUTER_AUTH_TOKEN): bad; mend it"
    )
    assert str(candidate.problem("discovery", "bad", "mend it")) == "discovery: bad; mend it"


def test_a_representation_says_what_could_not_be_read() -> None:
    candidate = Candidate()
    candidate.give_up("auth")

    assert repr(candidate) == "<Candidate known=0 unreadable=['auth']>"
