"""Elsewhere: what other workers of this pod hold of a limit that all share."""

from __future__ import annotations

from typing import Final, Protocol


class Elsewhere(Protocol):
    """Counts by key that every worker sees. Cheap: asked for each request while its limit is on."""

    def others(self, key: str) -> int:
        """Returns how many the other workers hold; never fewer than they do, rarely more."""
        ...

    def add(self, key: str, change: int) -> None:
        """Notes that this worker holds so many more (or, below 0, fewer)."""


class Alone:
    """The Elsewhere of a process without siblings."""

    def __repr__(self) -> str:
        return "<Alone>"

    def others(self, key: str) -> int:
        """Returns 0."""
        return 0

    def add(self, key: str, change: int) -> None:
        """Notes nothing: nobody would read it."""


ALONE: Final = Alone()
