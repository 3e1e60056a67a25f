"""The gate that load can't disturb: what the data plane alone costs, held to the budget in the repository.

`python -m bench --plane`. Each measurement is a process of its own: the product's worker, its connections made by the
harness, no sockets; CPU time beside that of a fixed piece of work done at the same moment.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.budgets import Budget, budget_of
from bench.conditions import Conditions
from bench.plane_cases import PLANE_CASES, PlaneCase
from bench.plane_child import PlaneCost
from bench.summary import Spread

CURRENT, PURE_AGAIN = "router", "router-pure"
TODAYS = (CURRENT, PURE_AGAIN)
"""The subjects that are held to the budget of their form; others are older revisions."""
_TIMEOUT_S = 180.0
logger = logging.getLogger("bench")


class MeasurementError(Exception):
    """A case could not be measured; the text ends with what the process said."""


@dataclass(frozen=True, slots=True)
class PlaneRecord:
    """One measurement: what one process found for one case of one subject in one round."""

    case: str
    subject: str
    round: int
    found: PlaneCost


@dataclass(frozen=True, slots=True)
class PlaneRun:
    """A run as it is kept."""

    conditions: Conditions
    load_average_after: float
    records: tuple[PlaneRecord, ...]

    @property
    def subjects(self) -> list[str]:
        return list(dict.fromkeys(record.subject for record in self.records))

    @property
    def calm(self) -> float:
        """The share of the runs, over all measurements, that nothing disturbed."""
        return statistics.mean(record.found.calm for record in self.records)

    @property
    def cases(self) -> list[str]:
        return list(dict.fromkeys(record.case for record in self.records))

    def form(self, subject: str) -> str:
        return next(each.found.form for each in self.records if each.subject == subject)

    def costs(self, case: str, subject: str) -> dict[int, float]:
        """Returns the cost in each round."""
        return {
            each.round: each.found.cost
            for each in self.records
            if (each.case, each.subject) == (case, subject)
        }

    def cost(self, case: str, subject: str) -> Spread:
        found = Spread.of(list(self.costs(case, subject).values()))
        assert found is not None
        return found

    def ratio(self, case: str, subject: str, reference: str) -> Spread:
        """Returns the subject's cost over the reference's, paired round by round."""
        mine, theirs = self.costs(case, subject), self.costs(case, reference)
        found = Spread.of([mine[number] / theirs[number] for number in mine])
        assert found is not None
        return found

    def to_json(self) -> str:
        document = {
            "conditions": asdict(self.conditions),
            "load_average_after": self.load_average_after,
            "records": [
                {"case": each.case, "subject": each.subject, "round": each.round}
                | {
                    name: round(value, 3) if isinstance(value, float) else value
                    for name, value in asdict(each.found).items()
                }
                for each in self.records
            ],
        }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def measured(case: PlaneCase, environment: Mapping[str, str], seconds: float) -> PlaneCost:
    """Returns what a fresh process with this environment finds for the case. Raises MeasurementError."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        out = Path(name, "cost.json")
        done = subprocess.run(
            [sys.executable, "-m", "bench.plane_child", case.name, f"{seconds:g}", str(out)],
            cwd=name,
            env={**os.environ, **environment, "PYTHONHASHSEED": "0"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            said = done.stderr[-1_500:].decode(errors="replace").strip()
            raise MeasurementError(f"{case.name} ended with {done.returncode}: {said}")
        return PlaneCost(**json.loads(out.read_text()))


def carry_out(
    cases: Sequence[PlaneCase],
    subjects: Mapping[str, Mapping[str, str]],
    conditions: Conditions,
) -> PlaneRun:
    """Measures every case of every subject in every round, the subjects of a case one after the other.

    `subjects` has the environment of each by its name. Raises MeasurementError.
    """
    records = []
    for number in range(conditions.rounds):
        for case in cases:
            for name, environment in subjects.items():
                found = measured(case, environment, conditions.window_s)
                logger.info(
                    "round %d  %-14s %-16s %8.2f %s",
                    number + 1, case.name, name, found.cost, case.unit,
                )  # fmt: skip
                records.append(PlaneRecord(case.name, name, number, found))
    return PlaneRun(conditions, round(os.getloadavg()[0], 2), tuple(records))


def over_budget(run: PlaneRun, budget_for: Callable[[str], Budget] = budget_of) -> list[str]:
    """Returns what today's router does at more than it may cost in that form, or without a budget."""
    return [
        f"{case} ({form})"
        for subject in run.subjects
        if subject in TODAYS
        for form in (run.form(subject),)
        for case in run.cases
        if not budget_for(form).holds(case, run.cost(case, subject).median)
    ]


def to_markdown(run: PlaneRun, budget_for: Callable[[str], Budget] = budget_of) -> str:
    """The conditions and one table."""
    conditions = run.conditions
    others = [subject for subject in run.subjects if subject != CURRENT]
    todays = [subject for subject in run.subjects if subject in TODAYS]
    head = ["case", "unit", *(f"{each} ({run.form(each)})" for each in run.subjects)]
    head += [f"{CURRENT} / {other}" for other in others]
    head += [f"budget, {run.form(each)}" for each in todays]
    titles = {case.name: case for case in PLANE_CASES}
    rows = []
    for name in run.cases:
        cells = [f"`{name}`: {titles[name].title}", titles[name].unit]
        cells += [_said(run.cost(name, subject)) for subject in run.subjects]
        cells += [_said(run.ratio(name, CURRENT, other)) for other in others]
        for subject in todays:
            budget = budget_for(run.form(subject))
            verdict = budget.verdict(name, run.cost(name, subject).median)
            limit = budget.costs.get(name)
            cells += [verdict if limit is None else f"{limit:.2f}: {verdict}"]
        rows.append(cells)
    lines = (
        "# What the data plane alone costs",
        "",
        f"{conditions.started_at}, revision {conditions.revision}, on {conditions.cpu} with Python {conditions.python} "
        f"and uvloop {conditions.uvloop}; {conditions.rounds} processes a case, {conditions.window_s:g} s each; "
        f"load average {conditions.load_average_before:g} before and {run.load_average_after:g} after.",
        f"CPU time at the reference's speed (calibration 200 µs): median (lowest to highest). Of the runs {run.calm:.0%} had the core for themselves.",
        "",
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
        *(f"| {' | '.join(cells)} |" for cells in rows),
    )
    return "\n".join(lines) + "\n"


def _said(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.low:.2f} to {spread.high:.2f})"
