from __future__ import annotations

from collections import Counter
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from router.suspender.metrics import SuspenderMetrics, markdown_table
from router.suspender.rounds import Ending
from router.suspender.suspension import Outcome
from router.suspender.verdict import Verdict


def samples(metrics: SuspenderMetrics) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_every_series_is_there_before_anything_has_happened() -> None:
    found = samples(SuspenderMetrics(wall_clock=lambda: 5.0))

    for outcome in Outcome:
        assert found["sandbox_router_suspends_total", outcome.value] == 0
    for ending in Ending:
        assert found["sandbox_router_suspend_rounds_total", ending.value] == 0
    for verdict in Verdict:
        assert found["sandbox_router_suspend_sandboxes", verdict.value] == 0
    assert found["sandbox_router_suspend_last_complete_round_timestamp_seconds", ""] == 5.0


def test_only_a_round_that_knew_everything_moves_the_complete_time() -> None:
    now = 5.0
    metrics = SuspenderMetrics(wall_clock=lambda: now)

    now = 20.0
    metrics.round_ended(Ending.ROUTER_SILENT)
    silent = samples(metrics)
    metrics.round_ended(Ending.STANDBY)
    standby = samples(metrics)

    complete = ("sandbox_router_suspend_last_complete_round_timestamp_seconds", "")
    assert (silent[complete], standby[complete]) == (5.0, 20.0)
    assert silent["sandbox_router_suspend_last_round_timestamp_seconds", ""] == 20.0
    assert standby["sandbox_router_suspend_rounds_total", "router_silent"] == 1


def test_sandboxes_are_shown_as_they_stood_last() -> None:
    metrics = SuspenderMetrics()

    metrics.judged(Counter({Verdict.ACTIVE: 3, Verdict.IDLE: 1}), routers=2)
    metrics.judged(Counter({Verdict.ACTIVE: 4}), routers=2)
    metrics.suspended(Outcome.SUSPENDED)
    found = samples(metrics)

    assert found["sandbox_router_suspend_sandboxes", "active"] == 4
    assert found["sandbox_router_suspend_sandboxes", "idle"] == 0
    assert found["sandbox_router_suspend_routers", ""] == 2
    assert found["sandbox_router_suspends_total", "suspended"] == 1


def test_the_lease_is_looked_at_when_it_is_scraped() -> None:
    metrics = SuspenderMetrics()
    is_held = False
    metrics.watch_lease(lambda: is_held)
    before = samples(metrics)["sandbox_router_suspend_leader", ""]
    is_held = True

    assert (before, samples(metrics)["sandbox_router_suspend_leader", ""]) == (0.0, 1.0)


def test_the_page_shows_the_table_that_the_code_makes() -> None:
    page = Path(__file__).parents[3] / "docs" / "sleeping.md"

    assert markdown_table() in page.read_text("utf-8"), (
        "docs/sleeping.md is old: replace its table with what `python -m router.suspender.metrics` prints"
    )
