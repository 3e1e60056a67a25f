"""Tunnel: two connections whose bytes cross untouched, after a 101."""

from __future__ import annotations

import time
from typing import Final, Protocol

from router.errors import BadResponse
from router.proxy.options import NEVER, ProxyOptions
from router.proxy.ports import ClientSide, SandboxSide
from router.proxy.wire.response_head import ResponseHead
from router.proxy.wire.rewriting import ResponseScope, crossing_response_head
from router.proxy.wire.websocket import CloseCode, FrameFollower, close_frame

_GOODBYE_S: Final = 1.0
"""How long a sandbox has to end its frame, so that its client can be told why the tunnel ends."""


class TunnelOwner(Protocol):
    """Who is told, once, that a tunnel has ended."""

    def tunnel_ended(
        self, code: str, *, from_client: int, to_client: int, moved_at: float
    ) -> None: ...


class Tunnel:
    """Relays until both sides have ended, or one is lost, or a limit is reached.

    For WebSockets it follows the frames of both sides: so it can say why it ends (1001, 1008) between two of the sandbox's, and
    knows pings and pongs from what somebody wants (`moved_at`).
    """

    __slots__ = (
        "_bytes_from_client",
        "_bytes_to_client",
        "_client",
        "_client_ended",
        "_client_frames",
        "_ended",
        "_ends_at",
        "_goodbye",
        "_goodbye_code",
        "_idle_s",
        "_last_at",
        "_owner",
        "_sandbox",
        "_sandbox_ended",
        "_sandbox_frames",
        "deadline_at",
        "moved_at",
    )

    def __init__(
        self,
        *,
        owner: TunnelOwner,
        client: ClientSide,
        sandbox: SandboxSide,
        protocol: bytes,
        options: ProxyOptions,
    ) -> None:
        self._owner = owner
        self._client = client
        self._sandbox = sandbox
        now = time.monotonic()
        self._idle_s = options.tunnel_idle_timeout_s
        self._ends_at = now + options.tunnel_max_lifetime_s
        self._last_at = now
        self.moved_at = now
        """When (monotonic seconds) anything crossed last that was no ping or pong."""
        is_websocket = protocol == b"websocket"
        self._client_frames = FrameFollower(is_masked=True) if is_websocket else None
        self._sandbox_frames = FrameFollower(is_masked=False) if is_websocket else None
        self._goodbye: bytes | None = None
        """A Close frame that waits for the current frame to end."""
        self._goodbye_code = ""
        self._client_ended = False
        self._sandbox_ended = False
        self._ended = False
        self._bytes_from_client = 0
        self._bytes_to_client = 0
        self.deadline_at = min(self._ends_at, now + self._idle_s)

    def __repr__(self) -> str:
        return (
            f"<Tunnel websocket={self._sandbox_frames is not None} client_ended={self._client_ended} "
            f"sandbox_ended={self._sandbox_ended} ended={self._ended}>"
        )

    @property
    def sandbox_is_writable(self) -> bool:
        return self._sandbox.is_writable

    @property
    def client_is_writable(self) -> bool:
        return self._client.is_writable

    def open(self, head: ResponseHead, data: bytes, *, scope: ResponseScope | None) -> None:
        """Sends the client the 101, and takes over both connections; `data` came behind the head."""
        self._client.write(
            crossing_response_head(
                head, add_chunked=False, drop_chunked=True, connection=b"Upgrade", scope=scope
            )
        )
        self._sandbox.start_tunnel(self)
        self._client.start_tunnel(self)
        if data:
            self.from_sandbox(data)

    # --- bytes ---

    def from_client(self, data: bytes) -> None:
        self._bytes_from_client += len(data)
        now = self._last_at = time.monotonic()
        frames = self._client_frames
        if frames is not None:
            frames.feed(data)
        if frames is None or frames.has_moved:
            self.moved_at = now
        self._sandbox.write(data)

    def from_sandbox(self, data: bytes) -> None:
        if self._ended:
            return
        now = self._last_at = time.monotonic()
        frames = self._sandbox_frames
        if frames is None:
            self.moved_at = now
        else:
            boundary = frames.feed(data)
            if frames.has_moved:
                self.moved_at = now
            if self._goodbye is not None and boundary:
                self._bytes_to_client += boundary
                self._client.write(data[:boundary])
                self._finish(self._goodbye_code, self._goodbye)
                return
        self._bytes_to_client += len(data)
        self._client.write(data)

    # --- ends ---

    def client_eof(self) -> bool:
        """The client will send no more. Returns True to keep its connection for what the sandbox still says."""
        self._client_ended = True
        if self._sandbox_ended or self._client.peer.is_tls:
            self._finish("", None)
            return False
        self._sandbox.write_eof()
        return True

    def sandbox_eof(self) -> bool:
        """The sandbox will send no more. Returns True to keep its connection for what the client still says."""
        self._sandbox_ended = True
        if self._client_ended or not self._client.write_eof():
            self._finish("", None)
            return False
        return True

    def client_lost(self) -> None:
        self._finish("" if self._sandbox_ended else "client_closed", None)

    def sandbox_lost(self) -> None:
        self._finish("" if self._client_ended else "tunnel_cut", None)

    def close(self, code: CloseCode, reason: str, outcome_code: str) -> None:
        """Ends it from this side: WebSocket clients are told why as soon as a frame has ended, others just see the end.

        A second call ends it in any case: a sandbox can't keep it by never ending its frame.
        """
        if self._goodbye is not None:
            self._finish(self._goodbye_code, None)
        elif self._sandbox_frames is None:
            self._finish(outcome_code, None)
        elif self._sandbox_frames.is_between_frames:
            self._finish(outcome_code, close_frame(code, reason))
        else:
            self._goodbye = close_frame(code, reason)
            self._goodbye_code = outcome_code

    def give_up(self) -> None:
        """Ends at once: one side doesn't read, and others need the memory."""
        self._finish("tunnel_overloaded", None)

    def on_deadline(self, now: float) -> None:
        """Called by the client's connection when `deadline_at` has passed."""
        idle_until = self._last_at + self._idle_s
        if now >= self._ends_at:
            reason = "the longest time for a connection is over"
            self.close(CloseCode.GOING_AWAY, reason, "tunnel_lifetime")
        elif now >= idle_until:
            self.close(CloseCode.GOING_AWAY, "nothing was said for too long", "tunnel_idle")
        else:
            self.deadline_at = min(self._ends_at, idle_until)
            return
        if not self._ended:
            self.deadline_at = now + _GOODBYE_S

    def _finish(self, outcome_code: str, goodbye: bytes | None) -> None:
        if self._ended:
            return
        self._ended = True
        self.deadline_at = NEVER
        if (
            goodbye is not None and not self._sandbox_ended
        ):  # else the client was told the end already
            self._bytes_to_client += len(goodbye)
            self._client.write(goodbye)
        self._owner.tunnel_ended(
            outcome_code,
            from_client=self._bytes_from_client,
            to_client=self._bytes_to_client,
            moved_at=self.moved_at,
        )
        self._sandbox.close_after_flush()
        self._client.tunnel_done(client_ended=self._client_ended)

    # --- back-pressure ---

    def client_is_full(self) -> None:
        self._sandbox.pause_reading()

    def client_has_room(self) -> None:
        self._sandbox.resume_reading()

    def sandbox_is_full(self) -> None:
        self._client.pause_reading()

    def sandbox_has_room(self) -> None:
        self._client.resume_reading()


def chosen_protocol(head: ResponseHead, offered: bytes) -> bytes:
    """Returns the protocol that a 101 switches to, lower case. Raises BadResponse for one that wasn't offered."""
    chosen = (head.upgrade or b"").strip(b" \t").lower()
    if chosen not in [protocol.strip(b" \t").lower() for protocol in offered.split(b",")]:
        raise BadResponse(reason="a 101 to a protocol that was not offered")
    return chosen
