"""Counts the answers of a load, how long they took, and what went wrong."""

from __future__ import annotations

import time
from array import array
from collections import Counter


class Tally:
    """One load's count; restarted when the measured window opens."""

    __slots__ = ("answers", "errors", "latencies_ns")

    def __init__(self) -> None:
        self.answers = 0
        self.latencies_ns = array("q")
        self.errors: Counter[str] = Counter()

    def answered(self, asked_ns: int) -> None:
        self.answers += 1
        self.latencies_ns.append(time.monotonic_ns() - asked_ns)

    def failed(self, reason: str) -> None:
        self.errors[reason] += 1

    def restart(self) -> None:
        """Forget answers and times, never errors: a warm-up that fails is a failure too."""
        self.answers = 0
        self.latencies_ns = array("q")

    def latency_ms(self, quantile: float) -> float | None:
        """The latency below which that share of the answers lies."""
        if not self.latencies_ns:
            return None
        ordered = sorted(self.latencies_ns)
        return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] / 1e6
