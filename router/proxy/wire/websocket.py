"""Where WebSocket frames end in a byte stream, and the router's own Close frames (RFC 6455 §5)."""

from __future__ import annotations

import enum
import re
from typing import Final

# Runs of frames of up to seven bytes, skipped in C: a peer that sends nothing else would cost half a microsecond a frame.
_TINY_FRAMES: Final = re.compile(
    b"(?:"
    + b"|".join(b"[\\s\\S]%c[\\s\\S]{%d}" % (size, size) for size in range(1, 8))
    + b"|[\\s\\S]\\x00)++"
)
_MANY_BYTES: Final = 64


class CloseCode(enum.IntEnum):
    """The close codes that the router itself sends."""

    GOING_AWAY = 1001
    POLICY_VIOLATION = 1008


def close_frame(code: CloseCode, reason: str) -> bytes:
    """Returns an unmasked Close frame, as a server sends it. The reason is cut to the 123 bytes of UTF-8 that fit."""
    text = reason.encode()[:123].decode(errors="ignore")
    payload = int(code).to_bytes(2, "big") + text.encode()
    return bytes((0x88, len(payload))) + payload


class FrameBoundary:
    """Follows unmasked frames (a server's) and knows whether the stream stands between two of them.

    It reads frame headers alone: extensions, fragments and payloads don't matter. A masked frame has four bytes more.
    """

    __slots__ = ("_header", "_left")

    def __init__(self) -> None:
        self._left = 0
        """Bytes of the current frame's payload still to come."""
        self._header = b""
        """The beginning of a frame header."""

    @property
    def is_between_frames(self) -> bool:
        return not self._left and not self._header

    def feed(self, data: bytes) -> int:
        """Takes the stream's next bytes. Returns the offset just behind the last frame that ends in `data`, 0 for none."""
        size = len(data)
        if not self._left and not self._header and size > 1 and size == data[1] + 2 < 128:
            return size  # one whole small frame, the usual case
        at = 0
        last_end = 0
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
                at += step
                if not self._left:
                    last_end = at
                continue
            if not self._header and size - at > _MANY_BYTES:
                tiny = _TINY_FRAMES.match(data, at)
                if tiny is not None:
                    last_end = at = tiny.end()
                    continue
            missing = _header_size(self._header) - len(self._header)
            taken = data[at : at + missing]
            self._header += taken
            at += len(taken)
            if len(self._header) == _header_size(self._header):
                self._left = _payload_size(self._header)
                self._header = b""
                if not self._left:
                    last_end = at
        return last_end


def _header_size(header: bytes) -> int:
    """Returns how long the frame header that begins so is, as far as it is known."""
    if len(header) < 2:
        return 2
    length = header[1] & 0x7F
    extended = 2 if length == 126 else 8 if length == 127 else 0
    return 2 + extended + (4 if header[1] & 0x80 else 0)


def _payload_size(header: bytes) -> int:
    length = header[1] & 0x7F
    if length < 126:
        return length
    return int.from_bytes(header[2 : 4 if length == 126 else 10], "big")
