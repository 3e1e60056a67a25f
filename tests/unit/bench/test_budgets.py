"""The budget of the data plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import conditions
from bench.budgets import BUDGETS, MARGIN, Budget, budget_of, set_budget
from bench.forms import COMPILED, PURE
from bench.plane_cases import PLANE_CASES

NOTED = conditions.note(rounds=1, window_s=1, versions={}, shared_core=False)


@pytest.mark.parametrize(
    ("cost", "verdict"),
    [(30.0, "within"), (40.0 * MARGIN, "within"), (60.0, "over by 50%")],
)
def test_a_cost_is_held_to_the_budget_with_a_margin(cost: float, verdict: str) -> None:
    budget = Budget({"get": 40.0})

    assert budget.verdict("get", cost) == verdict
    assert budget.holds("get", cost) == (verdict == "within")


def test_a_case_without_a_budget_does_not_pass() -> None:
    assert Budget({}).verdict("get", 1.0) == "no budget"
    assert not Budget({}).holds("get", 1.0)


def test_a_budget_that_was_set_is_kept_with_where_it_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "budgets.json"
    set_budget("compiled", {"get": 12.3456, "post": 20.0}, NOTED, path)
    set_budget("compiled", {"get": 11.0}, NOTED, path)

    found = budget_of("compiled", path)

    assert found.costs == {"get": 11.0, "post": 20.0}
    assert found.processor == NOTED.cpu
    assert budget_of("pure", path) == Budget({})


@pytest.mark.parametrize("form", [PURE, COMPILED])
def test_each_form_has_a_budget_for_every_case(form: str) -> None:
    assert set(budget_of(form, BUDGETS).costs) == {case.name for case in PLANE_CASES}
