"""Delivery: what had come of a response that was cut, on its way to a client that may be slow."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from asyncio import WriteTransport
from collections.abc import Callable
from typing import Final

from router.auth.authorizer import Permit
from router.proxy.request import Outcome

FLUSH_S: Final = 30.0
"""How long a client may take nothing of what it is still to be given."""
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_BYTES_ACKED: Final = struct.Struct("@120xQ")
"""`tcpi_bytes_acked` in Linux's struct tcp_info."""


class Delivery:
    """Knows when the client has everything, and tells of the request then; `started_at` is in monotonic seconds."""

    __slots__ = (
        "_gives_up_at",
        "_is_told",
        "_outcome",
        "_permit",
        "_seen",
        "_started_at",
        "_tell",
        "resets",
    )

    def __init__(
        self,
        outcome: Outcome,
        started_at: float,
        tell: Callable[[Outcome], None],
        permit: Permit | None = None,
    ) -> None:
        self.resets = False
        """Nothing but a reset shows the client what is missing; it would destroy what the client's kernel doesn't have."""
        self._outcome = outcome
        self._started_at = started_at
        self._permit = permit
        self._tell = tell
        self._is_told = False
        self._seen: tuple[int, int, int] | None = None
        self._gives_up_at = 0.0

    def __repr__(self) -> str:
        return f"<Delivery resets={self.resets} told={self._is_told}>"

    @property
    def is_done(self) -> bool:
        """True once it needs no look any more."""
        return self._is_told and not self.resets

    def goes_on(self, transport: WriteTransport, now: float) -> bool:
        """Returns False once the client's kernel has everything, or has taken nothing for too long; ask it now and then.

        Below TLS lies a buffer that doesn't show: there it is over when nothing has moved since it was asked last.
        """
        waits = transport.get_write_buffer_size()
        seen = (waits, *_in_kernel(transport))
        has_moved = seen != self._seen
        if has_moved:
            self._seen = seen
            self._gives_up_at = now + FLUSH_S
        if waits or seen[1]:
            return now < self._gives_up_at
        return has_moved and transport.get_extra_info("ssl_object") is not None

    def is_over(self, unsent_bytes: int) -> None:
        """Tells of the request; `unsent_bytes` of its response were never given to the kernel."""
        if self._is_told:
            return
        self._is_told = True
        outcome = self._outcome
        outcome.bytes_to_client = max(0, outcome.bytes_to_client - unsent_bytes)
        outcome.ended(self._started_at, self._permit)
        self._tell(outcome)


def reset_on_close(transport: WriteTransport) -> None:
    """Makes every end of the connection a reset, also that of this process."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


def _in_kernel(transport: WriteTransport) -> tuple[int, int]:
    """Returns how many bytes the peer has yet to acknowledge, and how many it has; zeros where the system doesn't say."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return 0, 0
    try:
        unacked = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size)
    except (OSError, AttributeError):
        return 0, 0
    acked = _BYTES_ACKED.unpack(info)[0] if len(info) == _BYTES_ACKED.size else 0
    return struct.unpack("i", unacked)[0], acked
