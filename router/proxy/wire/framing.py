"""Where a message's body ends: a length counter, a strict chunked decoder, or the end of the connection.

llhttp can't be stopped at the end of a message, so bytes of the next one would be parsed before their turn; these decoders
say exactly which byte is the last (RFC 9112 §6, §7).
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from router.proxy.wire.header_rules import may_be_trailer

LAST_CHUNK: Final = b"0\r\n\r\n"

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_TRAILER_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_MAX_SIZE_LINE: Final = 1024
"""Chunk extensions are refused above this: they cost work and carry nothing (CVE-2023-39326)."""
_MAX_TRAILERS: Final = 16_384
_USUAL_SIZE_LINE: Final = 12
_MOST_TINY: Final = 15
_MAX_KNOWN: Final = 4096
# Runs of chunks of one to nine bytes, read in C: one by one they would cost a microsecond each.
_TINY_SIZES: Final = {ord(str(size)): size for size in range(1, 10)}
_TINY_CHUNKS: Final = {
    size: re.compile(b"(?:%d\\r\\n[\\s\\S]{%d}\\r\\n)++" % (size, size)) for size in range(1, 10)
}
# Of any such sizes, with leading zeros: a mixture is still read in C, at a fifth of what it would cost one by one.
_MIXED_CHUNK = re.compile(
    b"0{0,14}(?=([1-9a-fA-F]))(?:"
    + b"|".join(b"(?i:%x)\\r\\n[\\s\\S]{%d}" % (size, size) for size in range(1, 16))
    + b")\\r\\n"
)
_MIXED_CHUNKS = re.compile(
    b"(?:%b)++" % _MIXED_CHUNK.pattern.replace(b"([1-9a-fA-F])", b"[1-9a-fA-F]")
)
_DIGITS: Final = {b"%x" % size: size for size in range(16)} | {
    b"%X" % size: size for size in range(16)
}
_MANY_BYTES: Final = 64
_A_TURN: Final = 2048
"""Steps that one call of feed() takes, each below a microsecond: others have their turn before the next."""
_TINY_STEP: Final = 64
"""Bytes of tiny chunks that cost about a step."""
_TINY_RUN: Final = 16_384
_FREE_EXTENSION_BYTES: Final = 16_384
_KNOWN_SIZES: Final[dict[bytes, int]] = {}
"""Size lines without extension that were found valid, not 0: most bodies repeat one size."""


class FramingError(ValueError):
    """The body's framing is broken; the message can't be completed."""


class BodyReader(Protocol):
    """Cuts a body out of a byte stream."""

    body_bytes: int
    """Bytes of the body so far, framing apart."""

    def feed(self, data: bytes, pieces: list[bytes]) -> int:
        """Appends what crosses of `data` to `pieces`; untaken() says what is left for another call.

        Returns the offset of the first byte behind the message, or -1 while it goes on. Raises FramingError.
        """
        ...


class LengthReader:
    """A body of a known length; it crosses as it is."""

    __slots__ = ("body_bytes", "remaining")

    def __init__(self, length: int) -> None:
        self.remaining = length
        self.body_bytes = 0

    def feed(self, data: bytes, pieces: list[bytes]) -> int:
        size = len(data)
        if size < self.remaining:
            self.remaining -= size
            self.body_bytes += size
            pieces.append(data)
            return -1
        end = self.remaining
        self.body_bytes += end
        self.remaining = 0
        pieces.append(data if end == size else data[:end])
        return end


class UntilCloseReader:
    """A response body that ends with its connection."""

    __slots__ = ("body_bytes",)

    def __init__(self) -> None:
        self.body_bytes = 0

    def feed(self, data: bytes, pieces: list[bytes]) -> int:
        self.body_bytes += len(data)
        pieces.append(data)
        return -1


class ChunkedReader:
    """A chunked body, taken out of its chunks. Trailer fields are kept in `trailers`, those that may cross."""

    __slots__ = (
        "_extension_bytes",
        "_in_trailers",
        "_line",
        "_needs_crlf",
        "_remaining",
        "_trailer_bytes",
        "body_bytes",
        "stopped_at",
        "trailers",
    )

    def __init__(self) -> None:
        self.body_bytes = 0
        self.trailers: list[tuple[bytes, bytes]] = []
        self.stopped_at = 0
        """Where feed() left off in its data, for that was enough work; 0 when it took all."""
        self._line = b""
        """The beginning of a line whose end has not come yet; it has not crossed."""
        self._remaining = 0
        self._needs_crlf = False
        self._in_trailers = False
        self._trailer_bytes = 0
        self._extension_bytes = 0

    def feed(self, data: bytes, pieces: list[bytes]) -> int:
        at = self.stopped_at = 0
        size = len(data)
        left = _A_TURN
        while at < size and left > 0:
            left -= 1
            if self._remaining:
                end = at + self._step(size - at)
                _cross(data, at, end, pieces)
                at = end
                continue
            line_end = data.find(b"\n", at) + 1
            if not line_end:
                self._keep(data[at:])
                return -1
            is_end = self._take_line(self._joined(data[at:line_end]))
            at = line_end
            if is_end:
                return at
        self.stopped_at = at if at < size else 0
        return -1

    def _step(self, most: int) -> int:
        """Counts bytes of the current chunk, as many as there are. Returns how many."""
        step = min(self._remaining, most)
        self._remaining -= step
        self.body_bytes += step
        return step

    def _joined(self, line: bytes) -> bytes:
        if self._line:
            line = self._line + line
            self._line = b""
        return line

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
        extension = len(content) - len(match[1])
        if extension:
            # Signed uploads have 90 bytes for each 64 KiB. More than the body itself is nothing but work.
            self._extension_bytes += extension
            if self._extension_bytes > _FREE_EXTENSION_BYTES + self.body_bytes:
                raise FramingError("the chunk extensions are larger than the body")
        if self._remaining:
            self._needs_crlf = True
            if not extension and len(content) < _USUAL_SIZE_LINE and len(_KNOWN_SIZES) < _MAX_KNOWN:
                _KNOWN_SIZES[content] = self._remaining
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


class ChunkRelay(ChunkedReader):
    """A chunked body whose chunks cross as they came: checked, not copied; without extensions.

    The last chunk and the trailers don't cross: last_chunk() makes them.
    """

    __slots__ = ()

    def feed(self, data: bytes, pieces: list[bytes]) -> int:
        at = start = self.stopped_at = 0  # data[start:at] was read and has not crossed yet
        size = len(data)
        left = _A_TURN
        while at < size and left > 0:
            left -= 1
            if self._remaining:
                at += self._step(size - at)
                continue
            if self._needs_crlf and not self._line and data.startswith(b"\r\n", at):
                # The usual case, both lines whole and the size one seen before: bench case `down-chunked`.
                line_end = data.find(b"\r\n", at + 2, at + _USUAL_SIZE_LINE)
                length = _KNOWN_SIZES.get(data[at + 2 : line_end]) if line_end > 0 else None
                # Not a tiny one: the rest of its run, where a read begins inside of it, is for _skip_tiny().
                if length is not None and length > _MOST_TINY:
                    self._remaining = length
                    at = line_end + 2
                    continue
            tiny_end = self._skip_tiny(data, at)
            if tiny_end > at:
                left -= (tiny_end - at) // _TINY_STEP
                at = tiny_end
                continue
            line_end = data.find(b"\n", at) + 1
            if not line_end:
                _cross(data, start, at, pieces)
                self._keep(data[at:])
                return -1
            is_whole = not self._line
            line = self._joined(data[at:line_end])
            is_end = self._take_line(line)
            if self._in_trailers or not is_whole or b";" in line:
                _cross(data, start, at, pieces)
                start = line_end
                if not self._in_trailers:
                    pieces.append(b"%x\r\n" % self._remaining if b";" in line else line)
            at = line_end
            if is_end:
                return at
        _cross(data, start, at, pieces)
        self.stopped_at = at if at < size else 0
        return -1

    def _skip_tiny(self, data: bytes, at: int) -> int:
        """Returns the end of a run of whole chunks of one tiny size that begins at `at`; `at` when there is none."""
        if self._needs_crlf or self._in_trailers or self._line:
            return at
        most = at + _TINY_RUN
        size = _TINY_SIZES.get(data[at])
        run = None if size is None else _TINY_CHUNKS[size].match(data, at, most)
        if size is not None and run is not None and run.end() - at > _MANY_BYTES:
            self.body_bytes += (run.end() - at) // (size + 5) * size
            return run.end()
        run = _MIXED_CHUNKS.match(data, at, most)
        if run is None:
            return at
        self.body_bytes += sum(map(_DIGITS.__getitem__, _MIXED_CHUNK.findall(data, at, run.end())))
        return run.end()


def untaken(reader: BodyReader, data: bytes) -> bytes:
    """Returns what the reader left of the data that it was just fed: many tiny chunks are the work of several turns."""
    if isinstance(reader, ChunkedReader) and reader.stopped_at:
        return data[reader.stopped_at :]
    return b""


def body_reader(length: int | None) -> BodyReader:
    """Returns what cuts out a request's body: of that length, or chunked when it has none."""
    return ChunkRelay() if length is None else LengthReader(length)


def _cross(data: bytes, start: int, end: int, pieces: list[bytes]) -> None:
    """Appends data[start:end], without a copy when that is all of it."""
    if start < end:
        pieces.append(data if end - start == len(data) else data[start:end])


def chunk(pieces: list[bytes]) -> list[bytes]:
    """Returns the pieces framed as one chunk; [] when they hold nothing (an empty chunk would end the body)."""
    size = sum(map(len, pieces))
    return [b"%x\r\n" % size, *pieces, b"\r\n"] if size else []


def last_chunk(trailers: list[tuple[bytes, bytes]]) -> bytes:
    """Returns the end of a chunked body with its trailer section."""
    if not trailers:
        return LAST_CHUNK
    return b"0\r\n" + b"".join(b"%b: %b\r\n" % field for field in trailers) + b"\r\n"
