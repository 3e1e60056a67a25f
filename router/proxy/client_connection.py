"""ClientConnection: one client's connection, an asyncio.Protocol that cuts requests out of its bytes."""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

from router import errors
from router.errors import MalformedMessage, Overloaded, RequestTimeout, RouterError
from router.proxy.budget import NO_MEMORY, Budget
from router.proxy.caller import Caller
from router.proxy.closing_connection import (
    CLOSED,
    DISCARDING,
    HEAD,
    IDLE,
    NEXT,
    OPENING,
    RELAYING,
    TUNNEL,
    ClosingConnection,
)
from router.proxy.connection import LARGE_BYTES
from router.proxy.options import NEVER, ProxyOptions
from router.proxy.ports import ClientRelay
from router.proxy.wire import framing
from router.proxy.wire.error_answers import answer_for
from router.proxy.wire.framing import ChunkedReader, FramingError
from router.proxy.wire.local_responses import error_answer
from router.proxy.wire.partial_head import END_OF_HEAD, PartialHead
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead, parse_request, resolve_target_form

_SLASH: Final = 0x2F
_REQUESTS_A_TURN: Final = 16
"""Pipelined requests that are answered here (refused, say) before other connections have their turn."""


class Requests(Protocol):
    """Who takes the requests of a connection."""

    def caller(self, transport: asyncio.BaseTransport, *, is_tls: bool) -> Caller:
        """Returns what the connection itself says of who calls."""
        ...

    def begin(self, client: ClientConnection, head: RequestHead) -> None:
        """Sets the connection's `exchange` and begins it."""

    def refused(self, client: ClientConnection, error: RouterError, head: bytes | None) -> None:
        """Tells of bytes that made no request."""


class Register(Protocol):
    """Who knows every client's connection."""

    is_draining: bool

    def accept(self, client: ClientConnection) -> None:
        """Takes in a connection that was just made."""

    def turned_away(self, client: ClientConnection) -> None:
        """Notes that who waited outside is told that there is no place."""

    def closed(self, client: ClientConnection) -> None:
        """Notes that a connection has ended."""


class ClientConnection(ClosingConnection):
    """Serves one client: takes heads, feeds the Exchange its body, and writes what comes back."""

    __slots__ = (
        "_advancing",
        "_is_tls",
        "_max_header_bytes",
        "_max_request_line_bytes",
        "_options",
        "_partial",
        "_register",
        "_requests",
        "caller",
        "keep_alive",
        "peer",
    )

    def __init__(
        self,
        *,
        requests: Requests,
        register: Register,
        options: ProxyOptions,
        budget: Budget,
        is_tls: bool,
    ) -> None:
        super().__init__(budget)
        self._requests = requests
        self._register = register
        self._options = options
        self._max_header_bytes = options.max_header_bytes
        self._max_request_line_bytes = options.max_request_line_bytes
        self._is_tls = is_tls
        self._partial: PartialHead | None = None
        self._advancing = False
        self.keep_alive = True
        self.peer: Peer
        self.caller: Caller

    def __repr__(self) -> str:
        return f"<ClientConnection {self._state.name} reading={self._reading}>"

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.caller = self._requests.caller(transport, is_tls=self._is_tls)
        self.peer = self.caller.peer
        self._rest()
        self._register.accept(self)

    def data_received(self, data: bytes) -> None:
        if len(data) >= LARGE_BYTES and not self._in_turn:
            self.take_in_turn(data)
            return
        state = self._state
        if state is IDLE:
            if not self.is_writable:
                self._hold(data)
                return
            self._take(data)
        elif state is RELAYING and self._reader is not None:
            self._take_body(self._ahead + data if self._ahead else data)
        elif state is OPENING or state is RELAYING:
            self._hold(data)
        elif state is TUNNEL:
            assert self.tunnel is not None
            self.tunnel.from_client(data)
        elif state is HEAD:
            assert self._partial is not None
            self._collect(self._partial, data)
        elif state is DISCARDING:
            self._discard(data)

    def eof_received(self) -> bool:
        if self.tunnel is not None:
            return self.tunnel.client_eof()
        if self.exchange is not None:
            self.exchange.client_left()
        if self._delivery is not None and self._delivery.resets:
            return self._may_hear_the_rest(is_tls=self._is_tls)
        self.exchange = None
        self._close_after_flush()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._becomes(CLOSED)
        self.transport = None
        self._register.closed(self)
        self._budget.forget(self)
        tunnel, exchange, delivery = self.tunnel, self.exchange, self._delivery
        self.tunnel = self.exchange = self._delivery = None
        if tunnel is not None:
            tunnel.client_lost()
        elif exchange is not None:
            exchange.client_left()
        elif delivery is not None:
            delivery.is_over(self._held)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.tunnel is not None:
            self.tunnel.client_is_full()
        elif self.exchange is not None and self.exchange.sandbox is not None:
            self.exchange.sandbox.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.tunnel is not None:
            self.tunnel.client_has_room()
        elif self.exchange is not None and self.exchange.sandbox is not None:
            self.exchange.sandbox.resume_reading()
        elif self._state is IDLE:
            self._advance()

    # --- for the exchange and the tunnel ---

    def may_keep_alive(self, head: RequestHead) -> bool:
        """Returns True when the connection can carry another request after this one's answer."""
        if not head.keep_alive or self._register.is_draining:
            return False
        # Bytes behind a refused upgrade may be the other protocol's: never read them as a request.
        return not (head.upgrade is not None and self._ahead)

    def begin_relay(self) -> None:
        """Hands over what has come of the body and reads on: the request has its connection to the sandbox."""
        assert self._state is OPENING or self._state is RELAYING, repr(self)
        self._state = RELAYING
        if self._reader is not None and self._ahead:
            self._take_body(self._ahead)
        if not self._reading:
            self.resume_if_wanted()

    def answer_error(self, error: RouterError, head: RequestHead) -> None:
        """Writes an error answer for the current exchange, which has ended, and goes on or closes."""
        self.keep_alive = self.may_keep_alive(head) and self._is_frame_kept(error, head)
        close, login_url = not self.keep_alive, self._options.login_url
        self.write(answer_for(error, head, self.peer, close=close, login_url=login_url))
        self.exchange_done()

    def exchange_done(self) -> None:
        """The exchange's answer is written: on to the next request, or to the end."""
        self.exchange = None
        if self.keep_alive and self._reader is None and not self._ahead and self._reading:
            # What _rest() does, without the call (bench/walk.py).
            assert IDLE in NEXT[self._state], repr(self)
            self._state = IDLE
            now = self.idle_since = time.monotonic()
            self.deadline_at = now + self._options.keepalive_timeout_s
        elif not self.keep_alive or (self._reader is not None and not self._is_discardable()):
            self._end()
        elif self._reader is not None:
            self._start_discarding()
        else:
            self._rest()
            self._advance()

    def start_tunnel(self, tunnel: ClientRelay) -> None:
        self.tunnel = tunnel
        self._becomes(TUNNEL)
        self.deadline_at = tunnel.deadline_at
        if not self.is_writable:
            tunnel.client_is_full()
        ahead, self._ahead = self._ahead, b""
        if ahead:
            tunnel.from_client(ahead)
        if tunnel.sandbox_is_writable:
            self.resume_reading()

    # --- time and the end ---

    def on_deadline(self, now: float) -> None:
        """Called by Deadlines when `deadline_at` has passed."""
        tunnel = self.tunnel
        if tunnel is not None:
            tunnel.on_deadline(now)
            if self.tunnel is not None:
                self.deadline_at = tunnel.deadline_at
        elif self.exchange is not None:
            self.deadline_at = NEVER
            if not self._failed_waiting():
                self.exchange.on_deadline(now)
        elif self.is_extra and not self.has_asked:
            self.turn_away()
        elif self._state is HEAD:
            self._refuse(RequestTimeout("The request head did not arrive in time."), None)
        elif not self._is_still_sending(now, self._options.keepalive_timeout_s):
            self._abort()

    def make_room(self) -> None:
        """Ends, for others need the memory that it holds."""
        if self._state is HEAD:
            self._refuse(Overloaded(NO_MEMORY), None)
        super().make_room()

    # --- reading requests ---

    def _rest(self) -> None:
        """Waits for the next request."""
        assert self._state is IDLE or IDLE in NEXT[self._state], repr(self)
        self._state = IDLE
        now = self.idle_since = time.monotonic()
        self.deadline_at = now + self._options.keepalive_timeout_s

    def _collect(self, partial: PartialHead, data: bytes) -> None:
        """Adds to a head that comes in pieces, and takes it once it is whole."""
        self._partial = None
        try:
            whole = partial.add(data)
        except RouterError as exc:
            self._refuse(exc, None)
            return
        if whole is not None:
            self._budget.note_head(self, 0)
            self._take(whole)
        elif not partial.is_empty:
            self._partial = partial
            self._budget.note_head(self, partial.size)
            if self._state is not HEAD:
                self._becomes(HEAD)
                if self.idle_since:  # who has never asked has a deadline that nothing moves
                    self.deadline_at = time.monotonic() + self._options.header_timeout_s
        elif self._state is HEAD:
            # An empty line came in two pieces: nobody gains time by it.
            self._becomes(IDLE)
            self._idle_on(self._options.keepalive_timeout_s)

    def _take(self, data: bytes) -> None:
        """Takes bytes that begin with a request head, and begins its exchange."""
        end = data.find(END_OF_HEAD)
        if end <= 0 or data.startswith(b"\r\n"):
            partial = PartialHead(
                max_request_line_bytes=self._max_request_line_bytes,
                max_header_bytes=self._max_header_bytes,
            )
            self._collect(partial, data)
            return
        end += 4
        self._ahead = data[end:]
        assert OPENING in NEXT[self._state], repr(self)
        self._state = OPENING
        try:
            if data.find(b"\r\n") > self._max_request_line_bytes:
                raise errors.UriTooLong
            if end > self._max_header_bytes:
                raise errors.HeadersTooLarge
            head = parse_request(data if end == len(data) else data[:end], self.caller.remembered)
            if head.target[0] != _SLASH:
                resolve_target_form(head)
        except RouterError as exc:
            self._refuse(exc, data[:end])
            return
        self._reader = framing.body_reader(head.content_length) if head.has_body else None
        self.keep_alive = True
        self.deadline_at = NEVER
        self._requests.begin(self, head)

    def _advance(self) -> None:
        """Takes the requests that came ahead, while the client reads the answers. A loop: a thousand refused ones don't nest."""
        if self._advancing:
            return
        self._advancing = True
        left = _REQUESTS_A_TURN
        try:
            while self._state is IDLE and self._ahead and self.is_writable and left:
                left -= 1
                data, self._ahead = self._ahead, b""
                self._take(data)
        finally:
            self._advancing = False
        if left:
            self.resume_if_wanted()
        else:
            self.pause_reading()
            asyncio.get_running_loop().call_soon(self._advance)

    def _take_body(self, data: bytes) -> None:
        reader, exchange = self._reader, self.exchange
        assert reader is not None
        assert exchange is not None
        self._ahead = b""
        pieces: list[bytes] = []
        try:
            end = reader.feed(data, pieces)
        except FramingError as exc:
            exchange.fail(MalformedMessage(f"Malformed request body: {exc}."))
            return
        if pieces:
            exchange.request_data(pieces, reader.body_bytes)
            if self.exchange is not exchange:
                return
        self.put_off(framing.untaken(reader, data))
        if end >= 0:
            self._reader = None
            self._ahead = data[end:]
            exchange.request_ends(reader.trailers if isinstance(reader, ChunkedReader) else [])

    # --- refusing ---

    def turn_away(self) -> None:
        self._register.turned_away(self)
        self._refuse(Overloaded(), None)

    def _refuse(self, error: RouterError, head: bytes | None) -> None:
        """Answers bytes that make no request, and closes: where the next request begins is not known."""
        self.keep_alive = False
        self._reader = None
        self._partial = None
        self._budget.note_head(self, 0)
        self._requests.refused(self, error, head)
        is_head = head is not None and head.startswith(b"HEAD ")
        self.write(error_answer(error, is_head=is_head, close=True))
        self._end()

    def _start_discarding(self) -> None:
        self._becomes(DISCARDING)
        self.deadline_at = time.monotonic() + self._options.header_timeout_s
        ahead, self._ahead = self._ahead, b""
        if ahead:
            self._discard(ahead)
        if self._state is DISCARDING:
            self.resume_reading()

    def _discard(self, data: bytes) -> None:
        assert self._reader is not None
        end = self._reader.feed(data, [])
        if end >= 0:
            self._reader = None
            self._ahead = data[end:]
            self._rest()
            self._advance()
