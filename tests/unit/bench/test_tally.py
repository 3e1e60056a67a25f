"""The count of a load."""

from __future__ import annotations

import time

from bench.tally import Tally


def test_quantiles_come_from_the_answers_times() -> None:
    tally = Tally()
    tally.latencies_ns.extend(range(1_000_000, 101_000_000, 1_000_000))

    assert tally.latency_ms(0.5) == 51.0
    assert tally.latency_ms(0.99) == 100.0
    assert tally.latency_ms(1.0) == 100.0


def test_without_answers_there_is_no_latency() -> None:
    assert Tally().latency_ms(0.5) is None


def test_a_restart_forgets_answers_but_no_error() -> None:
    tally = Tally()
    tally.answered(time.monotonic_ns())
    tally.failed("cut short")

    tally.restart()

    assert (tally.answers, len(tally.latencies_ns), tally.errors) == (0, 0, {"cut short": 1})
