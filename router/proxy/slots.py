"""Slots: how many requests one sandbox, or tunnels one client, may have open at a time."""

from __future__ import annotations

from router.errors import TooManyRequests


class Slots:
    """Counts open places by key. `limit` 0 means no limit, and then nothing is counted."""

    __slots__ = ("_limit", "_refusal", "_taken")

    def __init__(self, *, limit: int, refusal: str) -> None:
        self._limit = limit
        self._refusal = refusal
        self._taken: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Slots limit={self._limit} keys={len(self._taken)}>"

    def take(self, key: str) -> Slot | None:
        """Returns a place, to be given back; None when nothing is counted. Raises TooManyRequests."""
        if not self._limit:
            return None
        taken = self._taken.get(key, 0)
        if taken >= self._limit:
            raise TooManyRequests(self._refusal)
        self._taken[key] = taken + 1
        return Slot(self._taken, key)


class Slot:
    """One place that is taken."""

    __slots__ = ("_key", "_taken")

    def __init__(self, taken: dict[str, int], key: str) -> None:
        self._taken = taken
        self._key = key

    def give_back(self) -> None:
        """Frees the place; call it once."""
        left = self._taken[self._key] - 1
        if left:
            self._taken[self._key] = left
        else:
            del self._taken[self._key]
