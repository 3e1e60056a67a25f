"""Family: what one metric is, whoever counts it."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from router.telemetry.metric_labels import OTHER


class Kind(enum.Enum):
    """The Prometheus type of a family."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(enum.Enum):
    """How the values of several worker processes become one."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"


class Source(enum.Enum):
    """Who keeps the numbers of a family."""

    METRICS = "metrics"
    """Metrics itself, event by event."""
    READING = "reading"
    """Another room; it is asked at the scrape."""
    PROCESS = "process"
    """The operating system."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `values` are the closed sets of its labels, in their order; None is a set that grows with use."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[tuple[str, ...] | None, ...] = ()
    buckets_s: tuple[float, ...] = ()
    merge: Merge = Merge.SUM
    source: Source = Source.METRICS

    def zero_series(self) -> Iterator[tuple[str, ...]]:
        """Yields the labels of each series that a scrape shows before anything has happened, so that rates see the first event."""
        if self.kind is Kind.COUNTER and self.source is not Source.PROCESS:
            closed = [values for values in self.values if values is not None]
            if len(closed) == len(self.labels):
                yield from product(*closed)

    def closed(self, label: int, value: str) -> str:
        """Returns `value` if the label's closed set holds it, else `other`."""
        values = self.values[label]
        return value if values is None or value in values else OTHER
