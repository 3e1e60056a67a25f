"""Slots: how many requests one sandbox, or tunnels one client, may have open at a time."""

from __future__ import annotations

from router.errors import TooManyRequests
from router.routing.elsewhere import ALONE, Elsewhere


class Slots:
    """Counts open places by key, those of the pod's other workers included. `limit` 0 means no limit, and then nothing is counted."""

    __slots__ = ("_elsewhere", "_limit", "_refusal", "_taken")

    def __init__(self, *, limit: int, refusal: str, elsewhere: Elsewhere = ALONE) -> None:
        self._limit = limit
        self._elsewhere = elsewhere
        self._refusal = refusal
        self._taken: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Slots limit={self._limit} keys={len(self._taken)}>"

    def take(self, key: str) -> Slot | None:
        """Returns a place, to be given back; None when nothing is counted. Raises TooManyRequests."""
        if not self._limit:
            return None
        taken = self._taken.get(key, 0)
        if taken + self._elsewhere.others(key) >= self._limit:
            raise TooManyRequests(self._refusal)
        self._taken[key] = taken + 1
        self._elsewhere.add(key, 1)
        return Slot(self._taken, key, self._elsewhere)


class Slot:
    """One place that is taken."""

    __slots__ = ("_elsewhere", "_key", "_taken")

    def __init__(self, taken: dict[str, int], key: str, elsewhere: Elsewhere) -> None:
        self._taken = taken
        self._elsewhere = elsewhere
        self._key = key

    def give_back(self) -> None:
        """Frees the place; call it once."""
        self._elsewhere.add(self._key, -1)
        left = self._taken[self._key] - 1
        if left:
            self._taken[self._key] = left
        else:
            del self._taken[self._key]
