"""TlsAcceptor: TLS connections that count from the accept on, and cost what TLS costs only once their clients have said hello."""

from __future__ import annotations

import asyncio
import select
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol

from router.proxy.options import NEVER
from router.proxy.ports import Newcomer
from router.proxy.signs import shows
from router.tasks import TaskSet

_RECORD_HEADER_BYTES: Final = 5
_HANDSHAKE_RECORD: Final = 22
_MAX_HELLO_BYTES: Final = 4096
"""Of a hello that is held until it is whole; a longer one, as nobody sends it, is left to the TLS library."""
_MAX_HANDSHAKE_S: Final = 60.0
"""Where `header-timeout` is off."""
_A_TURN: Final = 4
"""Handshakes that are begun before other connections have their turn: each takes a millisecond or more."""
_STALLED_S: Final = 2.0
"""A handshake that takes longer ends when others wait for their turn."""


class Register(Protocol):
    """Who knows everyone that has come."""

    def handshake_begins(self, handshake: Newcomer) -> None:
        """Takes in a TLS client that was just accepted; it may be ended at once."""

    def greeted(self, handshake: Newcomer) -> None:
        """Notes that a TLS client has said its hello."""

    def handshake_ends(self, handshake: Newcomer) -> None:
        """Notes that a handshake is over; also when that is known already."""

    def turned_away(self, client: Newcomer) -> None:
        """Notes that there was no place for it."""


class TlsAcceptor:
    """Brings accepted connections through their handshakes, and gives each to a protocol of its own then.

    Of a client that says nothing it keeps its socket alone. So many handshakes as `most` are worked on at once; others wait for
    their turn with their hello, for when everybody comes again at once nobody gets in if all are begun.
    """

    def __init__(
        self,
        *,
        context: ssl.SSLContext,
        register: Register,
        protocol: Callable[[], asyncio.Protocol],
        most: int,
    ) -> None:
        self.context = context
        """For handshakes that begin from now on; connections that are open stay as they are."""
        self.register = register
        self.protocol = protocol
        self._most = most
        self._under_way: OrderedDict[TlsHandshake, float] = OrderedDict()
        """Since when each is worked on."""
        self._waiting: OrderedDict[TlsHandshake, None] = OrderedDict()
        self._is_going_on = False
        self._tasks = TaskSet()

    def __repr__(self) -> str:
        return f"<TlsAcceptor under_way={len(self._under_way)} waiting={len(self._waiting)}>"

    @property
    def under_way(self) -> int:
        """How many handshakes are worked on."""
        return len(self._under_way)

    @property
    def waiting(self) -> int:
        """How many clients have said hello, and wait for their turn."""
        return len(self._waiting)

    def accept(self) -> asyncio.Protocol:
        """Returns the protocol of a connection that is being accepted."""
        return TlsHandshake(self)

    def greeted(self, handshake: TlsHandshake) -> None:
        """Begins a handshake whose hello has come, or has it wait for its turn."""
        self.register.greeted(handshake)
        self._waiting[handshake] = None
        self._go_on_soon()

    def ended(self, handshake: TlsHandshake) -> None:
        """Notes that a handshake is over, however."""
        self.register.handshake_ends(handshake)
        self._waiting.pop(handshake, None)
        self._under_way.pop(handshake, None)
        self._go_on_soon()

    def sweep(self, now: float) -> None:
        """Ends handshakes that don't get on while others wait; called a few times a second."""
        while self._waiting and self._under_way:
            oldest = next(iter(self._under_way))
            if self._under_way[oldest] > now - _STALLED_S:
                break
            oldest.abort()
            self.ended(oldest)

    async def close(self) -> None:
        """Ends every handshake that is under way or waits for its turn."""
        left = [*self._under_way, *self._waiting]
        self._waiting.clear()
        await self._tasks.close()
        for handshake in left:  # a task that had not begun yet has ended nothing
            handshake.abort()

    def _go_on_soon(self) -> None:
        if self._waiting and not self._is_going_on:
            self._is_going_on = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Begins the handshakes of those that have waited longest, a turn's worth of them."""
        self._is_going_on = False
        loop = asyncio.get_running_loop()
        for _ in range(min(_A_TURN, len(self._waiting), self._most - len(self._under_way))):
            handshake, _ = self._waiting.popitem(last=False)
            self._under_way[handshake] = time.monotonic()
            self._tasks.start(handshake.shake_hands(self.context), name="handshake")
            # By then the TLS protocol is in place and nothing has been read: start_tls() orders both before, in one turn.
            loop.call_soon(loop.call_soon, handshake.feed)
        if len(self._under_way) < self._most:
            self._go_on_soon()


class TlsHandshake(asyncio.Protocol):
    """A connection from its accept to the end of its handshake: a Newcomer of the proxy's."""

    __slots__ = (
        "_acceptor",
        "_transport",
        "_unfed",
        "deadline_at",
        "has_asked",
        "has_place",
        "is_extra",
    )

    def __init__(self, acceptor: TlsAcceptor) -> None:
        self._acceptor = acceptor
        self._unfed = b""
        """The hello, for as long as there is no TLS protocol to take it; and afterwards what came before this one had left."""
        self._transport: asyncio.Transport
        self.deadline_at = NEVER
        self.has_place = False
        self.is_extra = False
        self.has_asked = False
        """Whether its hello has come."""

    def __repr__(self) -> str:
        return f"<TlsHandshake greeted={self.has_asked}>"

    # --- asyncio.Protocol: until the TLS protocol takes its place, and for that one afterwards ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # uvloop's are no subclasses
        self._acceptor.register.handshake_begins(self)
        self.deadline_at = min(self.deadline_at, time.monotonic() + _MAX_HANDSHAKE_S)

    def data_received(self, data: bytes) -> None:
        self._unfed += data
        if not self.has_asked and _is_whole(self._unfed):
            self.has_asked = True
            self._transport.pause_reading()
            self._acceptor.greeted(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._acceptor.ended(self)

    # --- a Newcomer ---

    def is_silent(self) -> bool:
        return not self.has_asked and not shows(self._transport, select.POLLIN)

    def give_way(self) -> bool:
        if self.is_silent():
            self.abort()
        return self._transport.is_closing()

    def turn_away(self) -> None:
        """Ends it without a word: before the handshake there is no way to say one."""
        self._acceptor.register.turned_away(self)
        self.abort()

    def abort(self) -> None:
        self._transport.abort()

    def on_deadline(self, now: float) -> None:
        self.abort()

    # --- the handshake ---

    async def shake_hands(self, context: ssl.SSLContext) -> None:
        """Has TLS take over, and then the protocol that the connection is for."""
        secure: asyncio.Transport | None = None
        try:
            if not self._transport.is_closing():
                loop = asyncio.get_running_loop()
                secure = await loop.start_tls(self._transport, self, context, server_side=True)
        except OSError:
            # It failed, which the context has counted, or the client has left.
            self.abort()
        finally:
            self._acceptor.ended(self)
        if secure is not None and not secure.is_closing():
            protocol = self._acceptor.protocol()
            secure.set_protocol(protocol)
            protocol.connection_made(secure)
            if self._unfed:
                protocol.data_received(self._unfed)

    def feed(self) -> None:
        """Gives the TLS protocol what was read before it was there."""
        hello, self._unfed = self._unfed, b""
        protocol: Any = self._transport.get_protocol()
        if protocol is self:  # it had ended before its turn came
            return
        while hello and not self._transport.is_closing():
            buffer = protocol.get_buffer(len(hello))
            count = min(len(buffer), len(hello))
            buffer[:count] = hello[:count]
            protocol.buffer_updated(count)
            hello = hello[count:]


def _is_whole(hello: bytes) -> bool:
    """Returns True when the TLS library has something to work on: a first record, or what is none."""
    if hello[0] != _HANDSHAKE_RECORD or len(hello) >= _MAX_HELLO_BYTES:
        return True
    length = int.from_bytes(hello[3:_RECORD_HEADER_BYTES], "big")
    return len(hello) >= _RECORD_HEADER_BYTES + max(length, 1)
