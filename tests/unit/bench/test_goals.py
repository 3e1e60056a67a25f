"""Goals, judged."""

from __future__ import annotations

import pytest

from bench.cases import CASES
from bench.goals import GOALS, Verdict, judge
from bench.loads import Measured
from bench.subjects import MEMORY, SUBJECTS
from bench.summary import Record, Summary


def verdict(case: str, subject: str, *records: tuple[str, str, float]) -> Verdict:
    summary = Summary(Record(c, s, 0, Measured(cost=cost)) for c, s, cost in records)
    (found,) = [
        each for each in judge(summary) if (each.goal.case, each.goal.subject) == (case, subject)
    ]
    return found


@pytest.mark.parametrize(("cost", "word"), [(79.0, "met"), (80.0, "met"), (81.0, "missed")])
def test_a_ratio_is_judged_against_envoy(cost: float, word: str) -> None:
    found = verdict(
        "get-64-differ",
        "router",
        ("get-64-differ", "router", cost),
        ("get-64-differ", "envoy", 100.0),
    )

    assert found.word == word


@pytest.mark.parametrize(("cost", "word"), [(35.0, "met"), (35.1, "missed")])
def test_the_access_log_is_judged_against_the_router_without(cost: float, word: str) -> None:
    found = verdict(
        "get-64-differ",
        "router-log",
        ("get-64-differ", "router-log", cost),
        ("get-64-differ", "router", 30.0),
    )

    assert found.word == word


@pytest.mark.parametrize(("cost", "word"), [(10.0, "met"), (10.1, "missed")])
def test_memory_is_judged_by_itself(cost: float, word: str) -> None:
    assert verdict("idle-websocket", "router", ("idle-websocket", "router", cost)).word == word


def test_without_envoy_nothing_is_claimed() -> None:
    assert verdict("down", "router", ("down", "router", 0.1)).word == "not measured"


def test_every_goal_names_what_is_measured() -> None:
    families = {case.name: case.family for case in CASES}
    subjects = {subject.name: subject for subject in SUBJECTS}

    for goal in GOALS:
        assert families[goal.case] in subjects[goal.subject].families
        assert (goal.kind == "absolute") == (families[goal.case] == MEMORY)
        assert goal.against in subjects


def test_a_goal_words_its_limit() -> None:
    assert {goal.wording for goal in GOALS} >= {
        "at most 0.8 x envoy's",
        "at most 5 µs more than router",
        "at most 10 MB per 1,000",
    }
