"""Exchange: one request and its response, between a client's connection and a sandbox's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from router.errors import BadResponse, BodyTooLarge, RequestTimeout, RouterError, SandboxTimeout
from router.proxy.caller import Caller
from router.proxy.delivery import Delivery
from router.proxy.exchange_states import RECEIVING_NEXT, SENDING_NEXT, Receiving, Sending
from router.proxy.options import ProxyOptions
from router.proxy.ports import ClientSide, SandboxSide, Telemetry
from router.proxy.request import Request
from router.proxy.tunnel import Tunnel, chosen_protocol
from router.proxy.wire.forwarding import crossing_request_head
from router.proxy.wire.framing import BodyReader, ChunkedReader, LengthReader, chunk, last_chunk
from router.proxy.wire.local_responses import redirect_answer
from router.proxy.wire.navigation import missing_slash
from router.proxy.wire.peer import ClientAddresses
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.response_head import SCOPED, ResponseHead
from router.proxy.wire.rewriting import crossing_response_head
from router.routing.target import forwarded_target

# Enum members by name: looking one up on its class is a call.
_HELD: Final = Sending.HELD
_SENDING_BODY: Final = Sending.BODY
_SENT: Final = Sending.SENT
_AWAITED: Final = Receiving.AWAITED
_RECEIVING_BODY: Final = Receiving.BODY
_ENDED: Final = Receiving.ENDED


class Reopener(Protocol):
    """Finds a request that was not answered another connection."""

    def reopen(self, exchange: Exchange) -> None: ...


class Exchange(Request):
    """Made by the Gateway for each request head, which finds it a SandboxSide; then it relays until both sides end.

    It ends exactly once: in _end(), which tells the Telemetry, or in _cut(), whose Delivery does.
    """

    __slots__ = (
        "_adds_chunks",
        "_ends_chunked",
        "_is_delimited",
        "_options",
        "_reopener",
        "_sent_at",
        "_telemetry",
        "_unsent_head",
        "client",
        "is_reused",
        "receiving",
        "sandbox",
        "sending",
        "task",
    )

    def __init__(
        self,
        head: RequestHead,
        caller: Caller,
        clients: ClientAddresses,
        *,
        client: ClientSide,
        options: ProxyOptions,
        telemetry: Telemetry,
        reopener: Reopener,
    ) -> None:
        super().__init__(head, caller, clients, options.proxy_timeout_s)
        self.client = client
        self.sandbox: SandboxSide | None = None
        self.sending = _HELD
        self.receiving = _AWAITED
        self.is_reused = False
        self.task: asyncio.Task[None] | None = None
        """What looks for a connection while that can't be done at once."""
        self._options = options
        self._telemetry = telemetry
        self._reopener = reopener
        self._adds_chunks = self._ends_chunked = self._is_delimited = False
        """Each piece of the body becomes a chunk; a last chunk ends it; more than the connection's end does."""
        self._sent_at = 0.0
        self._unsent_head = b""
        """The request's head, while it waits for the first of the body to go out with it."""

    def __repr__(self) -> str:
        return f"<Exchange {self.head.method!r} {self.sending.name} {self.receiving.name}>"

    @property
    def response_started(self) -> bool:
        """True once bytes of a final response are out: from then on no error response is possible."""
        return self.receiving is not _AWAITED

    @property
    def is_whole(self) -> bool:
        """True when everything of the request has come."""
        return self.sending is _SENT or not self.head.has_body

    # --- called by the gateway ---

    def attach(self, sandbox: SandboxSide, *, is_reused: bool) -> None:
        """Sends the request on this connection."""
        target, authenticated = self.target, self.authenticated
        assert target is not None
        assert authenticated is not None
        assert self.sending is _HELD
        options, head, client = self._options, self.head, self.client
        keeps_path = bool(target.path_root) and self.keeps_path(options.path_mode)
        if target.path_root and not keeps_path:
            where = missing_slash(target, head, client.peer)
            if where is not None:
                sandbox.release()
                self.answered_here(308, partial(redirect_answer, where))
                return
        self.sandbox, self.is_reused = sandbox, is_reused
        now = self._sent_at = time.monotonic()
        if not client.is_writable:
            sandbox.pause_reading()
        data = crossing_request_head(
            head,
            target=head.target
            if keeps_path or not target.path_root
            else forwarded_target(target, head.target),
            host=head.host if options.preserve_host and head.host else sandbox.host,
            peer=client.peer,
            keep_authorization=not authenticated.consumed_authorization,
            origin_policy=options.origin_policy,
            path_root=b"" if keeps_path else target.path_root,
            stripped=self.stripped(options.stripped) if self.is_preflight else options.stripped,
        )
        if not head.has_body:
            self.sending = _SENT
            client.deadline_at = self.started_at + self.timeout_s
            if sandbox.transport is not None:
                sandbox.transport.write(data)
            client.begin_relay()
            return
        self.sending = _SENDING_BODY
        client.deadline_at = now + options.stream_idle_timeout_s
        self._unsent_head = data
        client.begin_relay()
        if self._unsent_head:
            self._unsent_head = b""
            sandbox.write(data)

    def fail(self, error: RouterError) -> None:
        """Ends with an error of the router's own: a response while that is possible, else a visible cut."""
        if self.receiving is _ENDED:
            return
        self._drop_sandbox()
        outcome = self.outcome
        outcome.error_reason = error.reason or outcome.error_reason
        if self.receiving is not _AWAITED:
            outcome.code = "response_cut"
            self._cut()
            return
        outcome.refused(error)
        self._end()
        self.client.answer_error(error, self.head)

    def answered_here(self, status: int, answer: Callable[..., bytes]) -> None:
        """Ends with a response that is no error and needs no sandbox."""
        client = self.client
        client.keep_alive = client.may_keep_alive(self.head) and not self.head.has_body
        self.outcome.status = status
        self._end()
        client.write(answer(is_head=self.head.method == b"HEAD", close=not client.keep_alive))
        client.exchange_done()

    # --- called by the client's connection ---

    def request_data(self, pieces: list[bytes], body_bytes: int) -> None:
        """Passes body bytes (framed as they came) on; `body_bytes` is the body's size so far, framing apart."""
        self.outcome.bytes_from_client = body_bytes
        limit, sandbox = self._options.max_body_bytes, self.sandbox
        if limit and body_bytes > limit:
            self.fail(BodyTooLarge(f"The request body is larger than {limit} bytes."))
            return
        if sandbox is None:
            return
        self.client.deadline_at = time.monotonic() + self._options.stream_idle_timeout_s
        if self._unsent_head:
            pieces.insert(0, self._unsent_head)
            self._unsent_head = b""
        sandbox.writelines(pieces)

    def request_ends(self, trailers: list[tuple[bytes, bytes]]) -> None:
        """The request's body is complete."""
        self._sending_becomes(_SENT)
        if self.sandbox is None:
            return
        if self.head.is_chunked:
            self.sandbox.write(self._unsent_head + last_chunk(trailers))
            self._unsent_head = b""
        if self.receiving is _AWAITED:
            # An upload's time to respond counts from its end.
            self.client.deadline_at = time.monotonic() + self.timeout_s

    def client_left(self) -> None:
        """The client is gone: nothing more is wanted from the sandbox."""
        if self.receiving is _ENDED:
            return
        is_begun = self.response_started
        self.outcome.client_left(None if self.sandbox is None else self.permit, has_begun=is_begun)
        self._drop_sandbox()
        (self._cut if is_begun else self._end)()

    def on_deadline(self, now: float) -> None:
        """Called by the client's connection when its `deadline_at` has passed."""
        sandbox, started = self.sandbox, self.response_started
        if sandbox is not None and sandbox.is_writable and not (started or self.is_whole):
            self.fail(RequestTimeout("The request body stopped arriving."))
            return
        if not started or self.client.is_writable:  # else the client stopped reading
            self.outcome.upstream_error = "response_timeout"
        reason = "nothing moved for stream-idle-timeout" if started else ""
        self.fail(SandboxTimeout.of(self.outcome.sandbox, reason=reason))

    # --- called by the sandbox's connection ---

    def response_interim(self, heads: list[ResponseHead]) -> None:
        """1xx responses: passed on, except to HTTP/1.0 clients, which know none (RFC 9110 §15.2)."""
        if self.head.version == 11:
            assert self.sandbox is not None
            host, mode = self.sandbox.host, self._options.path_mode
            cross = partial(crossing_response_head, drop_chunked=True)
            self.client.write(b"".join([cross(h, scope=self.scope(h, host, mode)) for h in heads]))

    def response_whole(
        self, head: ResponseHead, reader: BodyReader | None, pieces: list[bytes], *, clean: bool
    ) -> None:
        """A response that came in one piece; without a reader its length says how. `clean`: nothing came behind it."""
        has_length = reader is None or isinstance(reader, LengthReader)
        data = self._begin_response(head, has_length=has_length)
        if reader is not None:
            pieces = self._last_pieces(reader, pieces)
        elif pieces:
            self.outcome.bytes_to_client = len(pieces[0])
        self._finish([data, *pieces], clean=clean)

    def response_begins(self, head: ResponseHead, reader: BodyReader, pieces: list[bytes]) -> None:
        """The final head, with what came of a body that goes on."""
        data = self._begin_response(head, has_length=isinstance(reader, LengthReader))
        self.client.deadline_at = time.monotonic() + self._options.stream_idle_timeout_s
        self.outcome.bytes_to_client = reader.body_bytes
        self.client.writelines([data, *(chunk(pieces) if self._adds_chunks else pieces)])

    def response_data(self, reader: BodyReader, pieces: list[bytes]) -> None:
        """More of the response's body."""
        if pieces:
            self.outcome.bytes_to_client = reader.body_bytes
            self.client.deadline_at = time.monotonic() + self._options.stream_idle_timeout_s
            self.client.writelines(chunk(pieces) if self._adds_chunks else pieces)

    def response_ends(self, reader: BodyReader, pieces: list[bytes], *, clean: bool) -> None:
        """The last of the response. `clean`: nothing came behind it and the connection is still open."""
        self._finish(self._last_pieces(reader, pieces), clean=clean)

    def response_upgraded(self, head: ResponseHead, data: bytes) -> None:
        """A 101: from here on only bytes cross, of which `data` came already. Raises BadResponse for what nobody asked for."""
        sandbox, client, options = self.sandbox, self.client, self._options
        assert sandbox is not None
        if self.head.upgrade is None or not self.is_whole:
            raise BadResponse(reason="a 101 that was not asked for")
        protocol = chosen_protocol(head, self.head.upgrade)
        self.outcome.first_byte_s = time.monotonic() - self._sent_at
        self.begins_tunnel()
        tunnel = Tunnel(
            owner=self, client=client, sandbox=sandbox, protocol=protocol, options=options
        )
        tunnel.open(head, data, scope=self.scope(head, sandbox.host, options.path_mode))
        if self.outcome.trace is None:
            self.head.forget_lines()

    def begins_tunnel(self) -> None:
        """Notes the 101: from here on it only waits for tunnel_ended()."""
        self.outcome.switched()
        self._receiving_becomes(Receiving.TUNNEL)
        self._telemetry.tunnel_opened()

    def response_broken(self, error: BadResponse) -> None:
        """The sandbox's bytes make no response, or the response was cut."""
        self.outcome.upstream_error = "response_cut" if self.response_started else "bad_response"
        self.fail(error)

    def sandbox_left(self, why: str) -> None:
        """The connection ended before any byte of a response."""
        self.outcome.upstream_error = "closed_early"
        if self.is_reused and self.is_repeatable:
            # An idle connection that the sandbox was just closing; nothing was executed (RFC 9110 §9.2.2).
            self.sandbox = None
            self._sending_becomes(_HELD)
            self.outcome.upstream_error = ""
            self.outcome.retries += 1
            self._telemetry.upstream_retried()
            self._reopener.reopen(self)
            return
        self.fail(BadResponse("The sandbox closed the connection before it answered.", reason=why))

    # --- the response and the end ---

    def _begin_response(self, head: ResponseHead, *, has_length: bool) -> bytes:
        """Returns the head that the client is sent, and decides whether its connection goes on."""
        client, asked, sandbox = self.client, self.head, self.sandbox
        assert sandbox is not None
        assert self.receiving is _AWAITED, repr(self)
        self.receiving = _RECEIVING_BODY
        outcome = self.outcome
        outcome.status = head.status
        outcome.first_byte_s = time.monotonic() - self._sent_at
        is_old = asked.version == 10
        self._ends_chunked = not (has_length or is_old)
        self._is_delimited = has_length or not is_old
        self._adds_chunks = self._ends_chunked and not head.is_chunked
        may_go_on = client.may_keep_alive(asked) and (has_length or not is_old)
        if asked.expects_continue and not self.is_whole and not outcome.bytes_from_client:
            # The client may send the body now or never: nothing behind this response can be framed.
            may_go_on = False
        client.keep_alive = may_go_on
        if not head.keep_alive:
            sandbox.is_retired = True
        connection = (b"keep-alive" if is_old else b"") if may_go_on else b"close"
        return crossing_response_head(
            head,
            add_chunked=self._adds_chunks,
            drop_chunked=is_old or head.status == 204,
            connection=connection,
            is_private=self.is_ambient,
            scope=self.scope(head, sandbox.host, self._options.path_mode)
            if head.kinds & SCOPED
            else None,
        )

    def _last_pieces(self, reader: BodyReader, pieces: list[bytes]) -> list[bytes]:
        self.outcome.bytes_to_client = reader.body_bytes
        out = chunk(pieces) if self._adds_chunks else pieces
        if self._ends_chunked:
            out.append(last_chunk(reader.trailers if isinstance(reader, ChunkedReader) else []))
        return out

    def _finish(self, out: list[bytes], *, clean: bool) -> None:
        sandbox, client = self.sandbox, self.client
        assert sandbox is not None
        self.sandbox = None
        is_whole = self.sending is _SENT or not self.head.has_body
        if clean and is_whole and not sandbox.is_retired:
            sandbox.release()
        else:
            sandbox.close()
        if out and client.transport is not None:
            client.transport.write(out[0] if len(out) == 1 else b"".join(out))
        self._end()
        client.exchange_done()

    def tunnel_ended(self, code: str, *, from_client: int, to_client: int, moved_at: float) -> None:
        """Called once by the Tunnel."""
        self.outcome.tunnelled(code, from_client, to_client, moved_at)
        self.sandbox = None
        self._end()

    def _drop_sandbox(self) -> None:
        sandbox, task = self.sandbox, self.task
        self.sandbox = self.task = None
        if sandbox is not None:
            sandbox.close()
        if task is not None:
            task.cancel()

    def _cut(self) -> None:
        self._receiving_becomes(_ENDED)
        self.give_slots_back()
        tell, permit = self._telemetry.request_finished, self.permit
        delivery = Delivery(self.outcome, self.started_at, tell, permit)
        self.client.cut(delivery, is_delimited=self._is_delimited)

    def _end(self) -> None:
        assert _ENDED in RECEIVING_NEXT[self.receiving], repr(self)
        self.receiving = _ENDED
        self.outcome.ended(self.started_at, self.permit)
        if self.slots is not None:
            self.give_slots_back()
        self._telemetry.request_finished(self.outcome)

    def _sending_becomes(self, state: Sending) -> None:
        assert state in SENDING_NEXT[self.sending], f"{self!r} -> {state!r}"
        self.sending = state

    def _receiving_becomes(self, state: Receiving) -> None:
        assert state in RECEIVING_NEXT[self.receiving], f"{self!r} -> {state!r}"
        self.receiving = state
