"""Reads what a tree of processes has used, from /proc: CPU time and memory."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the clocks; all in nanoseconds, all since some fixed moment."""

    at_ns: int
    cpu_ns: int  # of the processes, to the nanosecond, threads that ended left out
    ticked_ns: int  # the same to the clock tick, threads that ended included
    core_ns: int  # everything that ran on their core


@dataclass(frozen=True, slots=True)
class Used:
    """What happened between two readings."""

    elapsed_s: float
    cpu_s: float
    others_s: float  # other programs on their core

    @classmethod
    def between(cls, before: Reading, after: Reading) -> Used:
        cpu_ns = after.cpu_ns - before.cpu_ns
        ticked_ns = after.ticked_ns - before.ticked_ns
        # A thread that ended took its nanoseconds with it: the coarse clock still has them.
        if ticked_ns - cpu_ns > 4 * _NS_PER_TICK:
            cpu_ns = ticked_ns
        # The core's clock and ours round differently: two ticks are no sign of anybody.
        others_ns = max(0, after.core_ns - before.core_ns - cpu_ns - 2 * _NS_PER_TICK)
        return cls((after.at_ns - before.at_ns) / 1e9, cpu_ns / 1e9, others_ns / 1e9)


def process_tree(root: int) -> list[int]:
    """The process and all its descendants that live now."""
    parents: dict[int, int] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(fields[1])
    tree = [root]
    for pid in tree:
        tree.extend(child for child, parent in parents.items() if parent == pid)
    return tree


class Meter:
    """The clocks of some processes, and of the core they are pinned to."""

    def __init__(self, *pids: int, core: int) -> None:
        self._pids = pids
        self._core = f"cpu{core} "

    @classmethod
    def of_tree(cls, root: int, *, core: int) -> Meter:
        """The clocks of a process and all its descendants that live now."""
        return cls(*process_tree(root), core=core)

    def read(self) -> Reading:
        cpu_ns = sum(map(_scheduled_ns, self._pids))
        return Reading(
            time.monotonic_ns(), cpu_ns, sum(map(_ticked_ns, self._pids)), self._core_ns()
        )

    def memory_bytes(self) -> int:
        """The tree's own memory: pages that its processes share count once, mapped files not.

        Pages of a library are shared with whoever else runs: they come and go with strangers.
        """
        return sum(map(_own_bytes, self._pids))

    def _core_ns(self) -> int:
        for line in (_PROC / "stat").read_text().splitlines():
            if line.startswith(self._core):
                user, nice, system, _idle, _iowait, irq, softirq = map(int, line.split()[1:8])
                return (user + nice + system + irq + softirq) * _NS_PER_TICK
        return 0


def _scheduled_ns(pid: int) -> int:
    total = 0
    for task in (_PROC / str(pid) / "task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread ended between the listing and the reading
    return total


def _ticked_ns(pid: int) -> int:
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _NS_PER_TICK


def _own_bytes(pid: int) -> int:
    lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    return sum(
        int(line.split()[1]) * 1024
        for line in lines
        if line.startswith(("Pss_Anon:", "Pss_Shmem:"))
    )
