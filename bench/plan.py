"""Carries a run out: every case of every subject in every round, interleaved."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from bench import conditions, running
from bench.cases import Case, Effort, Requests
from bench.certificates import client_context
from bench.credentials import Credential, new_credential
from bench.heads import Caller
from bench.loads import Aim, Measured
from bench.preflight import NotTheSameJobError, check
from bench.report import Run
from bench.running import Cores, Sandbox, StartError
from bench.subjects import SANDBOX_ID, Subject
from bench.summary import Record
from bench.usage import Meter, Used

logger = logging.getLogger("bench")
T = TypeVar("T")
_DISTURBED = 0.1
"""From this share of either core on, a measurement that other programs disturbed is made again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured, and how long."""

    subjects: Mapping[Subject, Path]
    cases: Sequence[Case]
    rounds: int
    effort: Effort
    repeats: int = 0
    """How often a measurement is made again for being disturbed."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What all measurements of a run share."""

    sandbox: Sandbox
    cores: Cores
    credential: Credential
    caller: Caller
    requests: Requests
    effort: Effort

    async def measure(self, case: Case, subject: Subject, binary: Path) -> Measured:
        """One case of one subject, on a fresh process; whatever goes wrong is in the errors."""
        start = running.started(
            subject,
            binary,
            sandbox_port=self.sandbox.port,
            credential=self.credential,
            cores=self.cores,
            setup=case.setup,
        )
        tls = client_context() if case.setup.tls else None
        load = Meter(os.getpid(), self.sandbox.pid, core=self.cores.load)
        try:
            async with start as started:
                await check(started.port, self.caller, tls)
                meter = Meter.of_tree(started.pid, core=self.cores.proxy)
                aim = Aim(started.port, self.caller, meter, tls)
                before = load.read()
                measured = await case.measure(aim, self.requests, self.effort)
                used = Used.between(before, load.read())
                if not self.cores.shared:
                    measured = replace(measured, load_others=used.others_s / used.elapsed_s)
                if subject.writes_access_log and not started.output.stat().st_size:
                    measured.errors["no access log was written"] = 1
                return measured
        except (StartError, NotTheSameJobError, OSError, EOFError) as exc:
            return Measured(cost=None, errors={f"{type(exc).__name__}: {exc}": 1})

    async def measure_calmly(
        self, case: Case, subject: Subject, binary: Path, *, repeats: int
    ) -> Measured:
        """The same, again while it is disturbed, up to so many times; the calmest is kept."""
        best = await self.measure(case, subject, binary)
        for number in range(1, repeats + 1):
            if best.errors or best.disturbance < _DISTURBED:
                break
            again = await self.measure(case, subject, binary)
            calmer = again if again.errors or again.disturbance < best.disturbance else best
            best = replace(calmer, repeats=number)
        return best


def rotated(items: Sequence[T], by: int) -> list[T]:
    """The items, begun at another one, so that no subject always runs first."""
    by %= len(items)
    return [*items[by:], *items[:by]]


def schedule(plan: Plan) -> Iterator[tuple[int, Case, Subject]]:
    """Rounds of cases of subjects: the subjects of a case run next to each other in time."""
    for number in range(plan.rounds):
        for index, case in enumerate(plan.cases):
            able = [each for each in plan.subjects if each.takes_part(case.name, case.family)]
            for subject in rotated(able, number + index) if able else ():
                yield number, case, subject


async def carry_out(plan: Plan) -> Run:
    """Measure everything; a case that fails is recorded with its errors."""
    cores = Cores.found()
    if cores.shared:
        logger.warning("only one core: the load and the sandbox share it with the proxy")
    credential = new_credential()
    caller = Caller(SANDBOX_ID, credential.token)
    noted = conditions.note(
        rounds=plan.rounds,
        window_s=plan.effort.span.window_s,
        versions={each.name: each.version(binary) for each, binary in plan.subjects.items()},
        shared_core=cores.shared,
    )
    records: list[Record] = []
    with running.sandbox(cores) as sandbox:
        os.sched_setaffinity(0, {cores.load})
        bench = Bench(sandbox, cores, credential, caller, Requests(caller), plan.effort)
        gc.disable()  # a collection of 60,000 heads is a pause in the load
        for number, case, subject in schedule(plan):
            measured = await bench.measure_calmly(
                case, subject, plan.subjects[subject], repeats=plan.repeats
            )
            logger.info(
                "round %d  %-16s %-10s %s", number + 1, case.name, subject.name, _said(measured)
            )
            records.append(Record(case.name, subject.name, number, measured))
            gc.collect()
    return Run(conditions.ended(noted), _ordered(records, plan))


def _said(measured: Measured) -> str:
    if measured.errors:
        return f"INVALID {measured.errors}"
    again = f", measured {measured.repeats + 1} times" if measured.repeats else ""
    return f"{measured.cost:.3f} (others {measured.disturbance:.0%}{again})"


def _ordered(records: Sequence[Record], plan: Plan) -> tuple[Record, ...]:
    """By case, subject and round, so that two runs' files can be compared line by line."""
    subjects = [each.name for each in plan.subjects]
    cases = [each.name for each in plan.cases]
    return tuple(
        sorted(
            records,
            key=lambda each: (cases.index(each.case), subjects.index(each.subject), each.round),
        )
    )
