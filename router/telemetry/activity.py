"""Activity: when this process saw each sandbox used last.

Times are monotonic seconds, so that a clock that is set changes nothing; all processes of one machine share that clock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from router.routing.endpoint import Endpoint, SandboxRef

MAX_SANDBOXES: Final = 100_000
"""Of which a process remembers when they were used (bytes for each: tests/unit/telemetry/test_activity.py)."""
_LOOKED_AT: Final = 8
_SLICE: Final = 250
"""Sandboxes that are told of at a stretch: a millisecond's work."""

Key: TypeAlias = str | SandboxRef
"""The Sandbox's own UID, which no other one ever has; where discovery knows none, its name."""

UnderWay: TypeAlias = tuple[Endpoint, float | None]
"""A request that was sent to a sandbox; for a tunnel with when anything crossed last but pings and pongs, else None."""


class Use(NamedTuple):
    """What is known of one sandbox's use."""

    namespace: str
    name: str
    uid: str
    """The Sandbox's UID, "" where discovery doesn't know it."""
    used_at: float
    open_requests: int
    open_tunnels: int
    awake_until: float
    """Until when somebody asked to keep it awake; 0.0 = nobody did."""


class Entry:
    """One sandbox: what a request or a wish leaves behind."""

    __slots__ = ("awake_until", "ref", "uid", "used_at")

    def __init__(self, endpoint: Endpoint, used_at: float) -> None:
        self.ref = endpoint.ref
        self.uid = endpoint.sandbox_uid
        self.used_at = used_at
        self.awake_until = 0.0


class _Open:
    """What is under way of one sandbox."""

    __slots__ = ("endpoint", "requests", "tunnels", "used_at")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.requests = 0
        self.tunnels = 0
        self.used_at = 0.0


class Moment:
    """Everything that one process knew at one moment, told in slices so that its requests need not wait."""

    def __init__(
        self,
        *,
        now: float,
        complete_since: float,
        entries: list[Entry],
        under_way: dict[Key, _Open],
    ) -> None:
        self.now = now
        self.complete_since = complete_since
        self._entries = entries
        self._under_way = under_way

    def __repr__(self) -> str:
        return f"<Moment sandboxes={len(self._entries)} in_use={len(self._under_way)}>"

    def slices(self) -> Iterator[list[Use]]:
        """Yields the uses, each sandbox once."""
        under_way = self._under_way.copy()
        for start in range(0, len(self._entries), _SLICE):
            yield [
                _use(entry, under_way.pop(entry.uid or entry.ref, None))
                for entry in self._entries[start : start + _SLICE]
            ]
        # Their first request goes on: nothing was left behind yet.
        yield [_use(Entry(each.endpoint, 0.0), each) for each in under_way.values()]


class Activity:
    """Remembers the latest use of each sandbox, within a bound. Belongs to the loop's thread.

    Over the bound it forgets first who is gone, then who of a few was unused longest, and moves `complete_since` on: of whoever
    it doesn't list, it knows that there was no use after that time, and nothing of the time before.
    """

    def __init__(
        self,
        *,
        is_gone: Callable[[SandboxRef, str], bool] = lambda ref, uid: False,
        max_sandboxes: int = MAX_SANDBOXES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_gone` says for certain that the Sandbox of this name and UID is no more: it may be forgotten for nothing."""
        self._clock = clock
        self._is_gone = is_gone
        self._max_sandboxes = max_sandboxes
        self.complete_since = clock()
        self.entries: dict[Key, Entry] = {}
        """Where the recorder notes each request without a call."""
        self._queue: deque[Key] = deque()
        """Every key of `entries` once, in the order in which they are looked at when there is no room."""

    def __repr__(self) -> str:
        return f"<Activity sandboxes={len(self.entries)}>"

    def first_used(self, endpoint: Endpoint, used_at: float) -> Entry:
        """Returns the new entry of a sandbox that has none."""
        if len(self.entries) >= self._max_sandboxes:
            self._forget_one()
        key = endpoint.sandbox_uid or endpoint.ref
        entry = self.entries[key] = Entry(endpoint, used_at)
        self._queue.append(key)
        return entry

    def keep_awake(self, endpoint: Endpoint, seconds: float) -> float:
        """Counts as activity of the sandbox for so long. Returns for how many seconds it is kept awake: a longer wish stands."""
        now = self._clock()
        entry = self.entries.get(endpoint.sandbox_uid or endpoint.ref)
        if entry is None:
            entry = self.first_used(endpoint, now)
        entry.awake_until = max(entry.awake_until, now + seconds)
        return entry.awake_until - now

    def moment(
        self,
        under_way: Iterable[UnderWay],
        *,
        namespace: str | None = None,
        name: str | None = None,
    ) -> Moment:
        """Returns what is known now, of one namespace or name alone where that is asked."""
        now = self._clock()
        entries = [
            entry
            for entry in self.entries.values()
            if (namespace is None or entry.ref.namespace == namespace)
            and (name is None or entry.ref.name == name)
        ]
        found: dict[Key, _Open] = {}
        for endpoint, moved_at in under_way:
            ref = endpoint.ref
            if namespace not in (None, ref.namespace) or name not in (None, ref.name):
                continue
            key = endpoint.sandbox_uid or ref
            each = found.get(key)
            if each is None:
                each = found[key] = _Open(endpoint)
            if moved_at is None:
                each.requests += 1
                each.used_at = now
            else:
                each.tunnels += 1
                each.used_at = max(each.used_at, moved_at)
        return Moment(now=now, complete_since=self.complete_since, entries=entries, under_way=found)

    def _forget_one(self) -> None:
        """Makes room for one. Each step is bounded: it runs within a request."""
        queue = self._queue
        victim: Key | None = None
        unused_since = 0.0
        for _ in range(min(_LOOKED_AT, len(queue))):
            key = queue.popleft()
            entry = self.entries[key]
            if entry.uid and self._is_gone(entry.ref, entry.uid):
                del self.entries[key]
                if victim is not None:
                    queue.append(victim)
                return
            at = max(entry.used_at, entry.awake_until)
            if victim is None or at < unused_since:
                if victim is not None:
                    queue.append(victim)
                victim, unused_since = key, at
            else:
                queue.append(key)
        if victim is not None:
            del self.entries[victim]
            # Perhaps a time to come, when all of them were to be kept awake: until then nobody counts as idle.
            self.complete_since = max(self.complete_since, unused_since)


def _use(entry: Entry, under_way: _Open | None) -> Use:
    if under_way is None:
        return Use(*entry.ref, entry.uid, entry.used_at, 0, 0, entry.awake_until)
    return Use(
        *entry.ref,
        entry.uid,
        max(entry.used_at, under_way.used_at),
        under_way.requests,
        under_way.tunnels,
        entry.awake_until,
    )
