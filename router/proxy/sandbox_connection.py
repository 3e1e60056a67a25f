"""SandboxConnection: one connection to a sandbox, an asyncio.Protocol that cuts responses out of its bytes."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Any, Final, Protocol

from router.auth.authorizer import PoolKey
from router.errors import BadResponse, Overloaded
from router.proxy.budget import NO_MEMORY, Budget
from router.proxy.connection import LARGE_BYTES, Connection
from router.proxy.exchange import Exchange
from router.proxy.ports import SandboxRelay
from router.proxy.sandbox_states import NEXT, State
from router.proxy.signs import look_for
from router.proxy.wire.framing import (
    BodyReader,
    ChunkedReader,
    ChunkRelay,
    FramingError,
    LengthReader,
    UntilCloseReader,
    untaken,
)
from router.proxy.wire.partial_head import check_partial_response
from router.proxy.wire.response_head import ResponseHead, parse_response

_END_OF_HEAD: Final = b"\r\n\r\n"
_NO_ROOM: Final = "the sandbox does not read, and memory was needed for others"
_MAX_INTERIM_BYTES: Final = 4_194_304
"""Of all 1xx responses in front of one final one: an upload may report its progress for hours (RFC 9110 §15.2)."""
_INTERIM_A_TURN: Final = 4096
"""Bytes of 1xx responses behind which other connections have their turn: two hundred of the smallest cost a millisecond."""
_IDLE: Final = State.IDLE
_AWAITING: Final = State.AWAITING
_BODY: Final = State.BODY
_TUNNEL: Final = State.TUNNEL
_CLOSED: Final = State.CLOSED


class Owner(Protocol):
    """The pool, as its connections need it."""

    max_head_bytes: int

    def release(self, connection: SandboxConnection) -> None:
        """Takes back a connection whose exchange has ended cleanly on both sides."""

    def forget(self, connection: SandboxConnection) -> None:
        """Notes that a connection has closed."""

    def closes(self, connection: SandboxConnection) -> None:
        """Bounds a close that waits for the sandbox to read."""


class SandboxConnection(Connection):
    """A connection that was dialled for one pod; between exchanges it waits in the Pool."""

    __slots__ = (
        "_exchange",
        "_interim_bytes",
        "_partial",
        "_pool",
        "_reader",
        "_state",
        "_tunnel",
        "address",
        "host",
        "idle_since",
        "is_retired",
        "key",
        "may_trail",
        "unread",
    )

    def __init__(
        self, pool: Owner, key: PoolKey, address: str, host: bytes, budget: Budget
    ) -> None:
        super().__init__(budget)
        self._pool = pool
        self.key = key
        self.address = address
        self.host = host
        """The Host header that requests on this connection get."""
        self.idle_since = 0.0
        self.is_retired = False
        """Its pod left the table: it finishes what it does and is never used again."""
        self.may_trail = False
        """Its last response had to be without a body: a faulty sandbox's may still be on its way."""
        self._state = _IDLE
        self._exchange: Exchange | None = None
        """Set while AWAITING or BODY."""
        self._tunnel: SandboxRelay | None = None
        """Set while TUNNEL, and until the transport is gone."""
        self._reader: BodyReader | None = None
        """Cuts out the body; set while BODY."""
        self._partial: bytearray | None = None
        self._interim_bytes = 0
        self.unread: Callable[[int], list[Any]] = lambda _: []
        """poll(2), with a time limit: bytes or an end wait in the kernel, which the loop has not come round to yet."""

    def __repr__(self) -> str:
        return f"<SandboxConnection {self.address} {self._state.name} retired={self.is_retired}>"

    @property
    def state(self) -> State:
        return self._state

    @property
    def is_closed(self) -> bool:
        return self._state is _CLOSED

    # --- for the pool and the exchange ---

    def carry(self, exchange: Exchange, *, is_reused: bool) -> None:
        """Sends the exchange's request, and gives it the response."""
        assert self._state is _IDLE, repr(self)
        self._state = _AWAITING
        self.may_trail = False
        self._exchange = exchange
        exchange.attach(self, is_reused=is_reused)
        if self._later:
            self.put_off(self._later)

    def release(self) -> None:
        """Gives it back for other requests: the exchange has ended cleanly on both sides."""
        assert _IDLE in NEXT[self._state], repr(self)
        self._state = _IDLE
        self._exchange = self._reader = None
        if not self._reading:
            self.read_on()
        self._pool.release(self)

    def start_tunnel(self, tunnel: SandboxRelay) -> None:
        """From here on only bytes cross."""
        self._becomes(_TUNNEL)
        self._exchange = None
        self._tunnel = tunnel
        self.put_off(self._later)

    def close(self) -> None:
        """Closes at once, whatever is still unsent: nothing may be half sent and then look whole to the sandbox."""
        if self._state is not _CLOSED:
            self._closed()
            self.abort()

    def close_after_flush(self) -> None:
        """Closes once everything written has been sent; for tunnels, whose last bytes matter."""
        if self._state is not _CLOSED:
            tunnel = self._tunnel
            self._closed()
            self._tunnel = tunnel  # it still says what is wanted of the rest
            if self.transport is not None:
                self._pool.closes(self)
                self.transport.close()

    def _closed(self) -> None:
        """Notes that the connection is no longer of use; what it carried is told nothing more."""
        self._becomes(_CLOSED)
        self._exchange = self._tunnel = None
        self._later = b""
        self._pool.forget(self)

    def _becomes(self, state: State) -> None:
        assert state in NEXT[self._state], f"{self!r} -> {state!r}"
        self._state = state

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.unread = look_for(transport, select.POLLIN | select.POLLRDHUP)

    def data_received(self, data: bytes) -> None:
        if len(data) >= LARGE_BYTES and not self._in_turn:
            self.take_in_turn(data)
            return
        state, exchange = self._state, self._exchange
        if state is _AWAITING:
            assert exchange is not None
            if self._partial is None:
                end = data.find(_END_OF_HEAD)
                if end >= 0:
                    self._heads(exchange, data, end)
                    return
            self._take_head(exchange, data)
        elif state is _BODY:
            assert exchange is not None
            assert self._reader is not None
            self._take_body(exchange, self._reader, data)
        elif self._tunnel is not None:
            self._tunnel.from_sandbox(data)
        elif state is _IDLE and not self.idle_since:
            self.pause_reading()  # dialled just now, it may be for raw bytes
            self._later += data
        elif state is _IDLE:
            self.close()

    def eof_received(self) -> bool:
        if self._tunnel is not None:
            return self._tunnel.sandbox_eof()
        if self._exchange is not None:
            self._ended(self._exchange, None)
        self.abort()  # nothing that is still unsent is wanted any more
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self._later:
            self.is_retired = True  # what came before the end crosses before it
            asyncio.get_running_loop().call_soon(self.connection_lost, exc)
            return
        self._budget.forget(self)
        tunnel, exchange = self._tunnel, self._exchange
        if tunnel is not None:
            self._closed()
            tunnel.sandbox_lost()
        elif exchange is not None:
            self._ended(exchange, exc)
        else:
            self._closed()

    def resume_if_wanted(self) -> None:
        if self._tunnel is not None:
            if self._tunnel.client_is_writable:
                self.resume_reading()
        elif self._exchange is None or self._exchange.client.is_writable:
            self.resume_reading()

    def make_room(self) -> None:
        """Ends, for others need the memory that it holds: its sandbox doesn't read, or doesn't end a head."""
        if self._exchange is not None:
            self._exchange.fail(Overloaded(NO_MEMORY, reason=_NO_ROOM))
        elif self._tunnel is not None:
            self._tunnel.give_up()
        self.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._tunnel is not None:
            self._tunnel.sandbox_is_full()
        elif self._exchange is not None:
            self._exchange.client.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._tunnel is not None:
            self._tunnel.sandbox_has_room()
        elif self._exchange is not None:
            self._exchange.client.resume_if_wanted()

    # --- reading a response ---

    def _take_head(self, exchange: Exchange, data: bytes) -> None:
        """Takes a head that comes in pieces."""
        partial = self._partial
        if partial is None:
            self._keep_partial(exchange, data)
            return
        seen = max(0, len(partial) - 3)
        partial += data
        end = partial.find(_END_OF_HEAD, seen)
        if end < 0:
            self._keep_partial(exchange, data, seen)
            return
        self._partial = None
        self._budget.note_head(self, 0)
        self._heads(exchange, bytes(partial), end)

    def _keep_partial(self, exchange: Exchange, data: bytes, seen: int = 0) -> None:
        if self._partial is None:
            self._partial = bytearray(data)
        try:
            check_partial_response(self._partial, seen, max_head_bytes=self._pool.max_head_bytes)
        except BadResponse as exc:
            exchange.response_broken(exc)
        else:
            self._budget.note_head(self, len(self._partial))

    def _heads(self, exchange: Exchange, data: bytes, end: int) -> None:
        """Takes interim heads and the final one from `data`, whose first head ends at `end`."""
        end += 4
        try:
            if end > self._pool.max_head_bytes:
                raise BadResponse(reason="the answer's head is too large")
            head = parse_response(data if end == len(data) else data[:end])
            if head.status >= 200:
                self._final(exchange, head, data, end)
            else:
                self._interim(exchange, head, data, end)
        except BadResponse as exc:
            exchange.response_broken(exc)

    def _interim(self, exchange: Exchange, head: ResponseHead, data: bytes, end: int) -> None:
        """Takes as many 1xx heads as one turn may have, the first of which is this, and what follows. Raises BadResponse."""
        at = 0  # where the head begins; nothing is cut off in front, or a flood of 1xx would cost its square
        heads: list[ResponseHead] = []
        try:
            while head.status < 200 and head.status != 101:
                self._interim_bytes += end - at
                if self._interim_bytes > _MAX_INTERIM_BYTES:
                    raise BadResponse(reason="the 1xx answers are too large together")
                heads.append(head)
                at = end
                end = data.find(_END_OF_HEAD, at) + 4
                if end < 4 or at >= _INTERIM_A_TURN:
                    break
                if end - at > self._pool.max_head_bytes:
                    raise BadResponse(reason="the answer's head is too large")
                head = parse_response(data[at:end])
        finally:
            if heads:
                exchange.response_interim(heads)
        if head.status >= 200:
            self._final(exchange, head, data, end)
        elif head.status == 101:
            exchange.response_upgraded(head, data[end:])
        elif end >= 4:
            self.put_off(data[at:])
        elif at < len(data):
            self._keep_partial(exchange, data[at:])

    def _final(self, exchange: Exchange, head: ResponseHead, data: bytes, end: int) -> None:
        """Takes the final head, which ends at `end`. Raises BadResponse."""
        self._interim_bytes = 0
        length = head.content_length
        if exchange.head.method == b"HEAD" or head.status in (204, 304):
            length = 0  # no body follows, whatever the head says (RFC 9110 §6.4.1)
            self.may_trail = True
        elif head.is_chunked:
            length = None
        if length is not None and len(data) - end >= length:
            body = [data[end : end + length]] if length else []
            exchange.response_whole(head, None, body, clean=len(data) - end == length)
        else:
            self._begin_body(exchange, head, data[end:])

    def _begin_body(self, exchange: Exchange, head: ResponseHead, data: bytes) -> None:
        reader = _reader_for(head, exchange)
        pieces: list[bytes] = []
        end = -1
        if data:
            try:
                end = reader.feed(data, pieces)
            except FramingError as exc:
                raise BadResponse(reason=str(exc)) from exc
        if end >= 0:
            exchange.response_whole(head, reader, pieces, clean=end == len(data))
            return
        self._becomes(_BODY)
        self._reader = reader
        self.put_off(untaken(reader, data))
        exchange.response_begins(head, reader, pieces)

    def _take_body(self, exchange: Exchange, reader: BodyReader, data: bytes) -> None:
        pieces: list[bytes] = []
        try:
            end = reader.feed(data, pieces)
        except FramingError as exc:
            exchange.response_broken(BadResponse(reason=str(exc)))
            return
        if end < 0:
            self.put_off(untaken(reader, data))
            exchange.response_data(reader, pieces)
        else:
            exchange.response_ends(reader, pieces, clean=end == len(data))

    def _ended(self, exchange: Exchange, exc: Exception | None) -> None:
        """The sandbox's side ended while an exchange was on."""
        reader = self._reader
        is_begun = self._partial is not None or self._interim_bytes > 0
        self._reader = self._partial = None
        self._closed()
        if isinstance(reader, UntilCloseReader) and exc is None:
            exchange.response_ends(reader, [], clean=False)
        elif reader is not None:
            exchange.response_broken(BadResponse(reason=_why("the answer was cut short", exc)))
        elif is_begun:
            exchange.response_broken(
                BadResponse(reason=_why("the answer's head was cut short", exc))
            )
        else:
            exchange.sandbox_left(_why("the sandbox closed the connection before it answered", exc))


def _why(what: str, exc: Exception | None) -> str:
    return f"{what}: {exc}" if exc is not None else what


def _reader_for(head: ResponseHead, exchange: Exchange) -> BodyReader:
    """Returns what cuts out this response's body (RFC 9112 §6.3). Raises BadResponse."""
    if head.is_chunked:
        if head.version == 10:
            raise BadResponse(reason="Transfer-Encoding in an HTTP/1.0 answer")
        return ChunkRelay() if exchange.head.version == 11 else ChunkedReader()
    if head.content_length is None:
        return UntilCloseReader()
    return LengthReader(head.content_length)
