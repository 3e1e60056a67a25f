"""Exchange: one request and its response, between a client's connection and a sandbox's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from router.auth.authenticator import Authenticated
from router.auth.authorizer import Permit
from router.errors import (
    BadResponse,
    BodyTooLarge,
    RequestTimeout,
    RouterError,
    SandboxTimeout,
)
from router.proxy.outcome import Outcome
from router.proxy.slots import Slot
from router.proxy.tunnel import open_tunnel
from router.proxy.wire.forwarding import crossing_request_head
from router.proxy.wire.framing import BodyReader, ChunkedReader, LengthReader, chunk, last_chunk
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.response_head import ResponseHead
from router.proxy.wire.rewriting import ResponseScope, crossing_response_head
from router.routing.target import Target, forwarded_target

if TYPE_CHECKING:
    from router.proxy.downstream import Downstream
    from router.proxy.gateway import Gateway
    from router.proxy.upstream import Upstream

CLIENT_CLOSED: Final = 499
"""The status that logs and metrics show when the client left before an answer began (nginx's number)."""
_AUTHZ_DECISIONS: Final = {
    "forbidden": "denied",
    "unauthenticated": "unauthenticated",
    "auth_unavailable": "unavailable",
}
_REPEATABLE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})


class Exchange:
    """Made by Downstream for each request head; the Gateway finds it an Upstream; then it relays until both sides end.

    It ends exactly once, in _end(), which tells the Telemetry.
    """

    __slots__ = (
        "_adds_chunks",
        "_ended",
        "_ends_chunked",
        "_request_ended",
        "_response_started",
        "_sent_at",
        "_unsent_head",
        "authenticated",
        "downstream",
        "gateway",
        "head",
        "is_reused",
        "outcome",
        "permit",
        "slots",
        "started_at",
        "target",
        "task",
        "timeout_s",
        "upstream",
    )

    def __init__(
        self, gateway: Gateway, downstream: Downstream, head: RequestHead, outcome: Outcome
    ) -> None:
        self.gateway = gateway
        self.downstream = downstream
        self.head = head
        self.outcome = outcome
        self.started_at = time.monotonic()
        self.timeout_s = gateway.proxy_timeout_s
        self.target: Target | None = None
        self.authenticated: Authenticated | None = None
        self.permit: Permit | None = None
        self.upstream: Upstream | None = None
        self.is_reused = False
        self.task: asyncio.Task[None] | None = None
        """What looks for an Upstream while that can't be done at once."""
        self.slots: list[Slot] | None = None
        """Places of limits that this exchange holds; None before they were asked for."""
        self._request_ended = not head.has_body
        self._response_started = False
        self._ended = False
        self._adds_chunks = False
        """The body has no length: each piece becomes a chunk."""
        self._ends_chunked = False
        self._sent_at = 0.0
        self._unsent_head = b""
        """The request's head, while it waits for the first of the body to go out with it."""

    def __repr__(self) -> str:
        return (
            f"<Exchange {self.head.method!r} request_ended={self._request_ended} "
            f"response_started={self._response_started} ended={self._ended}>"
        )

    @property
    def is_repeatable(self) -> bool:
        """True when the request may be sent again if a reused connection closes before any byte of an answer."""
        return self.head.method in _REPEATABLE and not self.head.has_body

    @property
    def response_started(self) -> bool:
        """True once bytes of a final answer are out: from then on there is no error answer any more."""
        return self._response_started

    # --- called by the gateway ---

    def attach(self, upstream: Upstream, *, is_reused: bool) -> None:
        """Sends the request on this connection."""
        assert self.target is not None
        assert self.authenticated is not None
        gateway, head, downstream = self.gateway, self.head, self.downstream
        keeps_path = gateway.keeps_path(self)
        if not keeps_path and gateway.sent_to_slash(self, upstream):
            return
        self.upstream = upstream
        self.is_reused = is_reused
        upstream.exchange = self
        now = self._sent_at = time.monotonic()
        if self._request_ended:
            downstream.deadline_at = self._answer_deadline(now)
        else:
            downstream.deadline_at = now + gateway.stream_idle_timeout_s
        if not downstream.is_writable:
            upstream.pause_reading()
        data = crossing_request_head(
            head,
            target=forwarded_target(self.target, head.target, keeps_path=keeps_path),
            host=head.host if gateway.preserve_host and head.host else upstream.host,
            peer=downstream.peer,
            keep_authorization=not self.authenticated.consumed_authorization,
            origin_policy=gateway.origin_policy,
            path_root=b"" if keeps_path else self.target.path_root,
            stripped=gateway.stripped,
        )
        if self._request_ended:
            upstream.write(data)
        else:
            self._unsent_head = data
            downstream.pump_body()
            if self._unsent_head:
                self._unsent_head = b""
                upstream.write(data)

    def fail(self, error: RouterError) -> None:
        """Ends with an error of the router's own: an answer while that is possible, else a visible cut."""
        if self._ended:
            return
        self._drop_upstream()
        outcome = self.outcome
        outcome.error_reason = error.reason or outcome.error_reason
        if self._response_started:
            outcome.code = "response_cut"
            self._end()
            self.downstream.cut()
            return
        outcome.code = error.code
        outcome.status = error.status
        if error.code in _AUTHZ_DECISIONS:
            outcome.authz = _AUTHZ_DECISIONS[error.code]
        self._end()
        self.downstream.answer_error(error, self.head)

    def answered_here(self, status: int, answer: Callable[..., bytes]) -> None:
        """Ends with an answer that is no error and needs no sandbox."""
        downstream = self.downstream
        downstream.keep_alive = downstream.may_keep_alive(self.head) and self._request_ended
        self.outcome.status = status
        self._end()
        downstream.write(
            answer(is_head=self.head.method == b"HEAD", close=not downstream.keep_alive)
        )
        downstream.exchange_done()

    # --- called by the downstream ---

    def request_data(self, pieces: list[bytes], body_bytes: int) -> None:
        """Passes body bytes (framed as they came) on; `body_bytes` is the body's size so far, framing apart."""
        self.outcome.bytes_from_client = body_bytes
        limit = self.gateway.max_body_bytes
        if limit and body_bytes > limit:
            self.fail(BodyTooLarge(f"The request body is larger than {limit} bytes."))
            return
        upstream = self.upstream
        if upstream is None:
            return
        self.downstream.deadline_at = time.monotonic() + self.gateway.stream_idle_timeout_s
        if self._unsent_head:
            pieces.insert(0, self._unsent_head)
            self._unsent_head = b""
        upstream.writelines(pieces)

    def request_ends(self, trailers: list[tuple[bytes, bytes]]) -> None:
        """The request's body is complete."""
        self._request_ended = True
        if self.upstream is None:
            return
        if self.head.is_chunked:
            self.upstream.write(self._unsent_head + last_chunk(trailers))
            self._unsent_head = b""
        if not self._response_started:
            self.downstream.deadline_at = self._answer_deadline(time.monotonic())

    def client_left(self) -> None:
        """The client is gone: nothing more is wanted from the sandbox."""
        if self._ended:
            return
        self._drop_upstream()
        if not self._response_started:
            self.outcome.status = CLIENT_CLOSED
        self.outcome.code = "client_closed"
        self._end()

    def on_deadline(self, now: float) -> None:
        """Called by the downstream when its `deadline_at` has passed."""
        upstream, started = self.upstream, self._response_started
        if upstream is not None and upstream.is_writable and not (started or self._request_ended):
            self.fail(RequestTimeout("The request body stopped arriving."))
            return
        if not started or self.downstream.is_writable:  # else the client stopped reading
            self.outcome.upstream_error = "response_timeout"
        reason = "nothing moved for stream-idle-timeout" if started else ""
        self.fail(SandboxTimeout.of(self.outcome.sandbox, reason=reason))

    # --- called by the upstream ---

    def response_interim(self, head: ResponseHead) -> None:
        """A 1xx answer: passed on, except to HTTP/1.0 clients, which know none (RFC 9110 §15.2)."""
        if self.head.version == 11:
            scope = self._scope(head)
            self.downstream.write(crossing_response_head(head, drop_chunked=True, scope=scope))

    def response_begins(
        self,
        head: ResponseHead,
        reader: BodyReader | None,
        pieces: list[bytes],
        *,
        ended: bool,
        clean: bool,
    ) -> None:
        """The final head, with what came of the body. `clean`: nothing came behind the answer."""
        downstream = self.downstream
        outcome = self.outcome
        now = time.monotonic()
        outcome.status = head.status
        outcome.first_byte_s = now - self._sent_at
        self._response_started = True
        is_old = self.head.version == 10
        has_length = reader is None or isinstance(reader, LengthReader)
        self._ends_chunked = not has_length and not is_old
        self._adds_chunks = self._ends_chunked and not isinstance(reader, ChunkedReader)
        may_go_on = downstream.may_keep_alive(self.head) and not (is_old and not has_length)
        if (
            self.head.expects_continue
            and not self._request_ended
            and not self.outcome.bytes_from_client
        ):
            # The client may send the body now or never: nothing behind this answer can be framed.
            may_go_on = False
        downstream.keep_alive = may_go_on
        connection = b"" if may_go_on else b"close"
        if is_old and may_go_on:
            connection = b"keep-alive"
        data = crossing_response_head(
            head,
            add_chunked=self._adds_chunks,
            drop_chunked=is_old or head.status == 204,
            connection=connection,
            scope=self._scope(head),
        )
        if not head.keep_alive and self.upstream is not None:
            self.upstream.is_retired = True
        if ended:
            self._finish(data, reader, pieces, clean=clean)
            return
        downstream.deadline_at = now + self.gateway.stream_idle_timeout_s
        if reader is not None:
            outcome.bytes_to_client = reader.body_bytes
        downstream.writelines([data, *(chunk(pieces) if self._adds_chunks else pieces)])

    def response_data(self, reader: BodyReader, pieces: list[bytes]) -> None:
        """More of the answer's body."""
        if pieces:
            self.outcome.bytes_to_client = reader.body_bytes
            self.downstream.deadline_at = time.monotonic() + self.gateway.stream_idle_timeout_s
            self.downstream.writelines(chunk(pieces) if self._adds_chunks else pieces)

    def response_ends(self, reader: BodyReader, pieces: list[bytes], *, clean: bool) -> None:
        """The last of the answer. `clean`: nothing came behind it and the connection is still open."""
        self._finish(b"", reader, pieces, clean=clean)

    def _finish(
        self, data: bytes, reader: BodyReader | None, pieces: list[bytes], *, clean: bool
    ) -> None:
        if reader is not None:
            self.outcome.bytes_to_client = reader.body_bytes
        out = [data] if data else []
        out += chunk(pieces) if self._adds_chunks else pieces
        if self._ends_chunked:
            out.append(last_chunk(reader.trailers if isinstance(reader, ChunkedReader) else []))
        downstream = self.downstream
        upstream = self.upstream
        assert upstream is not None
        self.upstream = None
        upstream.exchange = None
        request_ended = self._request_ended
        if clean and request_ended and not upstream.is_retired:
            self.gateway.pool.release(upstream)
        else:
            upstream.close()
        if out:
            downstream.write(out[0] if len(out) == 1 else b"".join(out))
        self._end()
        downstream.exchange_done()

    def response_upgraded(self, head: ResponseHead, data: bytes) -> None:
        """A 101: from here on only bytes cross, of which `data` came already. Raises BadResponse when nobody asked for it."""
        if self.head.upgrade is None or not self._request_ended:
            raise BadResponse(reason="a 101 that was not asked for")
        self.outcome.first_byte_s = time.monotonic() - self._sent_at
        open_tunnel(self, head, data, scope=self._scope(head))
        self._response_started = True

    def response_broken(self, error: BadResponse) -> None:
        """The sandbox's bytes make no answer, or the answer was cut."""
        self.outcome.upstream_error = "response_cut" if self._response_started else "bad_response"
        self.fail(error)

    def sandbox_left(self, reason: str) -> None:
        """The connection ended before any byte of an answer."""
        upstream = self.upstream
        self.outcome.upstream_error = "closed_early"
        if self.is_reused and self.is_repeatable:
            # An idle connection that the sandbox was just closing; nothing was executed (RFC 9110 §9.2.2).
            if upstream is not None:
                upstream.exchange = None
                self.upstream = None
            self.outcome.upstream_error = ""
            self.outcome.retries += 1
            self.gateway.telemetry.upstream_retried()
            self.gateway.dial_again(self)
            return
        self.fail(
            BadResponse("The sandbox closed the connection before it answered.", reason=reason)
        )

    # --- the end ---

    def tunnel_ended(self, code: str, *, from_client: int, to_client: int) -> None:
        """Called once by the Tunnel."""
        self.outcome.bytes_from_client += from_client
        self.outcome.bytes_to_client = to_client
        self.outcome.code = code
        self.upstream = None
        self._end()

    def _drop_upstream(self) -> None:
        upstream = self.upstream
        if upstream is not None:
            self.upstream = None
            upstream.exchange = None
            upstream.close()
        task = self.task
        if task is not None:
            self.task = None
            task.cancel()

    def _end(self) -> None:
        self._ended = True
        outcome = self.outcome
        outcome.total_s = time.monotonic() - self.started_at
        for slot in self.slots or ():
            slot.give_back()
        self.gateway.telemetry.request_finished(outcome)

    def _answer_deadline(self, now: float) -> float:
        """Until when the answer must begin: counted from the request's start, or for uploads from their end."""
        start = now if self.head.has_body else self.started_at
        return start + self.timeout_s

    def _scope(self, head: ResponseHead) -> ResponseScope | None:
        """Returns what the head is judged by, None when it needs no such judgement."""
        target, upstream = self.target, self.upstream
        if not head.needs_scope or target is None or upstream is None:
            return None
        keeps_path, peer = self.gateway.keeps_path(self), self.downstream.peer
        return ResponseScope.of(target, self.head, peer, upstream.host, keeps_path=keeps_path)
