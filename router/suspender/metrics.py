"""Metrics of the suspender: how its rounds end, how the Sandboxes stand, what became of the idle ones."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable
from enum import Enum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest

from router.suspender.rounds import Ending
from router.suspender.suspension import Outcome
from router.suspender.verdict import Verdict
from router.telemetry.metric_family import Family, Kind


def _words(choices: type[Enum]) -> tuple[tuple[str, ...]]:
    return (tuple(str(choice.value) for choice in choices),)


SUSPENDS: Final = Family(
    "sandbox_router_suspends_total",
    Kind.COUNTER,
    "Sandboxes that were idle for long enough, by what became of the attempt to suspend them.",
    ("outcome",),
    _words(Outcome),
)
ROUNDS: Final = Family(
    "sandbox_router_suspend_rounds_total",
    Kind.COUNTER,
    "Rounds of asking every router, by how they ended.",
    ("result",),
    _words(Ending),
)
COMPLETE_AT: Final = Family(
    "sandbox_router_suspend_last_complete_round_timestamp_seconds",
    Kind.GAUGE,
    "When everything was known last, in Unix time; at first, the start.",
)
ENDED_AT: Final = Family(
    "sandbox_router_suspend_last_round_timestamp_seconds",
    Kind.GAUGE,
    "When a round ended last, however, in Unix time; at first, the start.",
)
LEADER: Final = Family(
    "sandbox_router_suspend_leader", Kind.GAUGE, "1 while this process holds the Lease."
)
SANDBOXES: Final = Family(
    "sandbox_router_suspend_sandboxes",
    Kind.GAUGE,
    "Sandboxes with an idle timeout, as they were judged in the last complete round.",
    ("state",),
    _words(Verdict),
)
ROUTERS: Final = Family(
    "sandbox_router_suspend_routers",
    Kind.GAUGE,
    "Routers that were asked in the last complete round.",
)
FAMILIES: Final = (SUSPENDS, ROUNDS, COMPLETE_AT, ENDED_AT, LEADER, SANDBOXES, ROUTERS)


class SuspenderMetrics:
    """Every series is there from the start, so that rates see the first event."""

    def __init__(self, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._suspends = self._counter(SUSPENDS)
        self._rounds = self._counter(ROUNDS)
        self._complete_at = self._gauge(COMPLETE_AT)
        self._ended_at = self._gauge(ENDED_AT)
        self._leader = self._gauge(LEADER)
        self._sandboxes = self._gauge(SANDBOXES)
        self._routers = self._gauge(ROUTERS)
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

    def _counter(self, family: Family) -> Counter:
        counter = Counter(family.name, family.help, family.labels, registry=self._registry)
        for word in _closed(family):
            counter.labels(word)
        return counter

    def _gauge(self, family: Family) -> Gauge:
        gauge = Gauge(family.name, family.help, family.labels, registry=self._registry)
        for word in _closed(family):
            gauge.labels(word)
        return gauge


def _closed(family: Family) -> tuple[str, ...]:
    """Returns the words that the family's only label takes."""
    return (family.values[0] or ()) if family.labels else ()


def markdown_table() -> str:
    """Returns the table of docs/sleeping.md."""
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in FAMILIES:
        words = ", ".join(f"`{word}`" for word in _closed(family))
        labels = f"`{family.labels[0]}`: {words}" if family.labels else "none"
        lines.append(f"| `{family.name}` | {family.kind.value} | {labels} | {family.help} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown_table(), end="")
