"""The order of a run."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from pathlib import Path

import pytest

from bench.cases import CASES, QUICK, Case
from bench.loads import Measured
from bench.plan import Bench, Plan, rotated, schedule
from bench.subjects import SUBJECTS, Subject


def plan(rounds: int) -> Plan:
    return Plan({subject: Path(subject.name) for subject in SUBJECTS}, CASES, rounds, QUICK)


def test_rotation_begins_elsewhere_and_loses_nothing() -> None:
    assert rotated("abcd", 1) == ["b", "c", "d", "a"]
    assert rotated("abcd", 4) == ["a", "b", "c", "d"]


def test_every_case_of_every_able_subject_is_measured_once_a_round() -> None:
    counted = Counter((number, case.name, each.name) for number, case, each in schedule(plan(3)))

    able = sum(each.takes_part(case.name, case.family) for case in CASES for each in SUBJECTS)
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

    able = {each.name for each in SUBJECTS if each.takes_part(CASES[0].name, CASES[0].family)}
    assert firsts == able


def test_a_subject_is_spared_the_cases_it_has_no_part_in() -> None:
    measured = {case.name for _number, case, each in schedule(plan(1)) if each.name == "router-log"}

    assert measured == {"get-64-differ", "get-rate-differ"}


class Scripted(Bench):
    """Finds what it is told to, one measurement after the other."""

    def __init__(self, *found: Measured) -> None:
        object.__setattr__(self, "left", list(found))

    async def measure(self, case: Case, subject: Subject, binary: Path) -> Measured:
        return self.left.pop(0)


CALM = Measured(cost=1.0, others=0.01, load_others=0.02)
LOUD = Measured(cost=2.0, others=0.5)
LOUDER = Measured(cost=3.0, others=0.1, load_others=0.9)


@pytest.mark.parametrize(
    ("found", "kept", "repeats"),
    [
        ([CALM], CALM, 0),
        ([LOUD, CALM], CALM, 1),
        ([LOUD, LOUDER, LOUDER], LOUD, 2),
        ([LOUDER, LOUD, CALM], CALM, 2),
        ([Measured(cost=None, errors={"cut": 1})], Measured(cost=None, errors={"cut": 1}), 0),
    ],
)
async def test_a_disturbed_measurement_is_made_again_and_the_calmest_is_kept(
    found: list[Measured], kept: Measured, repeats: int
) -> None:
    bench = Scripted(*found)

    measured = await bench.measure_calmly(CASES[0], SUBJECTS[0], Path("router"), repeats=2)

    assert measured == dataclasses.replace(kept, repeats=repeats)
    assert bench.left == []
