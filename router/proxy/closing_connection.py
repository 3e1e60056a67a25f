"""ClosingConnection: the states of a client's connection, and the ways in which it ends."""

from __future__ import annotations

import enum
import select
import time
from collections.abc import Callable
from typing import Any, Final

from router.errors import Overloaded, RouterError
from router.proxy.budget import NO_MEMORY, Budget
from router.proxy.connection import Connection
from router.proxy.delivery import FLUSH_S, Delivery, reset_on_close
from router.proxy.exchange import Exchange
from router.proxy.options import NEVER
from router.proxy.ports import ClientRelay
from router.proxy.signs import look_for, shows, unread_bytes
from router.proxy.wire.framing import BodyReader, LengthReader
from router.proxy.wire.request_head import RequestHead

MAX_AHEAD: Final = 16_384
"""Bytes of later requests, or of a body nobody wants yet, that are held, uncounted, before reading stops."""
_MAX_DISCARDED: Final = 65_536
"""A refused request's unread body up to this is read and thrown away, so that the connection stays usable."""
_NO_ROOM: Final = "the client does not read, and memory was needed for others"
_LINGER_S: Final = 2.0


class State(enum.IntEnum):
    """What a client's connection is doing."""

    IDLE = 0
    HEAD = 1
    """Part of a request head has come."""
    OPENING = 2
    """A request is on that has no connection to its sandbox yet; its body is held."""
    RELAYING = 3
    """A request's body, or its response, crosses."""
    DISCARDING = 4
    """A refused request's body is read and thrown away."""
    TUNNEL = 5
    LINGERING = 6
    """The last response is out; input is ignored until the client has closed (RFC 9112 §9.6)."""
    CLOSED = 7


_ANY_END: Final = (State.LINGERING, State.CLOSED)
# What may follow each state, by its number.
NEXT: Final = (
    (State.HEAD, State.OPENING, *_ANY_END),
    (State.IDLE, State.OPENING, *_ANY_END),
    (State.RELAYING, State.IDLE, State.DISCARDING, *_ANY_END),
    (State.RELAYING, State.IDLE, State.DISCARDING, State.TUNNEL, *_ANY_END),
    (State.IDLE, *_ANY_END),
    _ANY_END,
    _ANY_END,
    (),
)


# By name: looking a member up on its class is a call.
IDLE: Final = State.IDLE
HEAD: Final = State.HEAD
OPENING: Final = State.OPENING
RELAYING: Final = State.RELAYING
DISCARDING: Final = State.DISCARDING
TUNNEL: Final = State.TUNNEL
LINGERING: Final = State.LINGERING
CLOSED: Final = State.CLOSED
_WAITING: Final = (IDLE, HEAD, DISCARDING)


class ClosingConnection(Connection):
    """Knows its state and how long that may last; `deadline_at` is in seconds of time.monotonic."""

    __slots__ = (
        "_ahead",
        "_delivery",
        "_held",
        "_look",
        "_reader",
        "_state",
        "_unsent",
        "deadline_at",
        "exchange",
        "has_place",
        "idle_since",
        "is_extra",
        "tunnel",
    )

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self._state = IDLE
        self._reader: BodyReader | None = None
        """Cuts out the current request's body; None once it is complete."""
        self._ahead = b""
        """Bytes that came before their turn."""
        self.exchange: Exchange | None = None
        """The request that is on, also while its tunnel is."""
        self.tunnel: ClientRelay | None = None
        self.idle_since = 0.0
        """Since when (monotonic seconds) it waits for a request; 0.0 before its first one."""
        self.has_place = False
        """It counts against `max-connections`; one that was given up doesn't any more."""
        self.is_extra = False
        """It came when there was no place: only a load balancer's check is answered."""
        self._unsent = 0
        """Bytes of an answer that were unsent when that was looked at last."""
        self._held = 0
        """Bytes that were unsent when there was no room for more; 0 while there is."""
        self._delivery: Delivery | None = None
        """What a client is still to be given of a response that was cut."""
        self._look: Callable[[int], list[Any]] | None = None
        """poll(2) for an end that TLS doesn't tell of, once that was looked for."""
        self.deadline_at = NEVER

    @property
    def state(self) -> State:
        return self._state

    def _becomes(self, state: State) -> None:
        assert state in NEXT[self._state], f"{self!r} -> {state!r}"
        self._state = state

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.transport is not None:
            self._held = self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._held = 0

    def has_left(self) -> bool:
        """Returns True when a client is gone and the loop can't notice it: the connection isn't read, or TLS keeps it to itself. One poll(2)."""
        if self._reading:
            return self._is_end_unheard()
        # In a tunnel a client that only says no more must still be read to its end.
        return self._shows(0 if self._state is TUNNEL else select.POLLRDHUP)

    def _is_end_unheard(self) -> bool:
        """Returns True when the connection below a TLS client's has ended, and all that came was read.

        uvloop tells of an end without close_notify only once everything is sent, and throws away what is written meanwhile.
        """
        transport = self.transport
        if self.exchange is None or transport is None or transport.can_write_eof():
            return False
        if self._look is None:
            self._look = look_for(transport, select.POLLRDHUP)
        return bool(self._look(0)) and not unread_bytes(transport)

    @property
    def has_asked(self) -> bool:
        """Whether a request's whole head has ever come."""
        return self.idle_since > 0.0 or (self._state is not IDLE and self._state is not HEAD)

    def is_silent(self) -> bool:
        """Returns True when nothing is written, and nothing that the loop has yet to read has come: it waits for its client alone."""
        transport = self.transport
        return (
            self._state in _WAITING
            and transport is not None
            and not transport.get_write_buffer_size()
            and not self._shows(select.POLLIN)
        )

    def give_way(self) -> bool:
        """Closes a connection that is silent. Returns True when it is closing."""
        if self.is_silent():
            self._close(_LINGER_S)
        return self._state is LINGERING

    def close_if_idle(self) -> bool:
        """Closes a connection that carries nothing, not even what the loop has yet to read. Returns True when it did."""
        return self._state is IDLE and self.give_way()

    def _shows(self, signs: int) -> bool:
        return self.transport is not None and shows(self.transport, signs)

    def _close_after_flush(self) -> None:
        """Closes once everything written has been sent."""
        self._close(FLUSH_S)

    def _close(self, limit_s: float) -> None:
        if self.transport is not None:
            self._becomes(LINGERING)
            # close() waits for ever on a peer that doesn't read: the deadline aborts it.
            self.deadline_at = time.monotonic() + limit_s
            self._unsent = self.transport.get_write_buffer_size()
            if not self.transport.is_closing():  # closed twice, asyncio's TLS forgets what it holds
                self.transport.close()

    def _linger(self) -> None:
        """Closes, but lets the client read the answer first: closing on unread input would reset the connection."""
        transport = self.transport
        if transport is None:
            return
        if not transport.can_write_eof():
            self._close_after_flush()
            return
        self._becomes(LINGERING)
        self._unsent = transport.get_write_buffer_size()
        self.deadline_at = time.monotonic() + (FLUSH_S if self._unsent else _LINGER_S)
        self.write_eof()
        self.read_on()

    def limit_unread(self, now: float) -> None:
        """Gives a response that its client doesn't read a deadline of its own: an idle connection's is far longer."""
        transport = self.transport
        if self._state is IDLE and transport is not None and self.deadline_at > now + FLUSH_S:
            unsent = transport.get_write_buffer_size()
            if unsent:
                self._unsent = unsent
                self.deadline_at = now + FLUSH_S

    def _is_still_sending(self, now: float, keepalive_timeout_s: float) -> bool:
        """Returns True, and gives more time, when a deadline finds a response still on its way to a slow client, or read after all."""
        if self._delivery is not None and not self._delivery.is_done:
            return self._is_delivering(self._delivery, now)
        before = self._unsent
        unsent = 0 if self.transport is None else self.transport.get_write_buffer_size()
        self._unsent = unsent
        if unsent and unsent != before:
            self.deadline_at = now + FLUSH_S
            return True
        if unsent or not before or self._state is not IDLE:
            return False
        self._idle_on(keepalive_timeout_s)
        return self.deadline_at > now

    def _is_delivering(self, delivery: Delivery, now: float) -> bool:
        """Returns False when a connection whose response was cut has to end now."""
        transport = self.transport
        if transport is None:
            return False
        self.deadline_at = now  # it is looked at each time
        if delivery.goes_on(transport, now):
            return True
        if delivery.resets or transport.get_write_buffer_size():
            return False
        delivery.is_over(0)
        self.deadline_at = now + _LINGER_S
        return True

    def _may_hear_the_rest(self, *, is_tls: bool) -> bool:
        """Returns True to keep open, for what it is still to be given, the connection of a client that says no more."""
        if is_tls:
            self.reset()  # TLS would answer with an end of its own, as behind a whole response
        return not is_tls

    def _idle_on(self, keepalive_timeout_s: float) -> None:
        """Gives an idle connection back the deadline that something else came before; who has never asked keeps its one."""
        if self.idle_since:
            self.deadline_at = self.idle_since + keepalive_timeout_s

    def _abort(self) -> None:
        """Ends at once, and visibly so for a client that was to be sent more."""
        if self.transport is None:
            return
        unsent = self.transport.get_write_buffer_size()
        if self._delivery is not None:
            self._delivery.is_over(unsent)
        if unsent:
            self.reset()
        else:
            self.abort()

    def _end(self) -> None:
        """Closes once the client has had the chance to read everything."""
        self._reader = None
        self._ahead = b""
        self._linger()

    def _is_discardable(self) -> bool:
        reader = self._reader
        return isinstance(reader, LengthReader) and reader.remaining <= _MAX_DISCARDED

    def cut(self, delivery: Delivery, *, is_delimited: bool) -> None:
        """Ends the connection once the client has what had come, and so that this can't pass for a whole answer."""
        self.exchange = None
        transport = self.transport
        if transport is None:
            delivery.is_over(self._held)
            return
        self._delivery = delivery
        if not transport.get_write_buffer_size():
            delivery.is_over(0)
        if is_delimited:
            self._end()
            if not delivery.is_done:
                self._is_delivering(delivery, time.monotonic())
            return
        self._reader = None
        self._ahead = b""
        self._becomes(LINGERING)
        delivery.resets = True
        reset_on_close(transport)
        self.resume_reading()
        if not self._is_delivering(delivery, time.monotonic()):
            self.abort()

    def tunnel_done(self, *, client_ended: bool) -> None:
        """The tunnel has ended: close once everything is sent, and read to the end what a client still says."""
        self.tunnel = self.exchange = None
        (self._close_after_flush if client_ended else self._linger)()

    def end_now(self) -> None:
        """Ends whatever goes on, at once."""
        if self.tunnel is None and self.exchange is not None and self.exchange.response_started:
            self.exchange.client_left()
        else:
            self._abort()

    def _is_frame_kept(self, error: RouterError, head: RequestHead) -> bool:
        """Returns True when the next request's beginning is certain although this one was refused."""
        if error.closes_connection:
            return False
        if self._reader is None:
            return True
        return not head.expects_continue and self._is_discardable()

    def _hold(self, data: bytes) -> None:
        """Keeps bytes until their turn comes; what is held is bounded by what one read gives."""
        self._ahead += data
        if len(self._ahead) > MAX_AHEAD or self._state is IDLE:
            self.pause_reading()
            self._budget.note(self, self.held_bytes())

    def held_bytes(self) -> int:
        """Returns how many bytes it holds, as far as they are counted."""
        ahead = len(self._ahead)
        return super().held_bytes() + (ahead if ahead > MAX_AHEAD else 0)

    def resume_if_wanted(self) -> None:
        """Reads on, unless what is held already, or a full buffer on either side, says to wait."""
        state = self._state
        self._budget.note(self, self.held_bytes())
        if state is OPENING or (state is RELAYING and self._reader is None):
            if len(self._ahead) > MAX_AHEAD:
                return
        elif state is RELAYING:
            assert self.exchange is not None
            sandbox = self.exchange.sandbox
            if sandbox is not None and not sandbox.is_writable:
                return
        elif (state is IDLE and not self.is_writable) or (
            self.tunnel is not None and not self.tunnel.sandbox_is_writable
        ):
            return
        self.resume_reading()

    def make_room(self) -> None:
        """Ends, for others need the memory that it holds."""
        if self.tunnel is not None:
            self.tunnel.give_up()
        elif self.exchange is not None:
            self.exchange.fail(Overloaded(NO_MEMORY, reason=_NO_ROOM))
        if not self.is_writable:
            self._abort()  # it doesn't read: what is still unsent would stay

    def _failed_waiting(self) -> bool:
        """Fails the exchange whose time is over while the rest of its body waits for memory. Returns True when it did."""
        if self.exchange is None or not self._budget.is_waiting(self):
            return False
        self.exchange.fail(Overloaded(NO_MEMORY, reason="its time was over before there was room"))
        return True
