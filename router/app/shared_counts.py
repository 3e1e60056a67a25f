"""Shared counts: one piece of memory in which every worker shows what it holds of the pod's limits.

Each worker writes its own region alone and reads those of the others, so there is no lock, and nothing that a worker which
dies could leave half done: the supervisor empties its region. Keys are hashed into two rows of cells; the lower of the two
sums counts. So a key may look fuller than it is only where it shares both cells with others: with a thousand keys in use one
key in a thousand does. Two workers that decide at the same instant may go one over a limit.
"""

from __future__ import annotations

import mmap
import os
import secrets
import tempfile
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from router.routing.elsewhere import ALONE, Elsewhere

REQUESTS: Final = "requests"
TUNNELS: Final = "tunnels"
WAITING: Final = "waiting"
CONNECTIONS: Final = "connections"
CONNECTS: Final = "connects"
_KINDS: Final = (REQUESTS, TUNNELS, WAITING, CONNECTIONS, CONNECTS)

_CELLS: Final = 32_768
"""Of each row; a power of two."""
_ROWS: Final = 2
_CELL_BYTES: Final = 4
_KNOWN: Final = 4096
_TABLE: Final = _CELLS * _ROWS
"""Cells of one kind in one worker's region."""
_REGION: Final = _TABLE * len(_KINDS)


@dataclass(frozen=True, slots=True)
class Share:
    """How a worker joins: the memory's descriptor, which region is its own, of how many."""

    fd: int
    number: int
    workers: int
    secret: bytes
    """Keys the hash, so that nobody can choose names that share another's cells."""


@dataclass(frozen=True, slots=True)
class PodCounts:
    """What other workers hold, for each limit of the pod."""

    requests: Elsewhere = ALONE
    tunnels: Elsewhere = ALONE
    waiting: Elsewhere = ALONE
    connections: Elsewhere = ALONE
    connects: Elsewhere = ALONE


ALL_ALONE: Final = PodCounts()
"""For a worker without siblings."""


def join(share: Share) -> PodCounts:
    """Returns a worker's view, which lives as long as the process."""
    counts = SharedCounts(fd=share.fd, workers=share.workers)
    return PodCounts(*(counts.of(kind, share) for kind in _KINDS))


class SharedCounts:
    """The memory, as the supervisor or a worker has it mapped."""

    def __init__(self, *, fd: int, workers: int) -> None:
        self._fd = fd
        self._workers = workers
        self._memory = mmap.mmap(fd, workers * _REGION * _CELL_BYTES)
        self._cells = memoryview(self._memory).cast("I")

    def __repr__(self) -> str:
        return f"<SharedCounts workers={self._workers} bytes={len(self._memory)}>"

    @classmethod
    def create(cls, *, workers: int) -> SharedCounts:
        """Returns new memory for so many workers, all counts 0; a page takes room once it is written to."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("sandbox-router-limits")
        else:  # not Linux
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        os.ftruncate(fd, workers * _REGION * _CELL_BYTES)
        return cls(fd=fd, workers=workers)

    def share(self, number: int, secret: bytes) -> Share:
        """Returns what the worker in this place needs to join."""
        return Share(self._fd, number, self._workers, secret)

    def clear(self, number: int) -> None:
        """Empties the region of a worker that has died: what it held has ended with it."""
        size = _REGION * _CELL_BYTES
        self._memory[number * size : (number + 1) * size] = bytes(size)

    def of(self, kind: str, share: Share) -> KeyedCounts:
        """Returns one worker's way to one kind of counts."""
        return KeyedCounts(self._cells, _KINDS.index(kind) * _TABLE, share)

    def close(self) -> None:
        self._cells.release()
        self._memory.close()
        os.close(self._fd)


class KeyedCounts:
    """A routing.elsewhere.Elsewhere over the shared memory."""

    __slots__ = ("_cells", "_known", "_other_tables", "_own_table", "_secret")

    def __init__(self, cells: memoryview, offset: int, share: Share) -> None:
        self._cells = cells
        self._secret = share.secret
        self._known: dict[str, tuple[int, int]] = {}
        """The places of keys asked for lately: a hash costs more than all the rest."""
        tables = [number * _REGION + offset for number in range(share.workers)]
        self._own_table = tables.pop(share.number)
        self._other_tables = tuple(tables)

    def __repr__(self) -> str:
        return f"<KeyedCounts beside={len(self._other_tables)}>"

    def others(self, key: str) -> int:
        """Returns how many the other workers hold; never fewer than they do, rarely more."""
        first, second = self._places(key)
        cells = self._cells
        return min(
            sum(cells[table + first] for table in self._other_tables),
            sum(cells[table + second] for table in self._other_tables),
        )

    def add(self, key: str, change: int) -> None:
        """Notes that this worker holds so many more (or, below 0, fewer)."""
        for place in self._places(key):
            self._cells[self._own_table + place] += change

    def _places(self, key: str) -> tuple[int, int]:
        places = self._known.get(key)
        if places is None:
            digest = blake2b(key.encode(), digest_size=8, key=self._secret).digest()
            number = int.from_bytes(digest, "big")
            places = number % _CELLS, _CELLS + (number >> 32) % _CELLS
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[key] = places
        return places


def new_secret() -> bytes:
    """Returns a key for the hash of one pod's counts."""
    return secrets.token_bytes(16)
