"""The load that opens connections: each makes a TLS handshake, asks once, and closes."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
from collections.abc import Sequence
from functools import partial
from typing import cast

from bench import answers
from bench.certificates import NAME
from bench.loads import Aim, Measured, Span, measured_of, window
from bench.tally import Tally

_AT_ONCE = 16
_TIMEOUT_S = 10.0


class HandshakeClient(asyncio.Protocol):
    """One connection: a handshake, full or with the session given, a request, its answer, and the end.

    The event loop's own TLS can't resume sessions, so this one is its own.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        session: ssl.SSLSession | None,
        request: bytes,
        body: bytes,
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=NAME, session=session
        )
        self._resumes = session is not None
        self._request = request
        self._body = body
        self._answer = b""
        self._is_secure = False
        loop = asyncio.get_running_loop()
        self.finished: asyncio.Future[str] = loop.create_future()
        """What went wrong, "" when nothing did."""
        self._transport: asyncio.Transport

    @property
    def session(self) -> ssl.SSLSession | None:
        """What a later connection can resume."""
        return self._tls.session

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's isn't a subclass
        self._step()

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        self._step()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"the connection ended: {exc or 'closed by the proxy'}")

    def _step(self) -> None:
        try:
            if not self._is_secure:
                self._tls.do_handshake()
                self._is_secure = True
                if self._resumes and not self._tls.session_reused:
                    self._end("the session was not resumed")
                    return
                self._tls.write(self._request)
            while piece := self._tls.read(65_536):
                self._answer += piece
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as exc:
            self._end(f"TLS: {exc}")
            return
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())
        head = answers.read_head(self._answer)
        if head is not None and len(self._answer) >= head.size + (head.length or 0):
            is_right = head.status == 200 and self._answer[head.size :] == self._body
            self._end("" if is_right else f"answered {self._answer[:60]!r}")

    def _end(self, problem: str) -> None:
        if not self.finished.done():
            self.finished.set_result(problem)
            self._transport.close()


async def handshakes(
    aim: Aim, span: Span, requests: Sequence[bytes], *, resumed: bool, body: bytes
) -> Measured:
    """Sixteen connections at a time, each new as soon as the last has its answer; µs per connection."""
    assert aim.tls is not None
    context = aim.tls
    tally = Tally()
    pool = itertools.cycle(requests)
    loop = asyncio.get_running_loop()
    running = True

    async def one_after_the_other() -> None:
        session: ssl.SSLSession | None = None
        while running and not tally.errors:
            begun = time.monotonic_ns()
            _transport, client = await loop.create_connection(
                partial(HandshakeClient, context, session, next(pool), body),
                "127.0.0.1",
                aim.port,
            )
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    problem = await client.finished
            except TimeoutError:
                problem = f"no answer within {_TIMEOUT_S:.0f} s"
            if problem:
                tally.failed(problem)
            else:
                tally.answered(begun)
                session = client.session if resumed else None

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(one_after_the_other())
        count, used = await window(tally, aim.meter, span)
        running = False
    return measured_of(tally, used, units=count, scale=1e6)
