"""Connection: what both sides' protocols share: writing, and pausing either direction."""

from __future__ import annotations

import asyncio
import time
from typing import Final, cast

from router.proxy.budget import HIGH_WATER_BYTES, Budget
from router.proxy.delivery import reset_on_close

LARGE_BYTES: Final = 4096
"""Data of this size or more is taken by take_in_turn()."""
_TURN_S: Final = 0.002


class Connection(asyncio.Protocol):
    """An asyncio.Protocol whose transport may be gone at any moment: then writing does nothing."""

    __slots__ = (
        "_budget",
        "_has_room",
        "_in_turn",
        "_later",
        "_reading",
        "is_writable",
        "transport",
    )

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._has_room = False
        """True within may_read()."""
        self.transport: asyncio.Transport | None = None
        """None before the connection is made and after it is lost."""
        self._reading = True
        self._in_turn = False
        """True within take_in_turn()."""
        self._later = b""
        """What was put off of a read; nothing more is read before it was taken."""
        self.is_writable = True
        """False while the write buffer is over its high-water mark."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio.Transport.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def take_in_turn(self, data: bytes) -> None:
        """Has much data taken by data_received(). If that took long, this connection's turn ends: others are served first.

        Without that, libuv would read 32 times in a row for a peer that sends a million tiny frames.
        """
        self._in_turn = True
        began_at = time.monotonic()
        self.data_received(data)
        self._in_turn = False
        if self._budget.is_tight:
            self._wait_for_room()
        elif time.monotonic() - began_at > _TURN_S:
            self.end_turn()

    def end_turn(self) -> None:
        """Stops reading until the loop has come round once."""
        if self._reading:
            self.pause_reading()
            asyncio.get_running_loop().call_soon(self.resume_if_wanted)

    def put_off(self, rest: bytes) -> None:
        """Leaves the rest of a read, if there is any, to data_received() in the loop's next turn.

        It crosses even where the other side has no room: it is a part of one read, as which all of it would have.
        """
        if rest:
            self.pause_reading()
            self._later = rest
            asyncio.get_running_loop().call_soon(self._take_later)

    def _take_later(self) -> None:
        rest, self._later = self._later, b""
        if rest:
            self.data_received(rest)
        if not self._later:
            self.resume_if_wanted()

    def resume_if_wanted(self) -> None:
        """Reads on, unless something else than the turn says to wait."""
        raise NotImplementedError

    def pause_writing(self) -> None:
        self.is_writable = False
        self._budget.note(self, self.held_bytes())

    def resume_writing(self) -> None:
        self.is_writable = True
        self._budget.note(self, self.held_bytes())

    # --- for the budget ---

    def held_bytes(self) -> int:
        """Returns how many bytes it holds, as far as they are counted."""
        if self.transport is None or self.is_writable:
            return 0
        return self.transport.get_write_buffer_size()

    def may_read(self) -> None:
        """It has its turn: reads on, unless something else says to wait."""
        self._has_room = True
        self.resume_if_wanted()
        self._has_room = False

    def make_room(self) -> None:
        """Ends, for others need the memory that it holds."""
        raise NotImplementedError

    def _wait_for_room(self) -> None:
        """Stops reading until the budget gives it a turn."""
        if self._reading and self.transport is not None:
            self.pause_reading()
            self._budget.wait(self)

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def writelines(self, pieces: list[bytes]) -> None:
        if self.transport is not None:
            self.transport.writelines(pieces)

    def pause_reading(self) -> None:
        if self._reading and self.transport is not None:
            self._reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Reads on what may be much: once it is its turn, where memory is short."""
        if self._budget.is_tight and not self._has_room:
            if not self._reading and self.transport is not None:
                self._budget.wait(self)
        else:
            self.read_on()

    def read_on(self) -> None:
        """Reads on at once, or behind what was put off."""
        transport = self.transport
        if self._reading or self._later or transport is None or transport.is_closing():
            return
        self._reading = True
        transport.resume_reading()

    def write_eof(self) -> bool:
        """Returns True when the peer was told that no more comes, False when that can't be said."""
        transport = self.transport
        if transport is None or transport.is_closing() or not transport.can_write_eof():
            return False
        try:
            transport.write_eof()
        except OSError:  # the peer has reset it, and the loop has not come round to that
            return False
        return True

    def abort(self) -> None:
        """Ends at once; what is unsent is lost."""
        if self.transport is not None:
            self.transport.abort()

    def reset(self) -> None:
        """Ends with a RST: a FIN would complete a body that only the end of the connection delimits."""
        transport = self.transport
        if transport is None:
            return
        reset_on_close(transport)
        transport.abort()
