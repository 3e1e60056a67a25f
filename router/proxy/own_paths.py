"""OwnPaths: what the router itself answers under /.sandbox-router/, for a caller who may call the sandbox that was named.

    POST /.sandbox-router/awake     counts as activity of the sandbox for as long as the body says
    GET  /.sandbox-router/tcp       becomes a TCP connection to the sandbox (raw_connection.py)
    GET  /.sandbox-router/session   begins a session of a person's browser (session_paths.py)
    POST /.sandbox-router/logout    ends it

The whole prefix is the router's, in each way of naming a sandbox: no sandbox sees it, whatever comes to be answered here.
"""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import orjson

from router.auth.anonymous import PUBLIC
from router.auth.authorizer import Permit
from router.errors import (
    BadRequest,
    Draining,
    MethodNotAllowed,
    NoSuchRouterPath,
    RouterError,
    Unauthenticated,
)
from router.proxy.exchange import Exchange
from router.proxy.ports import SandboxRelay, Writer
from router.proxy.raw_connection import check_handshake
from router.proxy.request import Request
from router.proxy.session_paths import AnsweredHere, SessionPaths
from router.proxy.wire.framing import BodyReader, ChunkedReader, FramingError, LengthReader, untaken
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.response_head import parse_response
from router.proxy.wire.router_paths import AWAKE, LOGOUT, SESSION, TCP, own_path
from router.routing.endpoint import Endpoint
from router.tasks import TaskSet

_MAX_BODY: Final = 4096
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_FORM: Final = 'The body is JSON like {"seconds": 3600}.'


class Awake(Protocol):
    """Who remembers which sandboxes are to be kept awake."""

    async def keep_awake(self, endpoint: Endpoint, seconds: float) -> float:
        """Counts as activity of the sandbox for so long. Returns for how many seconds it is kept awake, once that is safe.

        Raises RouterError when nobody can be sure of that.
        """
        ...


class OwnPaths:
    """Answers the permitted requests that are for the router."""

    def __init__(
        self,
        *,
        awake: Awake,
        awake_limit_s: float,
        tasks: TaskSet,
        sessions: SessionPaths | None = None,
        connects: bool = False,
    ) -> None:
        """`tasks` owns what an answer has to wait for. Without `sessions` there are none, without `connects` no raw connections."""
        self._connects = connects
        self.tasks = tasks
        self._sessions = sessions
        self._awake = awake
        self._awake_limit_s = awake_limit_s

    def __repr__(self) -> str:
        return f"<OwnPaths awake_limit_s={self._awake_limit_s:g}>"

    def answering(self, request: Request) -> Answering | AnsweredHere | None:
        """Returns what answers a permitted request in the sandbox's stead, None for a raw connection. Raises what check() does."""
        self.check(request)
        if request.is_raw:
            return None
        if self._sessions is not None:
            answered = self._sessions.answering(request)
            if answered is not None:
                return answered
        return Answering(self, request.head)

    def check(self, request: Request) -> None:
        """Refuses what is refused in any case, so that it waits for no sandbox and wakes none.

        Raises NoSuchRouterPath, MethodNotAllowed, BadRequest, CrossOrigin, Unauthenticated.
        """
        assert request.target is not None
        head = request.head
        path = own_path(head.target, request.target.path_root)
        if self._sessions is not None and path in (SESSION, LOGOUT):
            self._sessions.check(path, request)
            return
        if path == TCP and self._connects:
            check_handshake(request)
            return
        if path != AWAKE:
            raise NoSuchRouterPath
        if request.authenticated is not None and request.authenticated.principal is PUBLIC:
            raise Unauthenticated("A public port is no right to keep its sandbox awake.")
        if head.method != b"POST":
            raise MethodNotAllowed(allow="POST")
        if head.content_length is not None and head.content_length > _MAX_BODY:
            raise _too_large()

    async def keep_awake(self, endpoint: Endpoint, body: bytes) -> bytes:
        """Returns the answer to a wish. Raises BadRequest, and what the Awake raises."""
        left_s = await self._awake.keep_awake(endpoint, self._seconds(body))
        until = datetime.now(UTC) + timedelta(seconds=left_s)
        told = {"awake_until": until.replace(microsecond=0), "seconds": math.floor(left_s)}
        return orjson.dumps(told, option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE)

    def _seconds(self, body: bytes) -> float:
        try:
            wish = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise BadRequest(f"The body is no JSON. {_FORM}") from None
        if not isinstance(wish, dict) or set(wish) != {"seconds"}:
            raise BadRequest(f"The body must name seconds, and nothing else. {_FORM}")
        seconds = wish["seconds"]
        limit_s = self._awake_limit_s
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
            raise BadRequest(f"seconds must be a number above 0. {_FORM}")
        if seconds > limit_s:
            raise BadRequest(f"seconds is at most {limit_s:g} here (awake-limit).")
        return float(seconds)


class Answering:
    """Stands where a sandbox's connection would: it is written the request, and gives the response."""

    __slots__ = (
        "_body",
        "_exchange",
        "_has_head",
        "_head",
        "_own",
        "_reader",
        "host",
        "is_retired",
        "is_writable",
    )

    def __init__(self, own: OwnPaths, head: RequestHead) -> None:
        self.host = b"sandbox-router"
        self.is_retired = False
        self.is_writable = True
        self._own = own
        self._exchange: Exchange | None = None
        self._head = head
        self._has_head = False
        self._body: list[bytes] = []
        self._reader: BodyReader = (
            ChunkedReader() if head.is_chunked else LengthReader(head.content_length or 0)
        )

    @property
    def transport(self) -> Writer:
        return self

    def carry(self, exchange: Exchange, *, is_reused: bool) -> None:
        """Takes the exchange's request, and gives it the response."""
        self._exchange = exchange
        exchange.attach(self, is_reused=is_reused)

    def write(self, data: bytes) -> None:
        if not self._has_head:
            self._has_head = True
            data = data.partition(b"\r\n\r\n")[2]
            if self._head.expects_continue and not data:
                # Later: whoever writes is still within the beginning of the exchange.
                asyncio.get_running_loop().call_soon(self._continue)
        end = -1
        try:
            if data or not self._head.has_body:
                end = self._reader.feed(data, self._body)
            while rest := untaken(self._reader, data):
                data = rest
                end = self._reader.feed(data, self._body)
        except FramingError:
            return  # the client's side has noticed too
        if end >= 0 or self._reader.body_bytes > _MAX_BODY:
            asyncio.get_running_loop().call_soon(self._answer)

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def _continue(self) -> None:
        exchange = self._awaited()
        if exchange is not None:
            exchange.response_interim([parse_response(_CONTINUE)])

    def _answer(self) -> None:
        exchange = self._awaited()
        if exchange is None:
            return
        if self._reader.body_bytes > _MAX_BODY:
            exchange.fail(_too_large())
            return
        assert exchange.permit is not None
        try:
            self._own.tasks.start(self._keep_awake(exchange, exchange.permit), name="keep awake")
        except RuntimeError:
            exchange.fail(Draining())

    async def _keep_awake(self, exchange: Exchange, permit: Permit) -> None:
        try:
            body = await self._own.keep_awake(permit.endpoint, b"".join(self._body))
        except RouterError as error:
            exchange.fail(error)
            return
        if self._awaited() is None:
            return  # the client has left, or its time is over
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        exchange.response_whole(parse_response(head), None, [body], clean=True)

    def _awaited(self) -> Exchange | None:
        """Returns the exchange while it still waits for its response."""
        exchange = self._exchange
        if exchange is None or exchange.sandbox is not self or exchange.response_started:
            return None
        return exchange

    # --- what a connection does otherwise ---

    def write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        """There is nothing to read."""

    def resume_reading(self) -> None:
        """There is nothing to read."""

    def resume_if_wanted(self) -> None:
        """There is nothing to read."""

    def release(self) -> None:
        """Nobody else waits for it."""

    def close(self) -> None:
        """There is nothing to close."""

    def close_after_flush(self) -> None:
        """There is nothing to close."""

    def reset(self) -> None:
        """There is nothing to end."""

    def start_tunnel(self, tunnel: SandboxRelay) -> None:
        raise AssertionError("it never switches protocols")


def _too_large() -> BadRequest:
    return BadRequest(f"The body is larger than {_MAX_BODY} bytes. {_FORM}")
