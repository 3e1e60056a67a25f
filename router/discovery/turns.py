"""Turns: long work in pieces of a millisecond or two, so that requests are served in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

TURN_S = 0.0015
SHORTEST_REST_S = 0.001
"""What an event loop's timers can tell apart: a shorter rest is one round of the loop, of which a request takes several."""
LONGEST_REST_S = 0.005


class Turns:
    """Measures work between begin() and end() and tells when it is the others' turn."""

    def __init__(
        self, *, turn_s: float = TURN_S, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._turn_s = turn_s
        self._clock = clock
        self._worked_s = 0.0
        self._began_at = 0.0

    def __repr__(self) -> str:
        return f"<Turns worked={self._worked_s * 1e3:.2f}ms>"

    def begin(self) -> None:
        """Notes that work goes on."""
        self._began_at = self._clock()

    def end(self) -> None:
        """Notes that work pauses, for example to wait for bytes."""
        self._worked_s += self._clock() - self._began_at

    @property
    def is_over(self) -> bool:
        """True when the work since the last rest fills a turn."""
        return self._worked_s + self._clock() - self._began_at >= self._turn_s

    async def rest(self, share: float = 0.0) -> None:
        """Lets the loop go on: one round of it, or about `share` times as long as the work took."""
        self.end()
        rest_s = min(LONGEST_REST_S, max(SHORTEST_REST_S, self._worked_s * share)) if share else 0.0
        self._worked_s = 0.0
        await asyncio.sleep(rest_s)
        self.begin()
