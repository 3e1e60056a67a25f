"""ClientConnection: the phases of a client's connection, and the ways in which it ends."""

from __future__ import annotations

import enum
import select
import time
from typing import Final

from router.proxy.connection import Connection
from router.proxy.deadlines import NEVER

_LINGER_S: Final = 2.0
_FLUSH_S: Final = 30.0


class Phase(enum.Enum):
    """What the connection is doing."""

    IDLE = "idle"
    HEAD = "head"
    """Part of a request head has come."""
    BUSY = "busy"
    """An Exchange is on."""
    DISCARDING = "discarding"
    """A refused request's body is read and thrown away."""
    TUNNEL = "tunnel"
    LINGERING = "lingering"
    """The last answer is out; input is ignored until the client has closed (RFC 9112 §9.6)."""
    CLOSED = "closed"


class ClientConnection(Connection):
    """Knows its phase and how long that may last; `deadline_at` is in seconds of time.monotonic."""

    __slots__ = ("_phase", "_unsent", "deadline_at")

    def __init__(self) -> None:
        super().__init__()
        self._phase = Phase.IDLE
        self._unsent = 0
        """Bytes of an answer that a deadline found unsent."""
        self.deadline_at = NEVER

    @property
    def phase(self) -> Phase:
        return self._phase

    def has_left(self) -> bool:
        """Returns True when the client of a connection that isn't read at the moment is gone: the loop can't notice it. One poll(2)."""
        if self._reading:
            return False
        # In a tunnel a client that only says no more must still be read to its end.
        return self._shows(0 if self._phase is Phase.TUNNEL else select.POLLRDHUP)

    def close_if_idle(self) -> bool:
        """Closes a connection that carries nothing, not even what the loop has yet to read. Returns True when it did."""
        transport = self.transport
        if (
            self._phase is not Phase.IDLE
            or transport is None
            or transport.get_write_buffer_size()
            or self._shows(select.POLLIN)
        ):
            return False
        self._close(_LINGER_S)
        return True

    def _shows(self, signs: int) -> bool:
        """Returns True when the kernel has one of these signs of poll(2), an error or a hang-up for the connection."""
        sock = None if self.transport is None else self.transport.get_extra_info("socket")
        if sock is None:
            return False
        poll = select.poll()
        poll.register(sock.fileno(), signs)
        return bool(poll.poll(0))

    def _close_after_flush(self) -> None:
        """Closes once everything written has been sent."""
        self._close(_FLUSH_S)

    def _close(self, limit_s: float) -> None:
        if self.transport is not None:
            self._phase = Phase.LINGERING
            # close() waits for ever on a peer that doesn't read: the deadline aborts it.
            self.deadline_at = time.monotonic() + limit_s
            self.transport.close()

    def _linger(self) -> None:
        """Closes, but lets the client read the answer first: closing on unread input would reset the connection."""
        transport = self.transport
        if transport is None:
            return
        if not transport.can_write_eof():
            self._close_after_flush()
            return
        self._phase = Phase.LINGERING
        unsent = transport.get_write_buffer_size()
        self.deadline_at = time.monotonic() + (_FLUSH_S if unsent else _LINGER_S)
        self.write_eof()
        self.resume_reading()

    def _is_still_sending(self, now: float) -> bool:
        """Returns True, and gives more time, when a deadline finds an answer still on its way to a slow client."""
        unsent = 0 if self.transport is None else self.transport.get_write_buffer_size()
        is_moving = unsent > 0 and unsent != self._unsent
        self._unsent = unsent
        if is_moving:
            self.deadline_at = now + _FLUSH_S
        return is_moving

    def _abort(self) -> None:
        """Ends at once, and visibly so for a client that was to be sent more."""
        if self.transport is not None and self.transport.get_write_buffer_size():
            self.reset()
        else:
            self.abort()
