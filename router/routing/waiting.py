"""The waiting room: who waits for which sandbox to change, within bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeVar

from router.errors import SandboxNotReady
from router.routing.elsewhere import ALONE, Elsewhere
from router.routing.endpoint import SandboxRef

K = TypeVar("K", bound=Hashable)

ROOM_IS_FULL: Final = "the waiting room is full"
SHARE_IS_FULL: Final = "the namespace's share of the waiting room is full"
CALLERS_SHARE_IS_FULL: Final = "the caller's share of the waiting room is full"
IS_FULL: Final = frozenset((ROOM_IS_FULL, SHARE_IS_FULL, CALLERS_SHARE_IS_FULL))
"""The reasons of a SandboxNotReady for which nobody waited."""
_WHOLE: Final = ""
"""Stands for the whole room where namespaces are counted; no namespace is named so."""


class Waiter:
    """One request's place in the waiting room; it ends by being woken or by cancel(), whichever comes first."""

    __slots__ = ("_room", "_wake", "caller", "ref")

    def __init__(
        self, room: WaitingRoom, ref: SandboxRef, wake: Callable[[], None], caller: Hashable
    ) -> None:
        self.ref = ref
        self.caller = caller
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
    """Holds Waiters by the name they asked for, bounded as a whole, for each namespace and for each caller."""

    def __init__(
        self,
        *,
        places: int,
        places_per_namespace: int,
        places_per_caller: int | None = None,
        elsewhere: Elsewhere = ALONE,
    ) -> None:
        """Zero places mean that nobody waits; `places_per_caller` None, that one caller may take a namespace's whole share.

        The rooms of the pod's other workers count as well.
        """
        self._elsewhere = elsewhere
        self._places = places
        self._places_per_namespace = places_per_namespace
        self._places_per_caller = (
            places_per_namespace if places_per_caller is None else places_per_caller
        )
        self._occupied = 0
        self._by_ref: dict[SandboxRef, dict[Waiter, None]] = {}
        self._by_namespace: Counter[str] = Counter()
        self._by_caller: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        return self._occupied

    def __repr__(self) -> str:
        return f"<WaitingRoom {self._occupied} of {self._places}>"

    def enter(self, ref: SandboxRef, wake: Callable[[], None], caller: Hashable = None) -> Waiter:
        """Returns a place for a request of `caller` that waits for `ref`. Raises SandboxNotReady when there is none.

        `caller` is whatever tells callers apart; None is nobody in particular, and has no share.
        """
        elsewhere = self._elsewhere
        if self._occupied + elsewhere.others(_WHOLE) >= self._places:
            raise SandboxNotReady(reason=ROOM_IS_FULL)
        in_namespace = self._by_namespace[ref.namespace] + elsewhere.others(ref.namespace)
        if in_namespace >= self._places_per_namespace:
            raise SandboxNotReady(reason=SHARE_IS_FULL)
        if caller is not None:
            of_caller = self._by_caller[caller] + elsewhere.others(_shared_key(caller))
            if of_caller >= self._places_per_caller:
                raise SandboxNotReady(reason=CALLERS_SHARE_IS_FULL)
            self._by_caller[caller] += 1
            elsewhere.add(_shared_key(caller), 1)
        waiter = Waiter(self, ref, wake, caller)
        self._by_ref.setdefault(ref, {})[waiter] = None
        self._by_namespace[ref.namespace] += 1
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
        for waiter in woken:
            self._release(waiter)
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
        self._release(waiter)

    def _release(self, waiter: Waiter) -> None:
        namespace, caller = waiter.ref.namespace, waiter.caller
        self._occupied -= 1
        self._elsewhere.add(_WHOLE, -1)
        self._elsewhere.add(namespace, -1)
        _count_down(self._by_namespace, namespace)
        if caller is not None:
            self._elsewhere.add(_shared_key(caller), -1)
            _count_down(self._by_caller, caller)


def _shared_key(caller: Hashable) -> str:
    """Returns what a caller is counted under among the workers; no namespace is named so."""
    return f" {caller!r}"


def _count_down(counts: Counter[K], key: K) -> None:
    """Takes one away; what counts nothing is not kept."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
