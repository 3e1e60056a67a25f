"""Freshness: what a table of sandboxes knows of itself: whether it is whole, and how old."""

from __future__ import annotations

import time
from collections.abc import Callable


class Freshness:
    """Discovery writes it; requests and probes read it. Times in seconds of `clock`."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.last_synced_at: float | None = None
        """Clock time at which discovery last heard from its source; None before the first listing."""
        self._clock = clock
        self._awaited: frozenset[str] | None = frozenset()

    def __repr__(self) -> str:
        return f"<Freshness complete={self.is_complete()} age={self.age_s()}>"

    def set_awaited(self, namespaces: frozenset[str] | None) -> None:
        """Notes the namespaces whose first table discovery still awaits; None means all of them."""
        self._awaited = namespaces

    def is_complete(self, namespace: str | None = None) -> bool:
        """Returns True once the first whole table of the namespace (None: of all of them) was in.

        Before that nothing is known of a name that isn't found: it may exist all the same.
        """
        if self._awaited is None:
            return False
        return not self._awaited if namespace is None else namespace not in self._awaited

    def set_synced(self, at: float | None = None) -> None:
        """Notes that the table is as its source was at clock time `at` (default: now)."""
        self.last_synced_at = self._clock() if at is None else at

    def age_s(self) -> float | None:
        """Returns the seconds since discovery last heard from its source; None before the first listing."""
        if self.last_synced_at is None:
            return None
        return max(0.0, self._clock() - self.last_synced_at)

    def is_stale(self, max_staleness_s: float) -> bool:
        """Returns True when the table is older than that; 0 means that no age is too old."""
        if max_staleness_s <= 0:
            return False
        age_s = self.age_s()
        return age_s is None or age_s > max_staleness_s
