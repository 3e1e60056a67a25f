"""Measures one plane case in a process of its own: `python -m bench.plane_child CASE SECONDS FILE`."""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.calibration import REFERENCE_US, calibrate
from bench.forms import loaded_form
from bench.plane_cases import PLANE_CASES, PlaneCase
from bench.plane_stage import Stage, perform
from bench.plane_traffic import Traffic

_WARM_RUNS = 5
_FEWEST_RUNS = 8


@dataclass(frozen=True, slots=True)
class PlaneCost:
    """What one process found."""

    cost: float
    """CPU µs for each unit of work on a processor of the reference's speed."""
    raw_us: float
    """The median of what it took here and now."""
    calibration_us: float
    """The median of what the calibration took here and now."""
    runs: int
    form: str


async def timed(traffic: Traffic, seconds: float) -> PlaneCost:
    """Times runs, each between two calibrations: what disturbs the processor disturbs all three alike."""
    await traffic.prepare()
    gc.collect()
    gc.freeze()
    for _ in range(_WARM_RUNS):
        traffic.run()
        await asyncio.sleep(0)
    costs: list[float] = []
    speeds: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(costs) < _FEWEST_RUNS:
        before = calibrate()
        # The whole process: the access log's writer is a thread of its own, and its timers fire in the loop's turn.
        begun = time.process_time_ns()
        traffic.run()
        await asyncio.sleep(0)
        costs.append((time.process_time_ns() - begun) / 1e3 / traffic.units)
        speeds.append((before + calibrate()) / 2)
    traffic.check()
    ratio = statistics.median(cost / speed for cost, speed in zip(costs, speeds, strict=True))
    return PlaneCost(
        cost=ratio * REFERENCE_US,
        raw_us=statistics.median(costs),
        calibration_us=statistics.median(speeds),
        runs=len(costs),
        form=loaded_form(),
    )


def measure(case: PlaneCase, seconds: float) -> PlaneCost:
    """The cost of one case on a worker of its own."""

    async def act(stage: Stage) -> PlaneCost:
        return await timed(case.make(stage), seconds)

    cost = perform(act, case.settings, sandboxes=case.sandboxes)
    assert isinstance(cost, PlaneCost)
    return cost


def main(name: str, seconds: str, out: str) -> None:
    case = next(each for each in PLANE_CASES if each.name == name)
    Path(out).write_text(json.dumps(asdict(measure(case, float(seconds)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
