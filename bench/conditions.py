"""Notes the conditions under which a run was made."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from bench import priority

_PROJECT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Conditions:
    started_at: str
    revision: str
    kernel: str
    cpu: str
    cores: int
    shared_core: bool
    python: str
    uvloop: str
    rounds: int
    window_s: float
    versions: dict[str, str]
    load_average_before: float
    load_average_after: float | None = None
    urgent: bool = False


def note(
    *, rounds: int, window_s: float, versions: dict[str, str], shared_core: bool
) -> Conditions:
    """What holds now."""
    return Conditions(
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        revision=_revision(),
        kernel=platform.release(),
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        shared_core=shared_core,
        python=platform.python_version(),
        uvloop=importlib.metadata.version("uvloop"),
        rounds=rounds,
        window_s=window_s,
        versions=versions,
        load_average_before=round(os.getloadavg()[0], 2),
        urgent=priority.is_in_a_hurry(),
    )


def ended(conditions: Conditions) -> Conditions:
    """The same, with what can only be told at the end of a run."""
    return replace(conditions, load_average_after=round(os.getloadavg()[0], 2))


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _revision() -> str:
    """The commit of the tree; with a plus when the measured code differs from it."""
    revision = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", "router", "bench", ":!bench/results")
    return f"{revision}+" if revision and changed else revision or "unknown"


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=_PROJECT, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
