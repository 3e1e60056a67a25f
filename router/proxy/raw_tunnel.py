"""RawTunnel: a client's WebSocket whose binary frames are the bytes of a TCP connection to a sandbox.

Its ends, as the client is told them:

    the sandbox's FIN        1000, behind everything that it sent
    the sandbox's RST        1011
    revoked or expired       1008
    drained, idle, too old   1001
    a broken frame           1002; text 1003

The client's Close with 1000 or without a code is a FIN to the sandbox, whose rest still comes. Any other end of the client
resets the sandbox's connection: what was cut must not look whole there.
"""

from __future__ import annotations

import time
from typing import Final

from router.proxy.options import NEVER, ProxyOptions
from router.proxy.ports import ClientSide, SandboxSide
from router.proxy.tunnel import TunnelOwner
from router.proxy.wire.frame_reader import NO_CODE, FrameError, FrameReader
from router.proxy.wire.websocket import (
    PING,
    CloseCode,
    binary_header,
    close_frame,
    pong_frame,
)

_PING_EVERY_S: Final = 20.0
"""Below the time after which load balancers and NATs forget a silent connection. No ping or pong is activity."""
_SMALL_BYTES: Final = 8192
"""Pieces below this are put together: that costs less than handing the kernel each (bench/connect.py)."""


class RawTunnel:
    """Relays between frames and bytes until one side has ended, or a limit is reached."""

    __slots__ = (
        "_bytes_from_client",
        "_bytes_to_client",
        "_client",
        "_client_closed",
        "_ended",
        "_ends_at",
        "_frames",
        "_idle_s",
        "_owner",
        "_ping_at",
        "_sandbox",
        "deadline_at",
        "moved_at",
    )

    def __init__(
        self,
        *,
        owner: TunnelOwner,
        client: ClientSide,
        sandbox: SandboxSide,
        options: ProxyOptions,
    ) -> None:
        self._owner = owner
        self._client = client
        self._sandbox = sandbox
        self._frames = FrameReader(is_masked=True)
        now = time.monotonic()
        self._idle_s = options.tunnel_idle_timeout_s
        self._ends_at = now + options.tunnel_max_lifetime_s
        self._ping_at = now + _PING_EVERY_S
        self.moved_at = now
        """When (monotonic seconds) a byte of the TCP connection crossed last."""
        self._client_closed = False
        """The client has sent its Close frame: it says no more, and still hears the sandbox."""
        self._ended = False
        self._bytes_from_client = 0
        self._bytes_to_client = 0
        self.deadline_at = self._next_deadline()

    def __repr__(self) -> str:
        return f"<RawTunnel client_closed={self._client_closed} ended={self._ended}>"

    @property
    def sandbox_is_writable(self) -> bool:
        return self._sandbox.is_writable

    @property
    def client_is_writable(self) -> bool:
        return self._client.is_writable

    def open(self, answer: bytes) -> None:
        """Sends the client the 101, and takes over both connections."""
        self._client.write(answer)
        self._sandbox.start_tunnel(self)
        self._client.start_tunnel(self)

    # --- bytes ---

    def from_client(self, data: bytes) -> None:
        if self._client_closed or self._ended:
            return
        frames = self._frames
        pieces: list[bytes] = []
        try:
            taken = frames.feed(data, pieces)
        except FrameError as error:
            self._finish("tunnel_bad_frame", close_frame(error.code, error.reason), is_cut=True)
            return
        if pieces:
            self.moved_at = time.monotonic()
            size = sum(map(len, pieces))
            self._bytes_from_client += size
            if size < _SMALL_BYTES * len(pieces):
                pieces = [b"".join(pieces)]
            self._sandbox.writelines(pieces)
        if frames.ping is not None and self._client.is_writable:
            self._answer_ping(frames.ping)
        if frames.close_code:
            self._client_closes(frames.close_code)
        elif taken < len(data):
            self._client.put_off(data[taken:])

    def from_sandbox(self, data: bytes) -> None:
        if self._ended:
            return
        self.moved_at = time.monotonic()
        self._bytes_to_client += len(data)
        self._client.writelines([binary_header(len(data)), data])

    def _answer_ping(self, payload: bytes) -> None:
        self._frames.ping = None
        self._client.write(pong_frame(payload))

    # --- ends ---

    def _client_closes(self, code: int) -> None:
        self._client_closed = True
        if code not in (CloseCode.NORMAL, NO_CODE):
            self._finish("client_closed", close_frame(CloseCode.NORMAL, ""), is_cut=True)
        elif not self._sandbox.write_eof():
            self._finish("", close_frame(CloseCode.NORMAL, ""), is_cut=False)

    def client_eof(self) -> bool:
        """The client's TCP has ended. Returns True to keep its connection for what the sandbox still says."""
        if self._client_closed and not self._client.peer.is_tls:
            return True
        self.client_lost()
        return False

    def sandbox_eof(self) -> bool:
        """The sandbox has said everything: so the client is told."""
        self._finish("", close_frame(CloseCode.NORMAL, ""), is_cut=False)
        return False

    def client_lost(self) -> None:
        self._finish("client_closed", None, is_cut=True)

    def sandbox_lost(self) -> None:
        reason = "the sandbox reset the connection"
        self._finish("tunnel_cut", close_frame(CloseCode.INTERNAL_ERROR, reason), is_cut=True)

    def close(self, code: CloseCode, reason: str, outcome_code: str) -> None:
        """Ends it from this side, and tells the client why."""
        self._finish(outcome_code, close_frame(code, reason), is_cut=True)

    def give_up(self) -> None:
        """Ends at once: one side doesn't read, and others need the memory."""
        self._finish("tunnel_overloaded", None, is_cut=True)

    def on_deadline(self, now: float) -> None:
        """Called by the client's connection when `deadline_at` has passed."""
        if now >= self._ends_at:
            reason = "the longest time for a connection is over"
            self.close(CloseCode.GOING_AWAY, reason, "tunnel_lifetime")
        elif now >= self.moved_at + self._idle_s:
            self.close(CloseCode.GOING_AWAY, "nothing was said for too long", "tunnel_idle")
        else:
            if now >= self._ping_at:
                self._ping_at = now + _PING_EVERY_S
                if self._client.is_writable:
                    self._client.write(PING)
            self.deadline_at = self._next_deadline()

    def _next_deadline(self) -> float:
        return min(self._ends_at, self.moved_at + self._idle_s, self._ping_at)

    def _finish(self, outcome_code: str, goodbye: bytes | None, *, is_cut: bool) -> None:
        if self._ended:
            return
        self._ended = True
        self.deadline_at = NEVER
        if goodbye is not None:
            self._client.write(goodbye)
        self._owner.tunnel_ended(
            outcome_code,
            from_client=self._bytes_from_client,
            to_client=self._bytes_to_client,
            moved_at=self.moved_at,
        )
        if is_cut:
            self._sandbox.reset()
        else:
            self._sandbox.close_after_flush()
        self._client.tunnel_done(client_ended=False)

    # --- back-pressure ---

    def client_is_full(self) -> None:
        self._sandbox.pause_reading()

    def client_has_room(self) -> None:
        if self._frames.ping is not None:
            self._answer_ping(self._frames.ping)
        self._sandbox.resume_reading()

    def sandbox_is_full(self) -> None:
        self._client.pause_reading()

    def sandbox_has_room(self) -> None:
        self._client.resume_reading()
