"""Backoff: how long to wait before trying the API server again."""

from __future__ import annotations

import random
from collections.abc import Callable

RETRY_AFTER_LIMIT_S = 120.0


class Backoff:
    """Grows from failure to failure, with jitter, so that many routers don't come back at the same moment.

    The first wait is anything between none and `initial_s`: a cut watch resumes at once, yet not everybody's at once.
    `uniform` is random.uniform.
    """

    def __init__(
        self,
        *,
        initial_s: float,
        limit_s: float,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._initial_s = initial_s
        self._limit_s = limit_s
        self._uniform = uniform
        self.failures = 0
        """In a row, since the last reset()."""

    def __repr__(self) -> str:
        return f"<Backoff failures={self.failures}>"

    def reset(self) -> None:
        """Notes that it works again."""
        self.failures = 0

    def next_s(self, *, at_least_s: float = 0.0) -> float:
        """Returns the seconds to wait after one more failure; `at_least_s` is what the server asked for (Retry-After)."""
        self.failures += 1
        ceiling_s = min(self._limit_s, self._initial_s * 2.0 ** min(self.failures - 1, 16))
        floor_s = ceiling_s / 2 if self.failures > 1 else 0.0
        wait_s = self._uniform(floor_s, ceiling_s)
        asked_s = min(at_least_s, RETRY_AFTER_LIMIT_S)
        # Everybody was told the same number: spread what comes after it.
        return max(wait_s, asked_s + self._uniform(0.0, self._initial_s) if asked_s else 0.0)
