"""StreamedList: a complete list that arrives as the first events of a watch."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

Record = TypeVar("Record")
Taken = TypeVar("Taken", contravariant=True)


class List(Protocol[Taken]):
    """Where the objects of one complete list go; nothing takes effect before commit()."""

    def add(self, record: Taken) -> None:
        """Takes one object."""

    def commit(self) -> None:
        """Puts the list in place of all that was known."""

    def __len__(self) -> int:
        """Returns how many objects were added."""
        ...


class Store(Protocol[Taken]):
    """What a Reflector fills. Calls come in the order of the server's events and never overlap."""

    def begin_list(self) -> List[Taken]:
        """Returns where a new list goes. One that is never committed is dropped."""
        ...

    def upsert(self, record: Taken) -> None:
        """Takes an added or modified object."""

    def remove(self, record: Taken) -> None:
        """Takes a deleted object, as it was last."""


class StreamedList(Generic[Record]):
    """Collects the objects until the server marks the list's end; nothing takes effect before commit().

    What changes while the list is on its way comes in between as events, which count after it.
    """

    def __init__(self, store: Store[Record]) -> None:
        self._store = store
        self._listing: List[Record] = store.begin_list()
        self._later: list[tuple[str, Record]] = []

    def __len__(self) -> int:
        return len(self._listing)

    def __repr__(self) -> str:
        return f"<StreamedList listed={len(self)} changed_meanwhile={len(self._later)}>"

    def take(self, kind: str, record: Record) -> None:
        """Takes one event."""
        if kind == "ADDED":
            self._listing.add(record)
        if kind != "ADDED" or self._later:
            # An object that comes after a change may be one that was there all along, or a new one.
            self._later.append((kind, record))

    def commit(self) -> None:
        """Puts the list in place of all that was known."""
        self._listing.commit()
        for kind, record in self._later:
            apply_event(self._store, kind, record)


def apply_event(store: Store[Record], kind: str, record: Record) -> None:
    """Hands one event to the store; kinds of events that aren't known yet change nothing."""
    if kind == "DELETED":
        store.remove(record)
    elif kind in ("ADDED", "MODIFIED"):
        store.upsert(record)
