"""Writes a run down: JSON with every round, and the Markdown tables made from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.cases import CASES
from bench.conditions import Conditions
from bench.goals import REFERENCES, judge
from bench.loads import Measured
from bench.revisions import PREFIX
from bench.subjects import MEMORY, title_of
from bench.summary import Cell, Record, Spread, Summary

_CASES = {case.name: case for case in CASES}
_NOISY = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is kept."""

    conditions: Conditions
    records: tuple[Record, ...]

    def to_json(self) -> str:
        document = {
            "conditions": asdict(self.conditions),
            "records": [
                {"case": each.case, "subject": each.subject, "round": each.round}
                | _rounded(each.measured)
                for each in self.records
            ],
        }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Run:
        document = json.loads(text)
        records = []
        for row in document["records"]:
            place = {name: row.pop(name) for name in ("case", "subject", "round")}
            records.append(Record(**place, measured=Measured(**row)))
        return cls(Conditions(**document["conditions"]), tuple(records))


def write(run: Run, stem: Path) -> tuple[Path, Path]:
    """Write the JSON and the Markdown beside each other; returns both paths."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    data = stem.with_suffix(".json")
    tables = stem.with_suffix(".md")
    data.write_text(run.to_json())
    tables.write_text(to_markdown(run))
    return data, tables


def to_markdown(run: Run) -> str:
    """The conditions, the goals, and one table for each kind of figure."""
    summary = Summary(run.records)
    return "\n".join(
        (
            "# What the router costs, beside its peers",
            "",
            *_conditions(run.conditions, summary),
            "",
            "## Goals",
            "",
            *_goals(summary),
            "",
            "## Cost: median (lowest to highest of the rounds)",
            "",
            *_table(summary, _cost),
            "",
            *_ratios(summary),
            "## For information: requests (or MB, or messages) per second; p50 and p99 in ms;"
            " the proxy's share of its core",
            "",
            *_table(summary, _information, skip_family=MEMORY),
            "",
            *_remarks(summary),
        )
    )


def _ratios(summary: Summary) -> Iterable[str]:
    """A table for each of the references that was measured: peers, and older revisions of the router."""
    older = [name for name in summary.subjects if name.startswith(PREFIX)]
    for reference in (*REFERENCES, *older):
        if reference in summary.subjects:
            yield f"## Ratio to {title_of(reference)}: median of the rounds' pairs (lowest to highest)"
            yield ""
            yield from _table(summary, _ratio_to(summary, reference))
            yield ""


def _ratio_to(summary: Summary, reference: str) -> Callable[[Cell, str], str]:
    return lambda cell, case: _spread(cell.ratio_to(summary.cell(case, reference)))


def _rounded(measured: Measured) -> dict[str, object]:
    """What was found, without what wasn't, to four decimals."""
    row: dict[str, object] = {"cost": None}
    for name, value in asdict(measured).items():
        if isinstance(value, float):
            row[name] = round(value, 4)
        elif isinstance(value, list):
            row[name] = [round(each, 4) for each in value]
        elif value:
            row[name] = value
    return {name: value for name, value in row.items() if value != []}


def _conditions(conditions: Conditions, summary: Summary) -> Iterable[str]:
    where = (
        "proxy, load and sandbox share the only core"
        if conditions.shared_core
        else "proxy on one core, load and sandbox on another"
    )
    rows = {
        "date": conditions.started_at,
        "project revision": conditions.revision,
        "machine": f"{conditions.cpu}, {conditions.cores} cores; Linux {conditions.kernel}",
        "placement": where,
        "rounds": f"{conditions.rounds}, interleaved; window {conditions.window_s:g} s",
        "load average before, after": _loads(conditions),
        "priority": "before other programs" if conditions.urgent else "as any program",
        "other programs, of the proxy's core": _shares(summary, "others"),
        "other programs, of the load's core": _shares(summary, "load_others"),
        "Python": f"{conditions.python}, uvloop {conditions.uvloop}",
        "subjects": ", ".join(
            f"{title_of(name)} {version}" for name, version in conditions.versions.items()
        ),
    }
    yield from _rows(("condition", ""), rows.items())


def _loads(conditions: Conditions) -> str:
    after = conditions.load_average_after
    return f"{conditions.load_average_before:g}" + ("" if after is None else f", {after:g}")


def _shares(summary: Summary, name: str) -> str:
    """How disturbed the run was, over all its measurements."""
    shares = sorted(summary.figures(name))
    if not shares:
        return "not known"
    highest, middle = shares[-1], shares[len(shares) // 2]
    many = sum(share >= _NOISY for share in shares)
    return (
        f"{middle:.0%} in the median, {highest:.0%} at most; "
        f"{many} of {len(shares)} measurements above {_NOISY:.0%}"
    )


def _goals(summary: Summary) -> Iterable[str]:
    rows = [
        (
            title_of(verdict.goal.subject),
            _CASES[verdict.goal.case].title,
            verdict.goal.wording,
            _spread(verdict.reached),
            verdict.word,
        )
        for verdict in judge(summary)
    ]
    yield from _rows(("subject", "case", "goal", "reached", ""), rows)


def _table(
    summary: Summary, show: Callable[[Cell, str], str], *, skip_family: str = ""
) -> Iterable[str]:
    head = ("case", *(title_of(name) for name in summary.subjects))
    rows = [
        (
            f"{_CASES[case].title} ({_CASES[case].unit})",
            *(show(summary.cell(case, subject), case) for subject in summary.subjects),
        )
        for case in summary.cases
        if _CASES[case].family != skip_family
    ]
    yield from _rows(head, rows)


def _cost(cell: Cell, _case: str) -> str:
    return "invalid" if cell.by_round and not cell.valid else _spread(cell.cost)


def _information(cell: Cell, _case: str) -> str:
    rate = cell.spread("rate_per_s")
    busy = cell.spread("busy")
    p50, p99 = cell.spread("p50_ms"), cell.spread("p99_ms")
    if rate is None or busy is None:
        return "-"
    times = f"; {p50.median:.2f}, {p99.median:.2f}" if p50 and p99 else ""
    return f"{rate.median:,.0f}{times}; {busy.median:.0%}"


def _remarks(summary: Summary) -> Iterable[str]:
    """What a reader must know before trusting a cell."""
    for case in summary.cases:
        title = _CASES[case].title
        disturbed = []
        for subject in summary.subjects:
            cell = summary.cell(case, subject)
            for reason, count in cell.errors.items():
                yield f"- {title_of(subject)}, {title}: invalid, {count} times: {reason}"
            others = cell.spread("others")
            if others is not None and others.high > _NOISY:
                disturbed.append(f"{title_of(subject)} {others.high:.0%}")
        if disturbed:
            yield f"- {title}: other programs took time on the proxy's core: {', '.join(disturbed)}"


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    digits = 1 if abs(spread.median) >= 10 else 2
    if spread.low == spread.high:
        return f"{spread.median:.{digits}f}"
    return f"{spread.median:.{digits}f} ({spread.low:.{digits}f} to {spread.high:.{digits}f})"


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"
