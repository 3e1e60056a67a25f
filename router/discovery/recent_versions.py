"""RecentVersions: which events are older than one that was seen already."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

CAPACITY = 8_192
"""The most recent changes remembered: what comes late comes soon. Keeping every object's version would cost 6 MB for 100,000."""


class RecentVersions(Generic[K]):
    """Remembers the version of the latest event under each key. 0 stands for a version that is no number: never too old."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._latest: OrderedDict[K, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._latest)

    def __repr__(self) -> str:
        return f"<RecentVersions {len(self._latest)} of {self._capacity}>"

    def latest(self, key: K) -> int:
        """Returns the latest version seen, 0 when it is not remembered."""
        return self._latest.get(key, 0)

    def is_late(self, key: K, version: int) -> bool:
        """Returns True for an event from before the latest one."""
        return 0 < version < self._latest.get(key, 0)

    def note(self, key: K, version: int) -> None:
        """Notes an event."""
        self._latest.pop(key, None)
        self._latest[key] = version
        if len(self._latest) > self._capacity:
            self._latest.popitem(last=False)

    def clear(self) -> None:
        """Forgets everything: a complete list outranks the events before it."""
        self._latest.clear()
