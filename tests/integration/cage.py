"""A memory limit for a process: a control group where one can be made, else a watch on what the process occupies."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")


class Cage:
    """Holds one process to a limit. `how` says by what means, for the test's report."""

    def __init__(self, limit_bytes: int, group: Path | None) -> None:
        self.limit_bytes = limit_bytes
        self._group = group
        self._is_v2 = group is not None and (group / "memory.max").exists()
        self.how = "VmHWM, watched by the test alone: no control group can be made here"
        if group is not None:
            self.how = (
                f"control group, version {2 if self._is_v2 else 1}: the kernel kills who exceeds it"
            )

    def command(self, *words: str) -> list[str]:
        """Returns a command that runs inside of the cage."""
        if self._group is None:
            return list(words)
        procs = shlex.quote(str(self._group / "cgroup.procs"))
        return ["sh", "-c", f'echo $$ > {procs} && exec "$@"', "sh", *words]

    def peak_bytes(self, pid: int) -> int:
        """Returns the most that the process ever occupied (VmHWM); files that the kernel caches are not among it."""
        status = Path(f"/proc/{pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024


@contextmanager
def cage(limit_bytes: int) -> Iterator[Cage]:
    """Makes a cage without swap, and takes it away again."""
    group = _group(limit_bytes)
    try:
        yield Cage(limit_bytes, group)
    finally:
        if group is not None:
            _remove(group)


def _group(limit_bytes: int) -> Path | None:
    for root, limit, swap in (
        (MOUNT, "memory.max", ("memory.swap.max", "0")),
        (MOUNT / "memory", "memory.limit_in_bytes", ("memory.swappiness", "0")),
    ):
        group = root / f"sandbox-router-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if not (
                group / limit
            ).exists():  # a directory that is no control group, or has no such controller
                raise FileNotFoundError(group / limit)
            (group / limit).write_text(str(limit_bytes))
        except OSError:
            group.rmdir()
            continue
        with contextlib.suppress(OSError):
            (group / swap[0]).write_text(swap[1])
        return group
    return None


def _remove(group: Path) -> None:
    """Removes an empty group; who was in it may take a moment to be gone."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.05)
