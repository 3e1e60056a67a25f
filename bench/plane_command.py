"""The command line of the plane measurements: `python -m bench --plane`."""

from __future__ import annotations

import argparse
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench import conditions, plane
from bench.budgets import set_budget
from bench.plane import CURRENT, PURE_AGAIN, TODAYS, MeasurementError, PlaneRun
from bench.plane_cases import PLANE_CASES
from bench.revisions import PREFIX, RevisionError, environment, installed
from router import code_form

_RESULTS = Path(__file__).parent / "results"
_SECONDS, _QUICK_SECONDS = 1.0, 0.3
logger = logging.getLogger("bench")


def _subjects(asked: str | None) -> dict[str, dict[str, str]]:
    """The environments of today's router, in each form that it has here, and of the older ones that were asked for."""
    subjects = {CURRENT: environment(None)}
    if code_form.CURRENT.modules:
        subjects[PURE_AGAIN] = environment(None) | {code_form.VARIABLE: "pure"}
    for name in asked.split(",") if asked else ():
        if name.startswith(PREFIX):
            subjects[name] = environment(installed(name.removeprefix(PREFIX)))
        elif name not in TODAYS:
            sys.exit(f"the plane measurements know {CURRENT} and {PREFIX}REVISION, not {name}")
    return subjects


def main(arguments: argparse.Namespace) -> int:
    """Measures, prints the table, and returns 1 when something costs more than its budget."""
    known = {case.name: case for case in PLANE_CASES}
    names = (arguments.cases or ",".join(known)).split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no such cases: {', '.join(unknown)} (there are {', '.join(known)})")
    noted = conditions.note(
        rounds=arguments.rounds or (1 if arguments.quick else 5),
        window_s=_QUICK_SECONDS if arguments.quick else _SECONDS,
        versions={},
        shared_core=False,
    )
    try:
        subjects = _subjects(arguments.subjects)
        run = plane.carry_out([known[name] for name in names], subjects, noted)
    except (RevisionError, MeasurementError) as exc:
        sys.exit(str(exc))
    if arguments.set_budget:
        for subject in set(TODAYS) & set(run.subjects):
            medians = {case: run.cost(case, subject).median for case in run.cases}
            set_budget(run.form(subject), medians, noted)
    print(plane.to_markdown(run))
    _write(run, arguments.out, is_kept=not arguments.quick)
    return _judged(run)


def _write(run: PlaneRun, out: Path | None, *, is_kept: bool) -> None:
    if out is None and is_kept:
        revision = run.conditions.revision.rstrip("+")
        out = _RESULTS / f"plane-{datetime.now(UTC):%Y-%m-%d}-{revision}"
    if out is None:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(run.to_json())
    out.with_suffix(".md").write_text(plane.to_markdown(run))
    logger.info("written: %s.json and .md", out.with_suffix("").name)


def _judged(run: PlaneRun) -> int:
    over = plane.over_budget(run)
    if over:
        print(
            f"Over the budget (bench/budgets.json), or without one: {', '.join(over)}.\n"
            "If it has to cost that much: --set-budget, and say why in the commit."
        )
    return 1 if over else 0
