"""Reaper: process 1 inherits every orphan of its container; it takes the exit codes that nobody else will."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

logger = logging.getLogger("sandbox_router.app")

_INTERVAL_S: Final = 5.0
_PROC: Final = Path("/proc")


class Reaper:
    """Looks every few seconds for dead children that were dead at the last look too.

    Children of our own (workers, a kubeconfig's credential plugin) are taken within milliseconds by who started them, so what
    is left that long came here as an orphan.
    """

    def __init__(self, *, interval_s: float = _INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._dead: frozenset[int] = frozenset()

    async def run(self) -> None:
        """Runs until cancelled; does nothing where orphans go to somebody else."""
        if os.getpid() != 1:
            return
        while True:
            await asyncio.sleep(self._interval_s)
            self.look()

    def look(self) -> list[int]:
        """Returns the orphans whose exit codes were taken."""
        dead = frozenset(_dead_children())
        taken = [pid for pid in sorted(dead & self._dead) if _take(pid)]
        self._dead = dead - set(taken)
        return taken


def _dead_children() -> Iterator[int]:
    own = str(os.getpid())
    for directory in _PROC.iterdir():
        if not directory.name.isdecimal():
            continue
        try:
            # The program's name, in parentheses, may hold anything.
            state, parent, *_ = (directory / "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if state == "Z" and parent == own:
            yield int(directory.name)


def _take(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False
