"""Metrics of the suspender: how its rounds end, how the Sandboxes stand, what became of the idle ones."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest

from router.suspender.rounds import Ending
from router.suspender.suspension import Outcome
from router.suspender.verdict import Verdict


class SuspenderMetrics:
    """Every series is there from the start, so that rates see the first event."""

    def __init__(self, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._suspends = Counter(
            "sandbox_router_suspends_total",
            "Idle sandboxes by what became of them.",
            ["outcome"],
            registry=self._registry,
        )
        self._rounds = Counter(
            "sandbox_router_suspend_rounds_total",
            "Rounds of asking every router, by how they ended.",
            ["result"],
            registry=self._registry,
        )
        self._complete_at = Gauge(
            "sandbox_router_suspend_last_complete_round_timestamp_seconds",
            "When everything was known last (Unix time); at first, the start.",
            registry=self._registry,
        )
        self._ended_at = Gauge(
            "sandbox_router_suspend_last_round_timestamp_seconds",
            "When a round ended last, however (Unix time); at first, the start.",
            registry=self._registry,
        )
        self._leader = Gauge(
            "sandbox_router_suspend_leader",
            "1 while this process holds the Lease.",
            registry=self._registry,
        )
        self._sandboxes = Gauge(
            "sandbox_router_suspend_sandboxes",
            "Sandboxes with an idle timeout, as they were judged in the last round.",
            ["state"],
            registry=self._registry,
        )
        self._routers = Gauge(
            "sandbox_router_suspend_routers",
            "Routers that were asked in the last complete round.",
            registry=self._registry,
        )
        for outcome in Outcome:
            self._suspends.labels(outcome.value)
        for ending in Ending:
            self._rounds.labels(ending.value)
        for verdict in Verdict:
            self._sandboxes.labels(verdict.value)
        self._complete_at.set(wall_clock())
        self._ended_at.set(wall_clock())

    def watch_lease(self, is_held: Callable[[], bool]) -> None:
        """Has the gauge say at each scrape whether the Lease is held."""
        self._leader.set_function(lambda: float(is_held()))

    def round_ended(self, ending: Ending) -> None:
        """Counts a round."""
        self._rounds.labels(ending.value).inc()
        self._ended_at.set(self._wall_clock())
        if ending.is_complete:
            self._complete_at.set(self._wall_clock())

    def judged(self, verdicts: Tally[Verdict], *, routers: int) -> None:
        """Takes how many Sandboxes stand how, and how many routers were asked."""
        for verdict in Verdict:
            self._sandboxes.labels(verdict.value).set(verdicts[verdict])
        self._routers.set(routers)

    def suspended(self, outcome: Outcome) -> None:
        """Counts one attempt."""
        self._suspends.labels(outcome.value).inc()

    def exposition(self) -> bytes:
        """Returns the text that Prometheus reads."""
        return generate_latest(self._registry)
