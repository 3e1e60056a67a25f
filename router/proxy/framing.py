"""Where a message's body ends: a length counter, a strict chunked decoder, or the end of the connection.

llhttp can't be stopped at the end of a message, so bytes of the next one would be parsed before their turn; these decoders
say exactly which byte is the last (RFC 9112 §6, §7).
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from router.proxy.headers import may_be_trailer

LAST_CHUNK: Final = b"0\r\n\r\n"

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_TRAILER_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_MAX_SIZE_LINE: Final = 1024
"""Chunk extensions are refused above this: they cost work and carry nothing (CVE-2023-39326)."""
_MAX_TRAILERS: Final = 16_384


class FramingError(ValueError):
    """The body's framing is broken; the message can't be completed."""


class BodyReader(Protocol):
    """Cuts a body out of a byte stream."""

    def feed(self, data: bytes, pieces: list[bytes]) -> int:
        """Appends the body bytes in `data` to `pieces`.

        Returns the offset of the first byte behind the message, or -1 while it goes on. Raises FramingError.
        """
        ...


class LengthReader:
    """A body of a known length."""

    __slots__ = ("remaining",)

    def __init__(self, length: int) -> None:
        self.remaining = length

    def feed(self, data: bytes, pieces: list[bytes]) -> int:
        size = len(data)
        if size < self.remaining:
            self.remaining -= size
            pieces.append(data)
            return -1
        end = self.remaining
        self.remaining = 0
        pieces.append(data if end == size else data[:end])
        return end


class UntilCloseReader:
    """A response body that ends with its connection."""

    __slots__ = ()

    def feed(self, data: bytes, pieces: list[bytes]) -> int:
        pieces.append(data)
        return -1


class ChunkedReader:
    """A chunked body. Extensions are dropped; trailer fields are kept in `trailers`, those that may cross."""

    __slots__ = ("_in_trailers", "_line", "_needs_crlf", "_remaining", "_trailer_bytes", "trailers")

    def __init__(self) -> None:
        self.trailers: list[tuple[bytes, bytes]] = []
        self._line = b""
        """The beginning of a line whose end has not come yet."""
        self._remaining = 0
        self._needs_crlf = False
        self._in_trailers = False
        self._trailer_bytes = 0

    def feed(self, data: bytes, pieces: list[bytes]) -> int:
        at = 0
        size = len(data)
        while at < size:
            if self._remaining:
                end = min(at + self._remaining, size)
                pieces.append(data if at == 0 and end == size else data[at:end])
                self._remaining -= end - at
                at = end
                continue
            line_end = data.find(b"\n", at)
            if line_end < 0:
                self._keep(data[at:])
                return -1
            line = data[at : line_end + 1]
            if self._line:
                line = self._line + line
                self._line = b""
            at = line_end + 1
            if self._take_line(line):
                return at
        return -1

    def _keep(self, start_of_line: bytes) -> None:
        self._line += start_of_line
        if self._needs_crlf and not b"\r\n".startswith(self._line):
            raise FramingError("a chunk is longer than its size says")
        if len(self._line) > (_MAX_TRAILERS if self._in_trailers else _MAX_SIZE_LINE):
            raise FramingError("a chunk's size line or a trailer is too long")

    def _take_line(self, line: bytes) -> bool:
        """Returns True when the line was the message's last."""
        if not line.endswith(b"\r\n"):
            raise FramingError("a bare LF ends a line")
        content = line[:-2]
        if self._needs_crlf:
            if content:
                raise FramingError("a chunk is longer than its size says")
            self._needs_crlf = False
            return False
        if self._in_trailers:
            return self._take_trailer(content)
        match = _SIZE_LINE.fullmatch(content)
        if match is None or len(content) > _MAX_SIZE_LINE:
            raise FramingError("a malformed chunk size")
        self._remaining = int(match[1], 16)
        if self._remaining:
            self._needs_crlf = True
        else:
            self._in_trailers = True
        return False

    def _take_trailer(self, content: bytes) -> bool:
        if not content:
            return True
        self._trailer_bytes += len(content)
        match = _TRAILER_LINE.fullmatch(content)
        if match is None or self._trailer_bytes > _MAX_TRAILERS:
            raise FramingError("a malformed trailer, or too many")
        if may_be_trailer(match[1]):
            self.trailers.append((match[1], match[2].rstrip(b" \t")))
        return False


def chunk(pieces: list[bytes]) -> list[bytes]:
    """Returns the pieces framed as one chunk; [] when they hold nothing (an empty chunk would end the body)."""
    size = sum(map(len, pieces))
    return [b"%x\r\n" % size, *pieces, b"\r\n"] if size else []


def last_chunk(trailers: list[tuple[bytes, bytes]]) -> bytes:
    """Returns the end of a chunked body with its trailer section."""
    if not trailers:
        return LAST_CHUNK
    return b"0\r\n" + b"".join(b"%b: %b\r\n" % field for field in trailers) + b"\r\n"
