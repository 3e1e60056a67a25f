"""The order of a run."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

from bench.cases import CASES, QUICK
from bench.plan import Plan, rotated, schedule
from bench.subjects import REQUEST, SUBJECTS


def plan(rounds: int) -> Plan:
    return Plan({subject: Path(subject.name) for subject in SUBJECTS}, CASES, rounds, QUICK)


def test_rotation_begins_elsewhere_and_loses_nothing() -> None:
    assert rotated("abcd", 1) == ["b", "c", "d", "a"]
    assert rotated("abcd", 4) == ["a", "b", "c", "d"]


def test_every_case_of_every_able_subject_is_measured_once_a_round() -> None:
    counted = Counter((number, case.name, each.name) for number, case, each in schedule(plan(3)))

    able = sum(case.family in subject.families for case in CASES for subject in SUBJECTS)
    assert len(counted) == 3 * able
    assert set(counted.values()) == {1}


def test_the_subjects_of_a_case_run_next_to_each_other() -> None:
    order = [(number, case.name) for number, case, _subject in schedule(plan(2))]

    assert len(set(order)) == 1 + sum(a != b for a, b in itertools.pairwise(order))


def test_no_subject_always_runs_first() -> None:
    firsts = {
        next(each.name for at, case, each in schedule(plan(6)) if (at, case) == (number, CASES[0]))
        for number in range(6)
    }

    assert firsts == {subject.name for subject in SUBJECTS}


def test_a_subject_is_spared_the_cases_it_has_no_part_in() -> None:
    measured = {
        case.family for _number, case, each in schedule(plan(1)) if each.name == "router-log"
    }

    assert measured == {REQUEST}
