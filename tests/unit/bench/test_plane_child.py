"""One plane case in a process of its own."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from bench import plane_child
from bench.calibration import REFERENCE_US


class Counted:
    """Takes 30 µs of a clock for each of its ten units."""

    units = 10.0

    def __init__(self) -> None:
        self.steps: list[str] = []

    async def prepare(self) -> None:
        self.steps.append("prepare")

    def run(self) -> None:
        self.steps.append("run")

    def check(self) -> None:
        self.steps.append("check")


async def test_a_cost_is_scaled_to_the_references_speed(monkeypatch) -> None:
    # A processor half as fast: twice the calibration's time, and 300 µs for a run.
    monkeypatch.setattr(plane_child, "calibrate", lambda: 2 * REFERENCE_US)
    ticks = itertools.count(0, 300_000)
    monkeypatch.setattr(plane_child.time, "process_time_ns", lambda: next(ticks))
    traffic = Counted()

    found = await plane_child.timed(traffic, 0.0)

    assert found.raw_us == pytest.approx(30.0)
    assert found.cost == pytest.approx(15.0)
    assert found.calibration_us == 2 * REFERENCE_US
    assert traffic.steps[0] == "prepare"
    assert traffic.steps[-1] == "check"
    assert found.runs >= 8


async def test_runs_that_lost_the_core_do_not_count_while_there_are_others(monkeypatch) -> None:
    times = itertools.cycle([0, 1_000_000, 2_000_000, 12_000_000])  # 100 µs a unit, then 1,000
    switches = itertools.cycle([1, 1, 2, 3])  # and the second run lost the core
    monkeypatch.setattr(plane_child, "calibrate", lambda: REFERENCE_US)
    monkeypatch.setattr(plane_child.time, "process_time_ns", lambda: next(times))
    monkeypatch.setattr(plane_child, "_switches", lambda: next(switches))
    monkeypatch.setattr(plane_child, "_FEWEST_RUNS", 60)

    found = await plane_child.timed(Counted(), 0.0)

    assert found.cost == pytest.approx(100.0)
    assert found.calm == 0.5


async def test_disturbed_runs_count_where_there_are_too_few_others(monkeypatch) -> None:
    monkeypatch.setattr(plane_child, "_switches", itertools.count().__next__)

    found = await plane_child.timed(Counted(), 0.0)

    assert found.calm == 0.0
    assert found.runs == 8


def test_what_was_found_is_written_to_the_file(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plane_child.priority, "hurry", lambda: True)
    out = tmp_path / "cost.json"

    plane_child.main("ws-64b", "0", str(out))

    assert json.loads(out.read_text())["cost"] > 0
