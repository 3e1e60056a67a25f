"""SettledHeap: keeps a large table out of the garbage collector's way."""

from __future__ import annotations

import ctypes
import gc

OBJECTS_BETWEEN = 50_000


class SettledHeap:
    """Freezes the heap once much has been added to it that will stay.

    A full collection walks everything that is alive: a quarter of a second for 100,000 sandboxes, in which no byte moves. The
    table has no cycles, so it needs none. Frozen objects are freed by their reference counts as ever.
    """

    def __init__(self, *, objects_between: int = OBJECTS_BETWEEN) -> None:
        self._objects_between = objects_between
        self._added = 0
        self.freezes = 0

    def __repr__(self) -> str:
        return f"<SettledHeap added={self._added} freezes={self.freezes}>"

    def added(self, objects: int) -> None:
        """Notes that about so many long-lived objects were made."""
        self._added += objects
        if self._added >= self._objects_between:
            self.settle()

    def settle(self) -> None:
        """Freezes what is there now: call it when a lot has just been added."""
        self._added = 0
        self.freezes += 1
        # The young generations first: what is garbage by now must not be kept.
        gc.collect(1)
        gc.freeze()
        _give_pages_back()


def _give_pages_back() -> None:
    """Hands what large buffers left behind back to the system, where the C library can (glibc): 10 MB after a list of 100,000."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
