"""Tombstones: the objects that are gone, so that an event of theirs that comes late revives nothing."""

from __future__ import annotations

from collections import OrderedDict

CAPACITY = 16_384
"""The most recent departures remembered: minutes of a busy cluster, 3 MB at most."""


class Tombstones:
    """Remembers UIDs with the version at which they went. UIDs are never used twice.

    A label selector makes an object that stops matching look deleted, and it may match again: so a later version is alive.
    """

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._gone: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._gone)

    def __contains__(self, uid: str) -> bool:
        return uid in self._gone

    def __repr__(self) -> str:
        return f"<Tombstones {len(self._gone)}>"

    def add(self, uid: str, version: int) -> None:
        """Notes that the object went at this version, the latest known one when it went unseen."""
        version = max(version, self._gone.pop(uid, 0))
        self._gone[uid] = version
        if len(self._gone) > self._capacity:
            self._gone.popitem(last=False)

    def discard(self, uid: str) -> None:
        """Forgets one that a complete list or a later event shows alive."""
        self._gone.pop(uid, None)

    def is_late(self, uid: str, version: int) -> bool:
        """Returns True for an event from before the object went; versions that aren't numbers (0) count as late."""
        gone_at = self._gone.get(uid)
        return gone_at is not None and version <= gone_at
