"""Measures one plane case in a process of its own: `python -m bench.plane_child CASE SECONDS FILE`."""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import priority
from bench.calibration import REFERENCE_US, calibrate
from bench.forms import loaded_form
from bench.plane_cases import PLANE_CASES, PlaneCase
from bench.plane_stage import Stage, perform
from bench.plane_traffic import Traffic

_WARM_RUNS = 5
_FEWEST_RUNS = 8
_ENOUGH_CALM = 20


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
    calm: float
    """The share of the runs in which nothing else was given the core."""
    form: str


@dataclass(frozen=True, slots=True)
class _Run:
    cost: float
    speed: float
    is_calm: bool


def _switches() -> int:
    """How often this thread has lost the core: after that caches and branch predictors are cold, and all costs more."""
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_nivcsw + used.ru_nvcsw


async def timed(traffic: Traffic, seconds: float) -> PlaneCost:
    """Times runs, each between two calibrations: a slower processor is slower in all three.

    Runs in which another program was given the core count only where there are too few others.
    """
    await traffic.prepare()
    gc.collect()
    gc.freeze()
    for _ in range(_WARM_RUNS):
        traffic.run()
        await asyncio.sleep(0)
    runs: list[_Run] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(runs) < _FEWEST_RUNS:
        switches = _switches()
        before = calibrate()
        # The whole process: the access log's writer is a thread of its own, and its timers fire in the loop's turn.
        begun = time.process_time_ns()
        traffic.run()
        await asyncio.sleep(0)
        cost = (time.process_time_ns() - begun) / 1e3 / traffic.units
        speed = (before + calibrate()) / 2
        runs.append(_Run(cost, speed, is_calm=_switches() == switches))
    traffic.check()
    return _summed_up(runs)


def _summed_up(runs: Sequence[_Run]) -> PlaneCost:
    calm = [run for run in runs if run.is_calm]
    chosen = calm if len(calm) >= _ENOUGH_CALM else runs
    return PlaneCost(
        cost=statistics.median(run.cost / run.speed for run in chosen) * REFERENCE_US,
        raw_us=statistics.median(run.cost for run in chosen),
        calibration_us=statistics.median(run.speed for run in chosen),
        runs=len(runs),
        calm=len(calm) / len(runs),
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
    # Otherwise everything that wakes up takes the core away for a moment.
    priority.hurry()
    Path(out).write_text(json.dumps(asdict(measure(case, float(seconds)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
