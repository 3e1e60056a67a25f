"""Door: who gets a place when the house is full, and whose place it is."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection
from typing import Final

from router.proxy.client_connection import ClientConnection
from router.proxy.closing_connection import DISCARDING, HEAD, IDLE
from router.proxy.places import Places
from router.proxy.ports import Newcomer, Telemetry

_MAX_EXTRA: Final = 64
"""Connections beyond the limit that may turn out to be a load balancer's check."""
_MAX_OUTSIDE: Final = 1024
"""Connections without a place that may be open: beyond it nobody is told anything."""
_SEARCH_INTERVAL_S: Final = 0.05
"""A search looks at every connection; floods must not have one for each newcomer."""
_FRESH_S: Final = 0.5
"""Who came so short a time ago is about to ask, most likely; only a crowd is not given that time."""
_CROWD: Final = 8
"""More than this part of the house is a crowd."""
_STALLED_S: Final = 1.0
_TRIES: Final = 16


class Door:
    """Lets newcomers in. In a full house these give way to them, in this order:

    1. who has never asked for anything, the first to come first; a TLS client before its hello too, and one that only began a head
    2. handshakes that have gone on for a second
    3. who has been idle longest
    4. who has begun another head, or sends a refused request's body, and takes longer than a second over it

    When nobody can, a newcomer waits outside for a moment: it may be a load balancer that checks, and that is answered.
    """

    def __init__(
        self,
        *,
        places: Places,
        inside: Collection[ClientConnection],
        first_request_s: float,
        telemetry: Telemetry,
    ) -> None:
        """`inside` are the connections that may be given up while idle; whoever asks for nothing within `first_request_s` is closed."""
        self._places = places
        self._inside = inside
        self._first_request_s = first_request_s
        self._telemetry = telemetry
        self._present = 0
        """All that have come and not left, with a place or without."""
        self._silent: OrderedDict[Newcomer, float] = OrderedDict()
        """Who had never asked when that was looked at last, and since when each is here."""
        self._shaking: OrderedDict[Newcomer, float] = OrderedDict()
        """Handshakes under way."""
        self._extra: OrderedDict[Newcomer, None] = OrderedDict()
        """Who waits outside."""
        self._idlest: list[tuple[float, int, ClientConnection]] = []
        """Who was idle when that was looked at last, the first to go at the end."""
        self._stalled: list[tuple[float, int, ClientConnection]] = []
        self._next_search = 0.0

    def __repr__(self) -> str:
        return f"<Door {self._places!r} outside={len(self._extra)}>"

    def enter(self, newcomer: Newcomer, now: float, *, extra_s: float) -> None:
        """Gives a newcomer a place or, for `extra_s`, has it wait outside."""
        self._present += 1
        newcomer.deadline_at = now + self._first_request_s
        if self._make_place(now):
            self._seat(newcomer)
            self._silent[newcomer] = now
        elif self._present - self._places.taken > _MAX_OUTSIDE:
            self._telemetry.connection_refused()
            newcomer.abort()
        else:
            newcomer.is_extra = True
            newcomer.deadline_at = now + extra_s
            if len(self._extra) >= _MAX_EXTRA:
                self._turn_one_away()
            self._extra[newcomer] = None

    def admit(self, newcomer: Newcomer) -> bool:
        """Returns True when who waited outside has a place now: it asks, and one may have become free."""
        if not self._make_place(time.monotonic()):
            return False
        self._seat(newcomer)
        newcomer.is_extra = False
        self._extra.pop(newcomer, None)
        return True

    def greeted(self, handshake: Newcomer, now: float) -> None:
        """Notes that a TLS client has said its hello."""
        if self._silent.pop(handshake, None) is not None:
            self._shaking[handshake] = now

    def turned_away(self, newcomer: Newcomer) -> None:
        """Notes that who waited outside is told that there is no place."""
        self._extra.pop(newcomer, None)
        self._telemetry.connection_refused()

    def left(self, newcomer: Newcomer) -> None:
        """Notes that a connection has ended."""
        self._present -= 1
        if newcomer.has_place:
            self._free(newcomer)
        self._silent.pop(newcomer, None)
        self._shaking.pop(newcomer, None)
        self._extra.pop(newcomer, None)

    def look(self) -> None:
        """Forgets about the silence of those who have asked since, and tells other workers who could be given up; now and then is enough."""
        if len(self._silent) > self._places.limit // _CROWD:
            silent = [item for item in self._silent.items() if not item[0].has_asked]
            self._silent = OrderedDict(silent)
        if self._places.is_shared:
            self._places.offer(sum(client.state is IDLE for client in self._inside))

    def give_back(self, now: float) -> None:
        """Gives up what other workers of the pod took on this one's account."""
        for _ in range(self._places.owed()):
            if not self._give_up_one(now):
                break

    def _seat(self, newcomer: Newcomer) -> None:
        newcomer.has_place = True
        self._places.take()

    def _free(self, newcomer: Newcomer) -> None:
        newcomer.has_place = False
        self._places.free()

    def _make_place(self, now: float) -> bool:
        places = self._places
        return not places.is_full() or self._give_up_one(now) or places.may_borrow()

    def _turn_one_away(self) -> None:
        """Ends the oldest of those outside that says nothing, or the oldest of all."""
        for oldest in list(self._extra):
            if oldest.is_silent():
                break
        else:
            oldest = next(iter(self._extra))
        del self._extra[oldest]
        if not oldest.has_asked:
            oldest.turn_away()
        elif not oldest.give_way():
            oldest.abort()

    # --- who gives way ---

    def _give_up_one(self, now: float) -> bool:
        """Closes the connection that is missed least, and frees its place at once. Returns False when every one carries something."""
        return (
            self._give_up_silent(before=now - _FRESH_S)
            or self._give_up_handshake(before=now - _STALLED_S)
            or self._give_up_idle(now)
            or self._give_up_silent(before=now)
        )

    def _give_up_silent(self, *, before: float) -> bool:
        silent = self._silent
        if len(silent) > self._places.limit // _CROWD:
            before = float("inf")
        for _ in range(_TRIES):
            while silent:
                newcomer, came_at = silent.popitem(last=False)
                if newcomer.has_place and not newcomer.has_asked:
                    break
            else:
                return False
            if came_at <= before and newcomer.give_way():
                self._free(newcomer)
                return True
            silent[newcomer] = came_at
            if came_at > before:
                silent.move_to_end(newcomer, last=False)
                return False
        return False

    def _give_up_handshake(self, *, before: float) -> bool:
        if not self._shaking:
            return False
        handshake = next(iter(self._shaking))
        if self._shaking[handshake] > before:
            return False
        del self._shaking[handshake]
        self._free(handshake)
        handshake.abort()
        return True

    def _give_up_idle(self, now: float) -> bool:
        for search in (False, True):
            if search:
                if now < self._next_search:
                    break
                self._next_search = now + _SEARCH_INTERVAL_S
                self._search(now)
            # What was found stays in order: whoever is idle since then comes behind.
            while self._idlest:
                since, _, client = self._idlest.pop()
                if client.idle_since == since and client.state is IDLE and self._closes(client):
                    return True
        while self._stalled:
            deadline_at, _, client = self._stalled.pop()
            if client.deadline_at == deadline_at and self._closes(client):
                return True
        return False

    def _closes(self, client: ClientConnection) -> bool:
        if not (client.has_place and client.give_way()):
            return False
        self._free(client)
        return True

    def _search(self, now: float) -> None:
        with_place = [client for client in self._inside if client.has_place]
        self._idlest = sorted(
            (
                (client.idle_since, id(client), client)
                for client in with_place
                if client.state is IDLE and client.idle_since
            ),
            reverse=True,
        )
        since = now + self._first_request_s - _STALLED_S
        self._stalled = sorted(
            (
                (client.deadline_at, id(client), client)
                for client in with_place
                if client.deadline_at <= since
                and (client.state is DISCARDING or (client.state is HEAD and client.idle_since))
            ),
            reverse=True,
        )
