"""Downstream: one client's connection, an asyncio.Protocol that cuts requests out of its bytes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from router.auth.authenticator import CertificateIdentity
from router.errors import MalformedMessage, Overloaded, RequestTimeout, RouterError
from router.proxy.client_connection import ClientConnection, Phase
from router.proxy.deadlines import NEVER
from router.proxy.exchange import Exchange
from router.proxy.wire import framing
from router.proxy.wire.framing import BodyReader, ChunkedReader, FramingError, LengthReader
from router.proxy.wire.local_responses import error_answer
from router.proxy.wire.partial_head import END_OF_HEAD, PartialHead
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead, parse_request, resolve_target_form

if TYPE_CHECKING:
    from router.proxy.gateway import Gateway
    from router.proxy.tunnel import Tunnel

_MAX_AHEAD: Final = 65_536
"""Bytes of later requests, or of a body nobody wants yet, that are held before reading stops."""
_REQUESTS_A_TURN: Final = 16
"""Pipelined requests that are answered here (refused, say) before other connections have their turn."""
_MAX_DISCARDED: Final = 65_536
"""A refused request's unread body up to this is read and thrown away, so that the connection stays usable."""


class Downstream(ClientConnection):
    """Serves one client: takes heads, feeds the Exchange its body, and writes what comes back."""

    __slots__ = (
        "_advancing",
        "_ahead",
        "_gateway",
        "_is_tls",
        "_partial",
        "_reader",
        "certificate",
        "exchange",
        "keep_alive",
        "peer",
        "tunnel",
    )

    def __init__(self, gateway: Gateway, *, is_tls: bool) -> None:
        super().__init__()
        self._gateway = gateway
        self._is_tls = is_tls
        self.exchange: Exchange | None = None
        self.tunnel: Tunnel | None = None
        self._reader: BodyReader | None = None
        """Cuts out the current request's body; None once it is complete."""
        self._partial: PartialHead | None = None
        self._ahead = b""
        """Bytes that came before their turn."""
        self._advancing = False
        self.keep_alive = True
        self.peer: Peer
        self.certificate: CertificateIdentity | None = None

    def __repr__(self) -> str:
        return f"<Downstream {self._phase.value} reading={self._reading}>"

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        gateway = self._gateway
        peername = transport.get_extra_info("peername")
        address = peername[0] if isinstance(peername, tuple) else "unknown"
        self.peer = gateway.peer_of(address, is_tls=self._is_tls)
        if self._is_tls:
            self.certificate = gateway.identity_of(transport.get_extra_info("ssl_object"))
        if not gateway.clients.accept(self):
            self._refuse(Overloaded(), None)
            return
        self._rest()

    def _received(self, data: bytes) -> None:
        phase = self._phase
        if phase is Phase.TUNNEL:
            assert self.tunnel is not None
            self.tunnel.from_client(data)
        elif phase is Phase.IDLE and self.is_writable:
            self._take(data)
        elif phase is Phase.BUSY:
            self._take_while_busy(data)
        elif phase is Phase.HEAD:
            assert self._partial is not None
            self._collect(self._partial, data)
        elif phase is Phase.DISCARDING:
            self._discard(data)
        elif phase is Phase.IDLE:
            self._hold(data)

    def eof_received(self) -> bool:
        if self.tunnel is not None:
            return self.tunnel.client_eof()
        exchange = self.exchange
        if exchange is not None:
            exchange.client_left()
        if exchange is not None and exchange.response_started:
            self.cut()
        else:
            self.exchange = None
            self._close_after_flush()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = Phase.CLOSED
        self.transport = None
        self._gateway.clients.closed(self)
        tunnel, exchange = self.tunnel, self.exchange
        self.tunnel = self.exchange = None
        if tunnel is not None:
            tunnel.client_lost()
        elif exchange is not None:
            exchange.client_left()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.tunnel is not None:
            self.tunnel.client_is_full()
        elif self.exchange is not None and self.exchange.upstream is not None:
            self.exchange.upstream.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.tunnel is not None:
            self.tunnel.client_has_room()
        elif self.exchange is not None and self.exchange.upstream is not None:
            self.exchange.upstream.resume_reading()
        elif self._phase is Phase.IDLE:
            self._advance()

    # --- for the exchange and the tunnel ---

    def may_keep_alive(self, head: RequestHead) -> bool:
        """Returns True when the connection can carry another request after this one's answer."""
        if not head.keep_alive or self._gateway.clients.is_draining:
            return False
        # Bytes behind a refused upgrade may be the other protocol's: never read them as a request.
        return not (head.upgrade is not None and self._ahead)

    def pump_body(self) -> None:
        """Called once there is an upstream: hands over what has come of the body and reads on."""
        ahead = self._ahead
        if ahead:
            self._ahead = b""
            self._take_body(ahead)
        self.resume_if_wanted()

    def answer_error(self, error: RouterError, head: RequestHead) -> None:
        """Writes an error answer for the current exchange, which has ended, and goes on or closes."""
        self.keep_alive = self.may_keep_alive(head) and self._is_frame_kept(error, head)
        self.write(error_answer(error, is_head=head.method == b"HEAD", close=not self.keep_alive))
        self.exchange_done()

    def exchange_done(self) -> None:
        """The exchange's answer is written: on to the next request, or to the end."""
        self.exchange = None
        if self.keep_alive and self._reader is None and not self._ahead and self._reading:
            self._rest()
        elif not self.keep_alive or (self._reader is not None and not self._is_discardable()):
            self._end()
        elif self._reader is not None:
            self._start_discarding()
        else:
            self._rest()
            self._advance()

    def cut(self) -> None:
        """Ends the connection so that what was sent can't pass for a whole answer."""
        self.exchange = None
        self._phase = Phase.LINGERING
        self.reset()

    def start_tunnel(self, tunnel: Tunnel) -> None:
        self.exchange = None
        self.tunnel = tunnel
        self._phase = Phase.TUNNEL
        self.deadline_at = tunnel.deadline_at
        if not self.is_writable:
            tunnel.client_is_full()
        ahead = self._ahead
        self._ahead = b""
        if ahead:
            tunnel.from_client(ahead)
        if tunnel.upstream.is_writable:
            self.resume_reading()

    def tunnel_done(self, *, client_ended: bool) -> None:
        """The tunnel has ended: close once everything is sent, and read to the end what a client still says."""
        self.tunnel = None
        (self._close_after_flush if client_ended else self._linger)()

    # --- time and the end ---

    def on_deadline(self, now: float) -> None:
        """Called by Deadlines when `deadline_at` has passed."""
        if self.tunnel is not None:
            self.tunnel.on_deadline(now)
            if self.tunnel is not None:
                self.deadline_at = self.tunnel.deadline_at
        elif self.exchange is not None:
            self.deadline_at = NEVER
            self.exchange.on_deadline(now)
        elif self._phase is Phase.HEAD:
            self._refuse(RequestTimeout("The request head did not arrive in time."), None)
        elif not self._is_still_sending(now):
            self._abort()

    def end_now(self) -> None:
        """Ends whatever goes on, at once."""
        if self.exchange is not None and self.exchange.response_started:
            self.exchange.client_left()
            self.cut()
        else:
            self._abort()

    # --- reading requests ---

    def _rest(self) -> None:
        """Waits for the next request."""
        self._phase = Phase.IDLE
        self.deadline_at = time.monotonic() + self._gateway.keepalive_timeout_s

    def _take(self, data: bytes) -> None:
        """Takes bytes that begin with a request head."""
        end = data.find(END_OF_HEAD)
        if end > 0 and not data.startswith(b"\r\n"):
            self._start(data, end + 4)
        else:
            self._collect(self._gateway.partial_head(), data)

    def _collect(self, partial: PartialHead, data: bytes) -> None:
        """Adds to a head that comes in pieces, and takes it once it is whole."""
        self._partial = None
        try:
            whole = partial.add(data)
        except RouterError as exc:
            self._refuse(exc, None)
            return
        if whole is not None:
            self._start(whole, whole.find(END_OF_HEAD) + 4)
        elif not partial.is_empty:
            self._partial = partial
            if self._phase is not Phase.HEAD:
                self._phase = Phase.HEAD
                self.deadline_at = time.monotonic() + self._gateway.header_timeout_s
        elif self._phase is Phase.HEAD:
            self._rest()  # an empty line came in two pieces

    def _start(self, data: bytes, end: int) -> None:
        """Begins the exchange of the head in data[:end]."""
        gateway = self._gateway
        self._ahead = data[end:]
        self._phase = Phase.BUSY
        try:
            gateway.check_sizes(data, end)
            head = parse_request(data if end == len(data) else data[:end])
            resolve_target_form(head)
        except RouterError as exc:
            self._refuse(exc, data[:end])
            return
        self._reader = framing.body_reader(head.content_length) if head.has_body else None
        self.keep_alive = True
        self.deadline_at = NEVER
        exchange = Exchange(gateway, self, head, gateway.outcome_of(head, self))
        self.exchange = exchange
        gateway.begin(exchange)

    def _advance(self) -> None:
        """Takes the requests that came ahead, while the client reads the answers. A loop: a thousand refused ones don't nest."""
        if self._advancing:
            return
        self._advancing = True
        left = _REQUESTS_A_TURN
        try:
            while self._phase is Phase.IDLE and self._ahead and self.is_writable and left:
                left -= 1
                data = self._ahead
                self._ahead = b""
                self._take(data)
        finally:
            self._advancing = False
        if left:
            self.resume_if_wanted()
        else:
            self.pause_reading()
            asyncio.get_running_loop().call_soon(self._advance)

    def resume_if_wanted(self) -> None:
        """Reads on, unless what is held already, or a full buffer on either side, says to wait."""
        if self._phase is Phase.BUSY and self.exchange is not None:
            upstream = self.exchange.upstream
            if self._reader is None or upstream is None:
                if len(self._ahead) > _MAX_AHEAD:
                    return
            elif not upstream.is_writable:
                return
        elif (self._phase is Phase.IDLE and not self.is_writable) or (
            self.tunnel is not None and not self.tunnel.upstream.is_writable
        ):
            return
        self.resume_reading()

    def _hold(self, data: bytes) -> None:
        """Keeps bytes until their turn comes; what is held is bounded by what one read gives."""
        self._ahead += data
        if len(self._ahead) > _MAX_AHEAD or self._phase is Phase.IDLE:
            self.pause_reading()

    def _take_while_busy(self, data: bytes) -> None:
        exchange = self.exchange
        if self._reader is not None and exchange is not None and exchange.upstream is not None:
            if self._ahead:
                data = self._ahead + data
                self._ahead = b""
            self._take_body(data)
            return
        self._hold(data)

    def _take_body(self, data: bytes) -> None:
        reader, exchange = self._reader, self.exchange
        assert reader is not None
        assert exchange is not None
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
        if end >= 0:
            self._reader = None
            self._ahead = data[end:]
            exchange.request_ends(reader.trailers if isinstance(reader, ChunkedReader) else [])

    # --- refusing ---

    def _refuse(self, error: RouterError, head: bytes | None) -> None:
        """Answers bytes that make no request, and closes: where the next request begins is not known."""
        self._phase = Phase.BUSY
        self.keep_alive = False
        self._reader = None
        self._gateway.refused(self, error, head)
        self.write(
            error_answer(error, is_head=bool(head and head.startswith(b"HEAD ")), close=True)
        )
        self._end()

    def _end(self) -> None:
        """Closes once the client has had the chance to read everything."""
        self._reader = None
        self._ahead = b""
        self._linger()

    def _is_frame_kept(self, error: RouterError, head: RequestHead) -> bool:
        """Returns True when the next request's beginning is certain although this one was refused."""
        if error.closes_connection:
            return False
        if self._reader is None:
            return True
        return not head.expects_continue and self._is_discardable()

    def _is_discardable(self) -> bool:
        reader = self._reader
        return isinstance(reader, LengthReader) and reader.remaining <= _MAX_DISCARDED

    def _start_discarding(self) -> None:
        self._phase = Phase.DISCARDING
        self.deadline_at = time.monotonic() + self._gateway.header_timeout_s
        ahead = self._ahead
        self._ahead = b""
        if ahead:
            self._discard(ahead)
        if self._phase is Phase.DISCARDING:
            self.resume_reading()

    def _discard(self, data: bytes) -> None:
        reader = self._reader
        assert reader is not None
        end = reader.feed(data, [])
        if end >= 0:
            self._reader = None
            self._ahead = data[end:]
            self._rest()
            self._advance()
