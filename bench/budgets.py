"""The budget: what each plane case may cost in each form, kept in budgets.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.conditions import Conditions

BUDGETS = Path(__file__).resolve().parent / "budgets.json"
MARGIN = 1.08
"""Runs of the same code differ by 2 to 3 %, and other processors weigh the kinds of work a little differently."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What the cases of one form may cost, in µs at the reference's speed, and where that was measured."""

    costs: Mapping[str, float]
    processor: str = ""
    python: str = ""
    revision: str = ""

    def verdict(self, case: str, cost: float) -> str:
        """Returns `within`, `over by N %`, or `no budget`."""
        if case not in self.costs:
            return "no budget"
        share = cost / self.costs[case]
        return "within" if share <= MARGIN else f"over by {share - 1:.0%}"

    def holds(self, case: str, cost: float) -> bool:
        return self.verdict(case, cost) == "within"


def budget_of(form: str, path: Path | None = None) -> Budget:
    """Returns the form's budget, an empty one while it has none."""
    path = path or BUDGETS
    forms = json.loads(path.read_text()) if path.exists() else {}
    return Budget(**forms[form]) if form in forms else Budget({})


def set_budget(
    form: str, costs: Mapping[str, float], conditions: Conditions, path: Path | None = None
) -> None:
    """Makes these costs the form's budget; cases that weren't measured keep theirs."""
    path = path or BUDGETS
    forms = json.loads(path.read_text()) if path.exists() else {}
    forms[form] = {
        "processor": conditions.cpu,
        "python": conditions.python,
        "revision": conditions.revision,
        "costs": {
            **budget_of(form, path).costs,
            **{case: round(cost, 3) for case, cost in costs.items()},
        },
    }
    path.write_text(json.dumps(forms, indent=2, ensure_ascii=False) + "\n")
