"""WebSocket frames in a byte stream: where they end, which are mere pings and pongs; and the router's own Close frames (RFC 6455 §5)."""

from __future__ import annotations

import enum
import re
from typing import Final

PING: Final = b"\x89\x00"
"""An unmasked ping, without payload."""

_BROKEN: Final = 0
_DATA: Final = 1
_PULSE: Final = 2
_CLOSE: Final = 3


def _kind(first: int) -> int:
    """Returns what a frame's first byte says: FIN, three reserved bits, an opcode. Compression sets the first bit alone (RFC 7692 §6)."""
    if first & 0x0F <= 2 and not first & 0x30:
        return _DATA
    if first in (0x89, 0x8A):  # ping, pong: never in fragments
        return _PULSE
    return _CLOSE if first == 0x88 else _BROKEN


_KINDS: Final = bytes(_kind(first) for first in range(256))


def _tiny_frames(firsts: bytes, *, is_masked: bool) -> re.Pattern[bytes]:
    """Returns what matches a run of frames of up to seven bytes of payload that begin with one of `firsts`."""
    mask, extra = (0x80, 4) if is_masked else (0, 0)
    begins = b"[%b]" % b"".join(b"\\x%02x" % first for first in firsts)
    sizes = b"|".join(b"\\x%02x[\\s\\S]{%d}" % (mask | size, extra + size) for size in range(8))
    return re.compile(b"(?:%b(?:%b))++" % (begins, sizes))


def _firsts(*kinds: int) -> bytes:
    return bytes(first for first in range(256) if _KINDS[first] in kinds)


# Runs of tiny frames are skipped in C: a peer that sends nothing else would cost half a microsecond a frame.
_EVERY: Final = bytes(range(256))
_TINY: Final = [
    (
        _tiny_frames(_firsts(_PULSE), is_masked=is_masked),
        _tiny_frames(_firsts(_PULSE, _DATA, _CLOSE), is_masked=is_masked),
        _tiny_frames(_EVERY, is_masked=is_masked),
    )
    for is_masked in (False, True)
]
_MANY_BYTES: Final = 64
_LONGEST_HEADER: Final = 14
_TINIEST: Final = 7


class CloseCode(enum.IntEnum):
    """The close codes that the router itself sends."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    INVALID_TEXT = 1007
    POLICY_VIOLATION = 1008
    INTERNAL_ERROR = 1011


def close_frame(code: CloseCode, reason: str) -> bytes:
    """Returns an unmasked Close frame, as a server sends it. The reason is cut to the 123 bytes of UTF-8 that fit."""
    text = reason.encode()[:123].decode(errors="ignore")
    payload = int(code).to_bytes(2, "big") + text.encode()
    return bytes((0x88, len(payload))) + payload


def binary_header(size: int) -> bytes:
    """Returns the header of an unmasked binary frame with so many bytes of payload, a whole message."""
    if size < 126:
        return bytes((0x82, size))
    if size < 65_536:
        return b"\x82\x7e" + size.to_bytes(2, "big")
    return b"\x82\x7f" + size.to_bytes(8, "big")


def pong_frame(payload: bytes) -> bytes:
    """Returns the unmasked answer to a ping with this payload of at most 125 bytes."""
    return bytes((0x8A, len(payload))) + payload


class FrameFollower:
    """Follows the frames of one side: knows where they end, and tells pings and pongs from everything else.

    It reads frame headers alone: extensions, fragments and payloads don't matter. A client's frames are masked, a server's are not.
    """

    __slots__ = (
        "_header",
        "_is_broken",
        "_is_pulse",
        "_left",
        "_mask",
        "_overhead",
        "_tiny",
        "has_moved",
    )

    def __init__(self, *, is_masked: bool) -> None:
        self.has_moved = False
        """Whether the last feed() held any byte of other than whole and valid pings and pongs."""
        self._mask = 0x80 if is_masked else 0
        self._overhead = 6 if is_masked else 2
        self._tiny = _TINY[is_masked]
        self._left = 0
        """Bytes of the current frame's payload still to come."""
        self._header = b""
        """The beginning of a frame header."""
        self._is_pulse = False
        """The current frame is a ping or a pong."""
        self._is_broken = False
        """The stream broke the rules: nothing in it is believed to be a mere ping any more."""

    def __repr__(self) -> str:
        return f"<FrameFollower left={self._left} broken={self._is_broken}>"

    @property
    def is_between_frames(self) -> bool:
        return not self._left and not self._header

    def feed(self, data: bytes) -> int:
        """Takes the stream's next bytes. Returns the offset just behind the last frame that ends in `data`, 0 for none."""
        size = len(data)
        payload = size - self._overhead
        if (
            not self._left
            and not self._header
            and 0 <= payload < 126
            and data[1] == payload + self._mask
        ):
            # One whole small frame, the usual case.
            kind = _KINDS[data[0]]
            if kind == _BROKEN:
                self._is_broken = True
            self.has_moved = kind != _PULSE or self._is_broken
            return size
        return self._follow(data, size)

    def _follow(self, data: bytes, size: int) -> int:
        has_moved = self._is_broken
        at = 0
        last_end = 0
        while at < size:
            left = self._left
            if left:
                has_moved = has_moved or not self._is_pulse
                if left > size - at:
                    self._left = left - size + at
                    break
                at += left
                self._left = 0
                last_end = at
                continue
            if size - at >= _LONGEST_HEADER and not self._header:
                end = self._skip_tiny(data, at, size, has_moved)
                if end:
                    last_end = at = end
                    continue
                end = self._usual_header(data, at)
            else:
                end = 0
            if end:
                at = end
                has_moved = has_moved or not self._is_pulse
            else:
                at = self._any_header(data, at)
                has_moved = has_moved or self._is_broken or not self._is_pulse
            if not self._left and not self._header:
                last_end = at
        self.has_moved = has_moved
        return last_end

    def _skip_tiny(self, data: bytes, at: int, size: int, has_moved: bool) -> int:
        """Returns where a run of tiny frames ends that changes nothing, 0 where there is none."""
        if size - at < _MANY_BYTES or data[at + 1] & 0x7F > _TINIEST:
            return 0
        run = self._tiny[2 if self._is_broken else 1 if has_moved else 0].match(data, at)
        return 0 if run is None else run.end()

    def _usual_header(self, data: bytes, at: int) -> int:
        """Takes a valid header that is there as a whole. Returns the offset behind it, 0 for any other."""
        kind = _KINDS[data[at]]
        second = data[at + 1]
        length = second & 0x7F
        if kind == _BROKEN or second & 0x80 != self._mask:
            return 0
        end = at + self._overhead
        if length > 125:
            if kind != _DATA or (data[at + 2] & 0x80 and length == 127):
                return 0
            if length == 126:
                length = data[at + 2] << 8 | data[at + 3]
                end += 2
            else:
                length = int.from_bytes(data[at + 2 : at + 10], "big")
                end += 8
        self._left = length
        self._is_pulse = kind == _PULSE
        return end

    def _any_header(self, data: bytes, at: int) -> int:
        """Takes a header that is broken, or of which only a part has come. Returns the offset behind what was taken."""
        held = len(self._header)
        header = self._header + data[at : at + _LONGEST_HEADER - held]
        self._judge(header)
        end = _header_size(header)
        if len(header) < end:
            self._header = header
            return at + len(header) - held
        self._header = b""
        self._left = _payload_size(header)
        return at + end - held

    def _judge(self, header: bytes) -> None:
        """Notes what a header is that of, as far as it is known."""
        kind = _KINDS[header[0]]
        self._is_pulse = kind == _PULSE
        if kind == _BROKEN:
            self._is_broken = True
        elif len(header) > 1:
            length = header[1] & 0x7F
            if (
                header[1] & 0x80 != self._mask
                or (length > 125 and kind != _DATA)
                or (length == 127 and len(header) > 2 and header[2] & 0x80)
            ):
                self._is_broken = True


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
