"""Upstream: one connection to a sandbox, an asyncio.Protocol that cuts responses out of its bytes."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any, Final

from router.errors import BadResponse
from router.proxy.connection import Connection
from router.proxy.wire.framing import (
    BodyReader,
    ChunkedReader,
    ChunkRelay,
    FramingError,
    LengthReader,
    UntilCloseReader,
)
from router.proxy.wire.partial_head import check_partial_response
from router.proxy.wire.response_head import ResponseHead, parse_response

if TYPE_CHECKING:
    from router.proxy.exchange import Exchange
    from router.proxy.pool import Pool, PoolKey
    from router.proxy.tunnel import Tunnel

_END_OF_HEAD: Final = b"\r\n\r\n"
_MAX_INTERIM_BYTES: Final = 4_194_304
"""Of all 1xx answers in front of one final answer: an upload may report its progress for hours (RFC 9110 §15.2)."""


class Upstream(Connection):
    """A connection that was dialled for one pod; between exchanges it waits in the Pool.

    Exactly one of `exchange` and `tunnel` is set while it is in use; both are None while it is idle.
    """

    __slots__ = (
        "_interim_bytes",
        "_partial",
        "_poll",
        "_pool",
        "_reader",
        "address",
        "exchange",
        "host",
        "idle_since",
        "is_closed",
        "is_retired",
        "key",
        "tunnel",
    )

    def __init__(self, pool: Pool, key: PoolKey, address: str, host: bytes) -> None:
        super().__init__()
        self._pool = pool
        self.key = key
        self.address = address
        self.host = host
        """The Host header that requests on this connection get."""
        self.exchange: Exchange | None = None
        self.tunnel: Tunnel | None = None
        self.idle_since = 0.0
        self.is_retired = False
        """Its pod left the table: it finishes what it does and is never used again."""
        self.is_closed = False
        self._reader: BodyReader | None = None
        self._partial: bytearray | None = None
        self._interim_bytes = 0
        self._poll: Any = None

    def __repr__(self) -> str:
        use = "tunnel" if self.tunnel else "busy" if self.exchange else "idle"
        return f"<Upstream {self.address} {use} retired={self.is_retired} closed={self.is_closed}>"

    # --- for the pool and the exchange ---

    def has_unread(self) -> bool:
        """Returns True when bytes or an end wait in the kernel, which the loop has not come round to yet: one poll(2)."""
        assert self.transport is not None
        if self._poll is None:
            self._poll = select.poll()
            fileno = self.transport.get_extra_info("socket").fileno()
            self._poll.register(fileno, select.POLLIN | select.POLLRDHUP)
        return bool(self._poll.poll(0))

    def close(self) -> None:
        """Closes at once, whatever is still unsent: nothing may be half sent and then look whole to the sandbox."""
        if not self.is_closed:
            self.is_closed = True
            self._pool.forget(self)
            self.abort()

    def close_after_flush(self) -> None:
        """Closes once everything written has been sent; for tunnels, whose last bytes matter."""
        if not self.is_closed:
            self.is_closed = True
            self._pool.forget(self)
            if self.transport is not None:
                self._pool.closes(self)
                self.transport.close()

    # --- asyncio.Protocol ---

    def _received(self, data: bytes) -> None:
        if self.tunnel is not None:
            self.tunnel.from_sandbox(data)
        elif self.exchange is None:
            self.close()
        elif self._reader is not None:
            self._take_body(self.exchange, self._reader, data)
        else:
            self._take_head(self.exchange, data)

    def eof_received(self) -> bool:
        if self.tunnel is not None:
            return self.tunnel.sandbox_eof()
        if self.exchange is not None:
            self._ended(self.exchange, None)
        self.abort()  # nothing that is still unsent is wanted any more
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._pool.forget(self)
        tunnel, exchange = self.tunnel, self.exchange
        self.transport = None
        if tunnel is not None:
            tunnel.sandbox_lost()
        elif exchange is not None:
            self._ended(exchange, exc)

    def resume_if_wanted(self) -> None:
        relay = self.tunnel or self.exchange
        if relay is None or relay.downstream.is_writable:
            self.resume_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.tunnel is not None:
            self.tunnel.sandbox_is_full()
        elif self.exchange is not None:
            self.exchange.downstream.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.tunnel is not None:
            self.tunnel.sandbox_has_room()
        elif self.exchange is not None:
            self.exchange.downstream.resume_if_wanted()

    # --- reading a response ---

    def _take_head(self, exchange: Exchange, data: bytes) -> None:
        partial = self._partial
        seen = 0
        if partial is None:
            end = data.find(_END_OF_HEAD)
        else:
            seen = max(0, len(partial) - 3)
            partial += data
            end = partial.find(_END_OF_HEAD, seen)
            if end >= 0:
                data = bytes(partial)
                self._partial = None
        if end < 0:
            self._keep_partial(exchange, data, seen)
            return
        self._heads(exchange, data, end)

    def _keep_partial(self, exchange: Exchange, data: bytes, seen: int = 0) -> None:
        if self._partial is None:
            self._partial = bytearray(data)
        try:
            check_partial_response(self._partial, seen, max_head_bytes=self._pool.max_head_bytes)
        except BadResponse as exc:
            exchange.response_broken(exc)

    def _heads(self, exchange: Exchange, data: bytes, end: int) -> None:
        """Takes interim heads and the final one from `data`, whose first head ends at `end`."""
        try:
            while True:
                end += 4
                if end > self._pool.max_head_bytes:
                    raise BadResponse(reason="the answer's head is too large")
                head = parse_response(data if end == len(data) else data[:end])
                if head.status >= 200:
                    break
                data = data[end:]
                if head.status == 101:
                    exchange.response_upgraded(head, data)
                    return
                self._interim_bytes += end
                if self._interim_bytes > _MAX_INTERIM_BYTES:
                    raise BadResponse(reason="the 1xx answers are too large together")
                exchange.response_interim(head)
                end = data.find(_END_OF_HEAD)
                if end < 0:
                    if data:
                        self._keep_partial(exchange, data)
                    return
            self._interim_bytes = 0
            self._final(exchange, head, data, end)
        except BadResponse as exc:
            exchange.response_broken(exc)

    def _final(self, exchange: Exchange, head: ResponseHead, data: bytes, end: int) -> None:
        pieces: list[bytes] = []
        reader = _reader_for(head, exchange)
        if reader is None:
            exchange.response_begins(head, None, pieces, ended=True, clean=end == len(data))
            return
        after = -1
        if end < len(data):
            rest = data[end:]
            try:
                after = reader.feed(rest, pieces)
            except FramingError as exc:
                raise BadResponse(reason=str(exc)) from exc
            if after >= 0:
                exchange.response_begins(head, reader, pieces, ended=True, clean=after == len(rest))
                return
        self._reader = reader
        exchange.response_begins(head, reader, pieces, ended=False, clean=True)

    def _take_body(self, exchange: Exchange, reader: BodyReader, data: bytes) -> None:
        pieces: list[bytes] = []
        try:
            end = reader.feed(data, pieces)
        except FramingError as exc:
            exchange.response_broken(BadResponse(reason=str(exc)))
            return
        if end < 0:
            exchange.response_data(reader, pieces)
        else:
            self._reader = None
            exchange.response_ends(reader, pieces, clean=end == len(data))

    def _ended(self, exchange: Exchange, exc: Exception | None) -> None:
        """The sandbox's side ended while an exchange was on."""
        self.is_closed = True
        self._pool.forget(self)
        reader = self._reader
        if isinstance(reader, UntilCloseReader) and exc is None:
            self._reader = None
            exchange.response_ends(reader, [], clean=False)
        elif reader is not None:
            exchange.response_broken(BadResponse(reason=_why("the answer was cut short", exc)))
        elif self._partial is not None or self._interim_bytes:
            exchange.response_broken(
                BadResponse(reason=_why("the answer's head was cut short", exc))
            )
        else:
            exchange.sandbox_left(_why("the sandbox closed the connection before it answered", exc))


def _why(what: str, exc: Exception | None) -> str:
    return f"{what}: {exc}" if exc is not None else what


def _reader_for(head: ResponseHead, exchange: Exchange) -> BodyReader | None:
    """Returns what cuts out this response's body, None when it has none (RFC 9112 §6.3). Raises BadResponse."""
    if exchange.head.method == b"HEAD" or head.status in (204, 304):
        return None
    if head.is_chunked:
        if head.version == 10:
            raise BadResponse(reason="Transfer-Encoding in an HTTP/1.0 answer")
        return ChunkRelay() if exchange.head.version == 11 else ChunkedReader()
    if head.content_length is None:
        return UntilCloseReader()
    return LengthReader(head.content_length) if head.content_length else None
