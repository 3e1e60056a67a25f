"""Listing: a complete list that is still arriving, compared page by page with what is known."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Record = TypeVar("Record")
K = TypeVar("K", bound=Hashable)


class Listing(Generic[Record, K]):
    """Keeps only what the list changes, so that a new list of a large cluster costs little memory and its end little time.

    Nothing takes effect before commit(), which hands over the keys of what is unchanged and the records that are new or
    other than before. It must not be used on once it was committed.
    """

    def __init__(
        self,
        *,
        key: Callable[[Record], K],
        is_known: Callable[[Record], bool],
        commit: Callable[[set[K], list[Record]], None],
    ) -> None:
        self._key = key
        self._is_known = is_known
        self._commit = commit
        self._unchanged: set[K] = set()
        self._changed: list[Record] = []

    def __len__(self) -> int:
        return len(self._unchanged) + len(self._changed)

    def __repr__(self) -> str:
        return f"<Listing unchanged={len(self._unchanged)} changed={len(self._changed)}>"

    def add(self, record: Record) -> None:
        """Takes one listed object."""
        if self._is_known(record):
            self._unchanged.add(self._key(record))
        else:
            self._changed.append(record)

    def commit(self) -> None:
        """Puts the list in place of what was known."""
        self._commit(self._unchanged, self._changed)
