"""A run, written down."""

from __future__ import annotations

from pathlib import Path

from bench.conditions import Conditions
from bench.loads import Measured
from bench.report import Run, to_markdown, write
from bench.summary import Record

CONDITIONS = Conditions(
    started_at="2026-08-01T09:30:00+00:00",
    revision="abc1234",
    kernel="6.1",
    cpu="A CPU",
    cores=2,
    shared_core=False,
    python="3.12.4",
    uvloop="0.23.0",
    rounds=2,
    window_s=4.0,
    versions={"router": "0.1.0", "envoy": "1.40.0"},
    load_average_before=0.12,
)


def one_run(*records: Record) -> Run:
    return Run(CONDITIONS, records)


GET = Measured(cost=30.0, rate_per_s=20_000.0, p50_ms=1.5, p99_ms=3.25, busy=0.9, others=0.0)
WHOLE = one_run(
    Record("get-64-differ", "router", 0, GET),
    Record("get-64-differ", "router", 1, Measured(cost=33.0)),
    Record("get-64-differ", "envoy", 0, Measured(cost=50.0)),
    Record("get-64-differ", "envoy", 1, Measured(cost=55.0)),
    Record("idle-websocket", "router", 0, Measured(cost=9.0, stretches=[9.0, 8.5])),
)


def table(markdown: str, title: str) -> dict[str, list[str]]:
    """The rows under a heading, by their first cell."""
    part = markdown.partition(f"## {title}")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows}


def test_a_run_survives_being_written_and_read() -> None:
    assert Run.from_json(WHOLE.to_json()) == WHOLE


def test_a_failed_measurement_survives_too() -> None:
    run = one_run(Record("down", "envoy", 0, Measured(cost=None, errors={"StartError: x": 1})))

    assert Run.from_json(run.to_json()) == run


def test_costs_are_shown_with_their_spread() -> None:
    row = table(to_markdown(WHOLE), "Cost")[
        "small GET, 64 connections, heads differ (µs CPU per request)"
    ]

    assert row == ["31.5 (30.0 to 33.0)", "52.5 (50.0 to 55.0)"]


def test_ratios_are_shown_to_envoy() -> None:
    row = table(to_markdown(WHOLE), "Ratio to Envoy")[
        "small GET, 64 connections, heads differ (µs CPU per request)"
    ]

    assert row == ["0.60", "1.00"]


def test_goals_are_shown_with_what_was_reached() -> None:
    markdown = to_markdown(WHOLE)

    assert (
        "| small GET, 64 connections, heads differ | at most 0.5 x envoy's | 0.60 | missed |"
        in markdown
    )
    assert "| idle WebSockets | at most 9 MB per 1,000 | 9.00 | met |" in markdown
    assert "| 100 MB down, chunked | at most 0.85 x envoy's | - | not measured |" in markdown


def test_an_invalid_cell_says_so_and_why() -> None:
    run = one_run(Record("down", "envoy", 0, Measured(cost=1.0, errors={"cut short": 3})))
    markdown = to_markdown(run)

    assert table(markdown, "Cost")["100 MB down, with a length (ms CPU per MB)"] == ["invalid"]
    assert "- Envoy, 100 MB down, with a length: invalid, 3 times: cut short" in markdown


def test_a_disturbed_cell_is_remarked_on() -> None:
    run = one_run(Record("down", "envoy", 0, Measured(cost=1.0, others=0.2)))

    assert (
        "- 100 MB down, with a length: other programs took time on the proxy's core: Envoy 20%"
        in to_markdown(run)
    )


def test_the_report_says_how_disturbed_the_run_was() -> None:
    run = one_run(
        Record("down", "envoy", 0, Measured(cost=1.0, others=0.2, load_others=0.5)),
        Record("down", "router", 0, Measured(cost=1.0, others=0.01, load_others=0.0)),
        Record("up", "router", 0, Measured(cost=1.0, others=0.02)),
    )
    markdown = to_markdown(run)

    said = "2% in the median, 20% at most; 1 of 3 measurements above 5%"
    assert f"| other programs, of the proxy's core | {said} |" in markdown
    assert "| other programs, of the load's core | 50% in the median, 50% at most;" in markdown


def test_an_older_revision_is_compared_with_as_peers_are() -> None:
    run = one_run(
        Record("down", "router", 0, Measured(cost=1.0)),
        Record("down", "router@982d981", 0, Measured(cost=2.0)),
    )

    title = "Ratio to Sandbox Router at 982d981"
    assert table(to_markdown(run), title)["100 MB down, with a length (ms CPU per MB)"] == [
        "0.50",
        "1.00",
    ]


def test_both_files_stand_beside_each_other(tmp_path: Path) -> None:
    data, tables = write(WHOLE, tmp_path / "results" / "today.json")

    assert (data.name, tables.name) == ("today.json", "today.md")
    assert Run.from_json(data.read_text()) == WHOLE
    assert tables.read_text() == to_markdown(WHOLE)


def test_the_conditions_are_in_the_report() -> None:
    markdown = to_markdown(WHOLE)

    for fact in ("A CPU, 2 cores", "abc1234", "Sandbox Router 0.1.0", "Envoy 1.40.0", "0.23.0"):
        assert fact in markdown
