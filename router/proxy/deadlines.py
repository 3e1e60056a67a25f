"""Deadlines: one ticking clock for thousands of connections.

A timer per request costs about a microsecond to arm and cancel; here a deadline is a float that a connection overwrites,
and one task looks at all of them a few times a second. Deadlines are thus met late by up to one interval, never early.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger("sandbox_router.proxy")


class Timed(Protocol):
    """Something that must not last beyond `deadline_at` (seconds of time.monotonic)."""

    deadline_at: float

    def on_deadline(self, now: float) -> None:
        """Called while `deadline_at` has passed, each interval, until it is moved or the object is forgotten."""


class Deadlines:
    """Watches objects and calls the ones whose time is over."""

    def __init__(
        self, *, interval_s: float = 0.25, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._watched: set[Timed] = set()
        self._sweeps: list[Callable[[float], None]] = []

    def __repr__(self) -> str:
        return f"<Deadlines watched={len(self._watched)}>"

    def watch(self, timed: Timed) -> None:
        self._watched.add(timed)

    def forget(self, timed: Timed) -> None:
        self._watched.discard(timed)

    def sweep_with(self, sweep: Callable[[float], None]) -> None:
        """Adds a function that is called each interval with the current time."""
        self._sweeps.append(sweep)

    def check(self) -> None:
        """Calls everything that is due."""
        now = self._clock()
        for timed in [timed for timed in self._watched if timed.deadline_at <= now]:
            _call(timed.on_deadline, now)
        for sweep in self._sweeps:
            _call(sweep, now)

    async def run(self) -> None:
        """Checks for ever."""
        while True:
            await asyncio.sleep(self._interval_s)
            self.check()


def _call(handler: Callable[[float], None], now: float) -> None:
    """One faulty connection must not stop the clock of all others."""
    try:
        handler(now)
    except Exception:
        logger.exception("a deadline's handler failed")
