"""MultiMap: several values under one key, cheap where almost every key has one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class MultiMap(Generic[K, V]):
    """A dict that keeps a lone value as it is and a tuple only for several: 48 bytes less for each sandbox.

    Values must not be plain tuples (a NamedTuple is none).
    """

    def __init__(self) -> None:
        self._held: dict[K, V | tuple[V, ...]] = {}

    def __len__(self) -> int:
        """Returns the number of keys."""
        return len(self._held)

    def __iter__(self) -> Iterator[K]:
        return iter(self._held)

    def __repr__(self) -> str:
        several = sum(type(held) is tuple for held in self._held.values())
        return f"<MultiMap keys={len(self)} with_several={several}>"

    def get(self, key: K) -> tuple[V, ...]:
        """Returns the values in the order in which they came, () for none."""
        held = self._held.get(key)
        if held is None:
            return ()
        return held if type(held) is tuple else (held,)  # type: ignore[return-value]

    def is_only(self, key: K, value: V) -> bool:
        """Returns True when nothing but `value`, if anything, is under the key."""
        held = self._held.get(key)
        return held is None or held == value

    def add(self, key: K, value: V) -> None:
        """Adds a value; one that is there already stays where it is."""
        held = self._held.get(key)
        if held is None:
            self._held[key] = value
        elif value not in self.get(key):
            self._held[key] = (*self.get(key), value)

    def discard(self, key: K, value: V) -> None:
        """Takes a value out if it is there."""
        if self._held.get(key) is value:
            del self._held[key]
            return
        left = tuple(each for each in self.get(key) if each != value)
        if len(left) > 1:
            self._held[key] = left
        elif left:
            self._held[key] = left[0]
        else:
            self._held.pop(key, None)
