"""The gate that load can't disturb."""

from __future__ import annotations

import dataclasses
import json

import pytest

from bench import conditions, plane
from bench.budgets import Budget
from bench.plane import MeasurementError, PlaneRecord, PlaneRun, carry_out, over_budget, to_markdown
from bench.plane_cases import PLANE_CASES
from bench.plane_child import PlaneCost
from bench.revisions import environment

NOTED = conditions.note(rounds=2, window_s=1, versions={}, shared_core=False)


def found(cost: float) -> PlaneCost:
    return PlaneCost(cost=cost, raw_us=cost, calibration_us=200.0, runs=9, calm=1.0, form="pure")


def run(*records: tuple[str, str, int, float]) -> PlaneRun:
    made = (
        PlaneRecord(case, subject, number, found(cost)) for case, subject, number, cost in records
    )
    return PlaneRun(NOTED, 1.5, tuple(made))


BOTH = run(
    ("get", "router", 0, 20.0),
    ("get", "router@old", 0, 40.0),
    ("get", "router", 1, 30.0),
    ("get", "router@old", 1, 50.0),
)


def test_two_revisions_are_compared_round_by_round() -> None:
    ratio = BOTH.ratio("get", "router", "router@old")

    assert (ratio.low, ratio.high) == (0.5, 0.6)
    assert BOTH.cost("get", "router").median == 25.0


def test_only_todays_router_is_held_to_the_budget() -> None:
    assert over_budget(BOTH, lambda _form: Budget({"get": 25.0})) == []
    assert over_budget(BOTH, lambda _form: Budget({"get": 20.0})) == ["get (pure)"]
    assert over_budget(BOTH, lambda _form: Budget({})) == ["get (pure)"]


def test_each_form_has_its_own_budget() -> None:
    both_forms = PlaneRun(
        NOTED,
        1.5,
        (
            PlaneRecord("get", "router", 0, dataclasses.replace(found(12.0), form="compiled")),
            PlaneRecord("get", "router-pure", 0, found(30.0)),
        ),
    )
    budgets = {"compiled": Budget({"get": 10.0}), "pure": Budget({"get": 30.0})}

    assert over_budget(both_forms, budgets.__getitem__) == ["get (compiled)"]
    text = to_markdown(both_forms, budgets.__getitem__)
    assert "| 10.00: over by 20% | 30.00: within |" in text


def test_a_run_is_kept_with_its_conditions() -> None:
    kept = json.loads(BOTH.to_json())

    assert kept["conditions"]["cpu"] == NOTED.cpu
    assert kept["records"][1] == {
        "case": "get", "subject": "router@old", "round": 0,
        "cost": 40.0, "raw_us": 40.0, "calibration_us": 200.0, "runs": 9, "calm": 1.0, "form": "pure",
    }  # fmt: skip


def test_the_table_has_both_revisions_and_their_ratio() -> None:
    text = to_markdown(BOTH)

    assert (
        "| case | unit | router (pure) | router@old (pure) | router / router@old | budget, pure |"
        in text
    )
    assert "0.55 (0.50 to 0.60)" in text


def test_the_subjects_of_a_case_are_measured_one_after_the_other(monkeypatch) -> None:
    order = []

    def measured(case, environment, seconds):
        order.append((case.name, environment["X"]))
        return found(1.0)

    monkeypatch.setattr(plane, "measured", measured)

    subjects = {"router": {"X": "new"}, "router@old": {"X": "old"}}
    made = carry_out(PLANE_CASES[:2], subjects, NOTED)

    first, second = PLANE_CASES[0].name, PLANE_CASES[1].name
    assert (
        order == [(first, "new"), (first, "old"), (second, "new"), (second, "old")] * NOTED.rounds
    )
    assert len(made.records) == len(order)


def test_a_process_that_fails_says_why() -> None:
    nonsense = dataclasses.replace(PLANE_CASES[0], name="nonsense")

    with pytest.raises(MeasurementError, match=r"(?s)nonsense ended with 1: .*StopIteration"):
        plane.measured(nonsense, environment(None), 0.0)
