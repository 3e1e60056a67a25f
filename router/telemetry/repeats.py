"""Repeats: bounds how often one message is written, and counts what it left out."""

from __future__ import annotations

import logging
from typing import Final

FIRST: Final = 10
"""So many records of one kind are written within a window; while it goes on, one in each further window."""
WINDOW_S: Final = 10.0
MAX_KINDS: Final = 256
"""Our own messages are static, a library's may hold what a stranger sent: beyond these, kinds share a place."""

Kind = tuple[str, int, str]


class Repeats:
    """Decides which records are written. Belongs to whoever holds the handler's lock; times are seconds of any one clock."""

    def __init__(
        self, *, first: int = FIRST, window_s: float = WINDOW_S, max_kinds: int = MAX_KINDS
    ) -> None:
        self._first = first
        self._window_s = window_s
        self._max_kinds = max_kinds
        self._windows: dict[Kind, _Window] = {}
        self.left_out = 0
        """Records that were counted instead of written, since the start."""

    def __repr__(self) -> str:
        return f"<Repeats kinds={len(self._windows)} left_out={self.left_out}>"

    def admits(self, record: logging.LogRecord, now: float) -> bool:
        """Returns True for a record to write; any other is counted."""
        kind: Kind = (record.name, record.levelno, str(record.msg))
        window = self._windows.get(kind)
        if window is None:
            if len(self._windows) >= self._max_kinds:
                kind = (record.name, record.levelno, "further messages")
                window = self._windows.get(kind)
            if window is None:
                window = self._windows[kind] = _Window(now, self._first)
        if window.allowed > 0:
            window.allowed -= 1
            return True
        window.left_out += 1
        self.left_out += 1
        return False

    def next_at(self) -> float | None:
        """Returns when the next count is due, None when nothing was left out."""
        due = [window.began_at for window in self._windows.values() if window.left_out]
        return min(due) + self._window_s if due else None

    def due(self, now: float) -> list[logging.LogRecord]:
        """Returns a record for each kind whose window has ended with some left out; they begin a new window with one."""
        return self._counts(now, now - self._window_s)

    def rest(self, now: float) -> list[logging.LogRecord]:
        """Returns a record for each kind of which some were left out: for the end."""
        return self._counts(now, now)

    def _counts(self, now: float, began_before: float) -> list[logging.LogRecord]:
        found = []
        for kind, window in list(self._windows.items()):
            if window.began_at > began_before:
                continue
            if window.left_out:
                found.append(_count(kind, window.left_out, max(1, round(now - window.began_at))))
                self._windows[kind] = _Window(now, 1)
            else:
                del self._windows[kind]
        return found


class _Window:
    """How one kind of record fares for a while."""

    def __init__(self, began_at: float, allowed: int) -> None:
        self.began_at = began_at
        self.allowed = allowed
        self.left_out = 0


def _count(kind: Kind, left_out: int, within_s: int) -> logging.LogRecord:
    name, level, message = kind
    text = f"{message} ... and {left_out} more in the last {within_s} s"
    record = logging.LogRecord(name, level, "", 0, text, None, None)
    record.fields = {"more": left_out, "within_s": within_s}
    return record
