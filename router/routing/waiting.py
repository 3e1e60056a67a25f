"""The waiting room: who waits for which sandbox to change, within bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from router.errors import SandboxNotReady
from router.routing.elsewhere import ALONE, Elsewhere
from router.routing.endpoint import SandboxRef

ROOM_IS_FULL: Final = "the waiting room is full"
SHARE_IS_FULL: Final = "the namespace's share of the waiting room is full"
IS_FULL: Final = frozenset((ROOM_IS_FULL, SHARE_IS_FULL))
"""The reasons of a SandboxNotReady for which nobody waited."""
_WHOLE: Final = ""
"""Stands for the whole room where namespaces are counted; no namespace is named so."""


class Waiter:
    """One request's place in the waiting room; it ends by being woken or by cancel(), whichever comes first."""

    __slots__ = ("_room", "_wake", "ref")

    def __init__(self, room: WaitingRoom, ref: SandboxRef, wake: Callable[[], None]) -> None:
        self.ref = ref
        self._room = room
        self._wake: Callable[[], None] | None = wake

    def __repr__(self) -> str:
        return f"<Waiter for {self.ref} {'waiting' if self.is_waiting else 'ended'}>"

    @property
    def is_waiting(self) -> bool:
        """True until woken or cancelled."""
        return self._wake is not None

    def cancel(self) -> None:
        """Gives the place up without being woken; may be called at any time, any number of times."""
        if self._wake is not None:
            self._wake = None
            self._room._leave(self)

    def _fire(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()


class WaitingRoom:
    """Holds Waiters by the name they asked for, bounded as a whole and for each namespace."""

    def __init__(
        self, *, places: int, places_per_namespace: int, elsewhere: Elsewhere = ALONE
    ) -> None:
        """Zero places mean that nobody waits. The rooms of the pod's other workers count as well."""
        self._elsewhere = elsewhere
        self._places = places
        self._places_per_namespace = places_per_namespace
        self._occupied = 0
        self._by_ref: dict[SandboxRef, dict[Waiter, None]] = {}
        self._by_namespace: dict[str, int] = {}

    def __len__(self) -> int:
        return self._occupied

    def __repr__(self) -> str:
        return f"<WaitingRoom {self._occupied} of {self._places}>"

    def enter(self, ref: SandboxRef, wake: Callable[[], None]) -> Waiter:
        """Returns a place for a request that waits for `ref`. Raises SandboxNotReady when there is none."""
        in_namespace = self._by_namespace.get(ref.namespace, 0)
        elsewhere = self._elsewhere
        if self._occupied + elsewhere.others(_WHOLE) >= self._places:
            raise SandboxNotReady(reason=ROOM_IS_FULL)
        if in_namespace + elsewhere.others(ref.namespace) >= self._places_per_namespace:
            raise SandboxNotReady(reason=SHARE_IS_FULL)
        waiter = Waiter(self, ref, wake)
        self._by_ref.setdefault(ref, {})[waiter] = None
        self._by_namespace[ref.namespace] = in_namespace + 1
        self._occupied += 1
        elsewhere.add(_WHOLE, 1)
        elsewhere.add(ref.namespace, 1)
        return waiter

    def wake(self, refs: Iterable[SandboxRef]) -> None:
        """Wakes everybody who waits for one of `refs`, first come first; all have left before the first is called."""
        woken: list[Waiter] = []
        for ref in refs:
            waiters = self._by_ref.pop(ref, None)
            if waiters:
                woken.extend(waiters)
                self._release(ref.namespace, len(waiters))
        for waiter in woken:
            waiter._fire()

    def _leave(self, waiter: Waiter) -> None:
        # Woken by the same change as its canceller: it has left already, only the call is spared.
        waiters = self._by_ref.get(waiter.ref)
        if waiters is None or waiter not in waiters:
            return
        del waiters[waiter]
        if not waiters:
            del self._by_ref[waiter.ref]
        self._release(waiter.ref.namespace, 1)

    def _release(self, namespace: str, places: int) -> None:
        self._occupied -= places
        self._elsewhere.add(_WHOLE, -places)
        self._elsewhere.add(namespace, -places)
        left = self._by_namespace[namespace] - places
        if left:
            self._by_namespace[namespace] = left
        else:
            del self._by_namespace[namespace]
