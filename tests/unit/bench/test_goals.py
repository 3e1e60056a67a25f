"""Goals, judged."""

from __future__ import annotations

import pytest

from bench.cases import CASES
from bench.goals import GOALS, Verdict, cases_with_goals, judge
from bench.loads import Measured
from bench.subjects import MEMORY, SUBJECTS
from bench.summary import Record, Summary


def verdict(case: str, subject: str, against: str, *records: tuple[str, str, float]) -> Verdict:
    summary = Summary(Record(c, s, 0, Measured(cost=cost)) for c, s, cost in records)
    (found,) = [
        each
        for each in judge(summary)
        if (each.goal.case, each.goal.subject, each.goal.against) == (case, subject, against)
    ]
    return found


@pytest.mark.parametrize(("cost", "word"), [(49.0, "met"), (50.0, "met"), (51.0, "missed")])
def test_a_ratio_is_judged_against_envoy(cost: float, word: str) -> None:
    found = verdict(
        "get-64-differ",
        "router",
        "envoy",
        ("get-64-differ", "router", cost),
        ("get-64-differ", "envoy", 100.0),
    )

    assert found.word == word


@pytest.mark.parametrize(("cost", "word"), [(160.0, "met"), (161.0, "missed")])
def test_a_ratio_is_judged_against_haproxy_too(cost: float, word: str) -> None:
    found = verdict(
        "get-64-differ",
        "router",
        "haproxy",
        ("get-64-differ", "router", cost),
        ("get-64-differ", "haproxy", 100.0),
    )

    assert found.word == word


@pytest.mark.parametrize(("cost", "word"), [(34.0, "met"), (34.1, "missed")])
def test_the_access_log_is_judged_against_the_router_without(cost: float, word: str) -> None:
    found = verdict(
        "get-64-differ",
        "router-log",
        "router",
        ("get-64-differ", "router-log", cost),
        ("get-64-differ", "router", 30.0),
    )

    assert found.word == word


@pytest.mark.parametrize(("cost", "word"), [(38.0, "met"), (38.1, "missed")])
def test_a_case_is_judged_against_another_one(cost: float, word: str) -> None:
    found = verdict(
        "get-8-turns",
        "router",
        "router",
        ("get-8-turns", "router", cost),
        ("get-8-differ", "router", 30.0),
    )

    assert found.word == word


@pytest.mark.parametrize(("cost", "word"), [(9.0, "met"), (9.1, "missed")])
def test_memory_is_judged_by_itself(cost: float, word: str) -> None:
    found = verdict("idle-websocket", "router", "envoy", ("idle-websocket", "router", cost))

    assert found.word == word


def test_without_envoy_nothing_is_claimed() -> None:
    found = verdict("down", "router", "envoy", ("down", "router", 0.1))

    assert found.word == "not measured"


def test_every_goal_names_what_is_measured() -> None:
    cases = {case.name: case for case in CASES}
    subjects = {subject.name: subject for subject in SUBJECTS}

    for goal in GOALS:
        case, other = cases[goal.case], cases[goal.against_case or goal.case]
        assert subjects[goal.subject].takes_part(case.name, case.family)
        assert subjects[goal.against].takes_part(other.name, other.family)
        assert (goal.kind == "absolute") == (case.family == MEMORY)


def test_a_goal_words_its_limit() -> None:
    assert {goal.wording for goal in GOALS} >= {
        "at most 0.5 x envoy's",
        "at most 1.15 x router's in get-64-differ",
        "at most 4 µs more than router",
        "at most 8 µs more than router in get-8-differ",
        "at most 9 MB per 1,000",
    }


def test_a_run_for_the_goals_alone_leaves_the_other_cases_out() -> None:
    assert {"get-64-differ", "get-8-differ", "tls-64"} <= cases_with_goals()
    assert "get-64" not in cases_with_goals()
