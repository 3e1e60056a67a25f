"""Medians, spreads, and ratios."""

from __future__ import annotations

import pytest

from bench.loads import Measured
from bench.summary import Cell, Record, Spread, Summary


def cell(*costs: float | None, errors: dict[str, int] | None = None) -> Cell:
    return Cell({n: Measured(cost=cost, errors=errors or {}) for n, cost in enumerate(costs)})


def test_a_spread_is_the_median_and_the_extremes() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert Spread.of([]) is None


def test_a_ratio_pairs_the_rounds() -> None:
    # Both are twice as dear in the second round: the pairs' ratio doesn't move.
    assert cell(10.0, 20.0).ratio_to(cell(20.0, 40.0)) == Spread(0.5, 0.5, 0.5)


def test_a_difference_pairs_the_rounds() -> None:
    assert cell(12.0, 25.0, 13.0).difference_to(cell(10.0, 20.0, 10.0)) == Spread(3.0, 2.0, 5.0)


def test_a_round_that_only_one_has_makes_no_pair() -> None:
    assert cell(10.0, 90.0).ratio_to(cell(20.0)) == Spread(0.5, 0.5, 0.5)


def test_one_error_in_one_round_makes_the_cell_invalid() -> None:
    broken = Cell({0: Measured(cost=1.0), 1: Measured(cost=1.0, errors={"cut short": 2})})

    assert not broken.valid
    assert broken.cost is None
    assert broken.errors == {"cut short": 2}
    assert broken.ratio_to(cell(1.0, 1.0)) is None
    assert cell(1.0, 1.0).ratio_to(broken) is None


@pytest.mark.parametrize("missing", [Cell(), cell(None)])
def test_what_has_no_cost_is_invalid(missing: Cell) -> None:
    assert not missing.valid
    assert missing.cost is None


def test_a_cost_of_nothing_counts() -> None:
    assert cell(0.0, 1.0).cost == Spread(0.5, 0.0, 1.0)


def test_errors_of_one_kind_are_added_up() -> None:
    assert cell(1.0, 1.0, errors={"cut short": 1}).errors == {"cut short": 2}


def test_a_summary_keeps_the_records_order() -> None:
    summary = Summary(
        [
            Record("down", "envoy", 0, Measured(cost=1.0)),
            Record("down", "nginx", 0, Measured(cost=2.0)),
            Record("down", "envoy", 1, Measured(cost=3.0)),
            Record("up", "envoy", 0, Measured(cost=4.0)),
        ]
    )

    assert (summary.cases, summary.subjects) == (["down", "up"], ["envoy", "nginx"])
    assert summary.cell("down", "envoy").cost == Spread(2.0, 1.0, 3.0)
    assert summary.cell("up", "nginx").cost is None
