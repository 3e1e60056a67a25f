"""Budget: what all connections of a process hold in memory together, and who waits or ends when that is too much.

    up to the limit     nobody notices
    over the limit      who reads much waits for its turn, in order; a turn is given while there is room for what it may bring
    no room left        who has held without moving for a while ends, so that those who wait get their turn
    half as much again  who has held longest without moving ends at once

Small messages never wait. Heads that come in pieces can't be helped by waiting: over their share the oldest are refused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

logger = logging.getLogger("sandbox_router.proxy")

NO_MEMORY: Final = "The router has no memory left for another large message."
"""The detail of the 503."""
HIGH_WATER_BYTES: Final = 16_384
"""What a transport may hold unsent before its source waits; less than this isn't counted."""
READ_BYTES: Final = 262_144
"""The most that one read brings."""
_ROOM: Final = 1.25
_CEILING: Final = 1.5
_HEADS: Final = 0.5
"""Parts of the limit: up to where turns are given, where the longest holders end at once, and all unfinished heads."""
STUCK_S: Final = 5.0
"""Who has not moved for so long ends when others need the room."""
_TURNS_AT_ONCE: Final = 256
_NO_ROOM_S: Final = 0.05
_LOOK_INTERVAL_S: Final = 1.0
_TELL_INTERVAL_S: Final = 60.0


class Holder(Protocol):
    """A connection, as the budget sees it."""

    def held_bytes(self) -> int:
        """Returns how much it holds at the moment, unfinished heads apart."""
        ...

    def may_read(self) -> None:
        """It has its turn: reads on, unless something else says to wait."""

    def make_room(self) -> None:
        """Ends, for others need the memory."""


class _Held:
    """What one connection holds, and since when (monotonic seconds) that hasn't become less."""

    __slots__ = ("since", "size")

    def __init__(self, size: int, since: float) -> None:
        self.size = size
        self.since = since


class Budget:
    """Adds up what connections hold. `limit_bytes` is this process's share."""

    def __init__(self, *, limit_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        """Unsent bytes, bytes before their turn, and unfinished heads, of all connections."""
        self.is_tight = False
        """True while more is held than the limit: who reads much waits for its turn."""
        self.ended = 0
        """Connections that were ended to make room, since the start."""
        self._clock = clock
        self._holders: dict[Holder, _Held] = {}
        """The one that has moved least lately first."""
        self._heads: dict[Holder, int] = {}
        """Unfinished heads, the oldest first."""
        self._head_bytes = 0
        self._waiting: dict[Holder, None] = {}
        self._is_scheduled = False
        self._next_look = 0.0
        self._next_tell = 0.0
        self._next_tell_ended = 0.0

    def __repr__(self) -> str:
        return (
            f"<Budget {self.held_bytes} of {self.limit_bytes} bytes holders={len(self._holders)} "
            f"heads={len(self._heads)} waiting={len(self._waiting)}>"
        )

    # --- what connections tell ---

    def note(self, holder: Holder, size: int) -> None:
        """Notes how much a connection holds now, its unfinished head apart."""
        held = self._holders.get(holder)
        if held is None:
            if not size:
                return
            self._holders[holder] = _Held(size, self._clock())
            change = size
        else:
            change = size - held.size
            if change < 0:
                del self._holders[holder]
                if size:
                    self._holders[holder] = _Held(size, self._clock())
            else:
                held.size = size
        self._changes(change)

    def note_head(self, holder: Holder, size: int) -> None:
        """Notes how much of an unfinished head there is; 0 once it is whole or refused."""
        change = size - self._heads.get(holder, 0)
        if size:
            self._heads[holder] = size
        else:
            self._heads.pop(holder, None)
        self._head_bytes += change
        self._changes(change)

    def wait(self, holder: Holder) -> None:
        """Has a connection that doesn't read at the moment wait for its turn."""
        self._waiting[holder] = None
        self._schedule(0.0)

    def is_waiting(self, holder: Holder) -> bool:
        return holder in self._waiting

    def forget(self, holder: Holder) -> None:
        """Notes that a connection is gone, with all it held."""
        held = self._holders.pop(holder, None)
        head = self._heads.pop(holder, 0)
        self._waiting.pop(holder, None)
        if head:
            self._head_bytes -= head
            self._changes(-head)
        if held is not None:
            self._changes(-held.size)

    def look(self, now: float) -> None:
        """Asks all who hold something how much it is by now; about once a second."""
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_INTERVAL_S
        for holder in list(self._holders):
            self.note(holder, holder.held_bytes())

    # --- what follows ---

    def _changes(self, change: int) -> None:
        self.held_bytes += change
        self.is_tight = self.held_bytes > self.limit_bytes
        if change > 0 and (self.is_tight or self._head_bytes > self.limit_bytes * _HEADS):
            self._schedule(0.0)

    def _schedule(self, delay_s: float) -> None:
        # Never at once: who tells may be in the middle of a message that would end under its hands.
        if self._is_scheduled:
            return
        self._is_scheduled = True
        loop = asyncio.get_running_loop()
        if delay_s:
            loop.call_later(delay_s, self.settle)
        else:
            loop.call_soon(self.settle)

    def settle(self) -> None:
        """Makes room where too much is held, and gives turns to those who wait while there is room."""
        self._is_scheduled = False
        now = self._clock()
        if self.is_tight:
            self._tell(now)
        ended = self._refuse_heads() + self._end_longest() + self._end_stuck(now)
        if ended:
            self.ended += ended
            self._tell_ended(now, ended)
        self._give_turns()

    def _refuse_heads(self) -> int:
        ended = 0
        while self._head_bytes > self.limit_bytes * _HEADS:
            self._end(next(iter(self._heads)))
            ended += 1
        return ended

    def _end_longest(self) -> int:
        ended = 0
        while self.held_bytes > self.limit_bytes * _CEILING:
            first = next(iter(self._holders), None) or next(iter(self._heads), None)
            if first is None:
                break
            self._end(first)
            ended += 1
        return ended

    def _end_stuck(self, now: float) -> int:
        """Ends who hasn't moved, as far as those who wait need the room."""
        ended = 0
        while self._waiting and not self._room():
            holder, held = next(iter(self._holders.items()), (None, None))
            if holder is None or held is None or held.since > now - STUCK_S:
                break
            size = holder.held_bytes()
            if size < held.size:
                self.note(holder, size)
                continue
            self._end(holder)
            ended += 1
        return ended

    def _end(self, holder: Holder) -> None:
        # It is forgotten first: ending tells of changes itself.
        self.forget(holder)
        holder.make_room()
        self.forget(holder)

    def _room(self) -> int:
        """Returns how many may read at once, whatever it brings."""
        if not self.is_tight:
            return _TURNS_AT_ONCE
        room = int(self.limit_bytes * _ROOM - self.held_bytes) // READ_BYTES
        return max(0, min(room, _TURNS_AT_ONCE))

    def _give_turns(self) -> None:
        room = self._room()
        for holder in list(islice(self._waiting, room)):
            self._waiting.pop(holder, None)
            holder.may_read()
        if self._waiting:
            self._schedule(0.0 if room else _NO_ROOM_S)

    # --- what is told ---

    def _tell(self, now: float) -> None:
        if now < self._next_tell:
            return
        self._next_tell = now + _TELL_INTERVAL_S
        logger.warning(
            "connections hold more than max-buffered-bytes: large transfers take turns until it is less; "
            "clients or sandboxes that don't read are the usual cause",
            extra={"fields": self._fields()},
        )

    def _tell_ended(self, now: float, ended: int) -> None:
        if now < self._next_tell_ended:
            return
        self._next_tell_ended = now + _TELL_INTERVAL_S
        logger.warning(
            "connections were ended to free memory: what they held did not move; "
            "if honest clients are among them, raise max-buffered-bytes with the memory limit, or add replicas",
            extra={"fields": {**self._fields(), "ended": ended, "ended_since_start": self.ended}},
        )

    def _fields(self) -> dict[str, int]:
        return {
            "held_bytes": self.held_bytes,
            "limit_bytes": self.limit_bytes,
            "connections_holding": len(self._holders) + len(self._heads),
            "connections_waiting": len(self._waiting),
        }
