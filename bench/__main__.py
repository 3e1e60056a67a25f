"""The harness's command line: `python -m bench`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from bench import plane_command, priority, report
from bench.cases import CASES, FULL, QUICK
from bench.goals import cases_with_goals
from bench.plan import Plan, carry_out
from bench.report import Run
from bench.revisions import PREFIX, RevisionError
from bench.subjects import SUBJECTS, Subject, at_revision

_RESULTS = Path(__file__).parent / "results"
_FILES_NEEDED = 16_384
logger = logging.getLogger("bench")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    names = [subject.name for subject in SUBJECTS]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--subjects",
        help=f"of {','.join(names)},{PREFIX}REVISION; default: all but the last that are installed",
    )
    parser.add_argument("--cases", help=f"of {','.join(case.name for case in CASES)}; default: all")
    parser.add_argument(
        "--goals", action="store_true", help="only the cases that some goal is about"
    )
    parser.add_argument(
        "--urgent",
        action="store_true",
        help="proxies, sandbox and load before other programs, which only root may",
    )
    parser.add_argument(
        "--repeats", type=int, default=1, help="of a measurement that others disturb; default: 1"
    )
    parser.add_argument("--rounds", type=int, help="default: 5, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="only shows that everything works")
    parser.add_argument("--out", type=Path, help="where the results go: FILE.json and FILE.md")
    parser.add_argument(
        "--plane",
        action="store_true",
        help="the data plane alone, in-process, held to the budget; exit code 1 when over it",
    )
    parser.add_argument(
        "--set-budget",
        action="store_true",
        help="with --plane: what is measured becomes the budget of the form that runs",
    )
    arguments = parser.parse_args(argv)
    if arguments.plane:
        return arguments
    for option, known in (("subjects", names), ("cases", [case.name for case in CASES])):
        asked = (getattr(arguments, option) or "").split(",")
        unknown = [
            name for name in asked if name and name not in known and not name.startswith(PREFIX)
        ]
        if unknown:
            parser.error(f"no such {option}: {', '.join(unknown)} (there are {', '.join(known)})")
    return arguments


def _installed(asked: str | None) -> dict[Subject, Path]:
    """The subjects to measure, with their binaries. Ends the program if one that was named is missing."""
    names = asked.split(",") if asked else []
    wanted = [each for each in SUBJECTS if not asked or each.name in names]
    try:
        wanted += [at_revision(name) for name in names if name.startswith(PREFIX)]
    except RevisionError as exc:
        sys.exit(str(exc))
    found = {subject: subject.locate() for subject in wanted}
    missing = [subject for subject, binary in found.items() if binary is None]
    for subject in missing:
        logger.warning("%s is missing; to get it: %s", subject.name, subject.advice)
    if missing and asked:
        sys.exit("a subject that was asked for is missing")
    if len(missing) == len(wanted):
        sys.exit("nothing to measure")
    return {subject: binary for subject, binary in found.items() if binary is not None}


def _raise_file_limit() -> None:
    """A thousand idle tunnels are two thousand sockets in the proxy."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < _FILES_NEEDED:
        logger.warning(
            "only %d open files are allowed: idle connections need %d", hard, _FILES_NEEDED
        )


async def _until_told(plan: Plan) -> Run:
    """Carry the plan out; SIGTERM ends it as SIGINT does, with all that was started."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await carry_out(plan)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write the results down, print the tables."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    arguments = _arguments(argv)
    if arguments.plane:
        return plane_command.main(arguments)
    subjects = _installed(arguments.subjects)
    names = set(arguments.cases.split(",")) if arguments.cases else {each.name for each in CASES}
    if arguments.goals:
        names &= cases_with_goals()
    cases = [each for each in CASES if each.name in names]
    _raise_file_limit()
    if arguments.urgent and not priority.hurry():
        sys.exit("--urgent: only root may raise its own priority")
    plan = Plan(
        subjects=subjects,
        cases=cases,
        rounds=arguments.rounds or (1 if arguments.quick else 5),
        effort=QUICK if arguments.quick else FULL,
        repeats=0 if arguments.quick else arguments.repeats,
    )
    try:
        run = uvloop.run(_until_told(plan))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit("ended early: nothing is written")
    print(report.to_markdown(run))
    out = arguments.out
    if out is None and not arguments.quick:
        out = _RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{run.conditions.revision.rstrip('+')}"
    if out is not None:
        report.write(run, out)
        logger.info("written: %s.json and .md", out.with_suffix("").name)
    return 1 if any(record.measured.errors for record in run.records) else 0


if __name__ == "__main__":
    sys.exit(main())
