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


def test_what_was_found_is_written_to_the_file(tmp_path: Path) -> None:
    out = tmp_path / "cost.json"

    plane_child.main("ws-64b", "0", str(out))

    assert json.loads(out.read_text())["cost"] > 0
