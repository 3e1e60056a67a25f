"""Reads long bodies as they arrive, counting bytes and sampling them against one known pattern."""

from __future__ import annotations

import random

MB = 1_000_000
# A prime period: a piece that is lost, doubled or shifted by any buffer size shows at once.
PERIOD = 65_521
PATTERN = random.Random(20_260_801).randbytes(PERIOD)
_SAMPLE = 16
_WRAPPED = PATTERN + PATTERN[:_SAMPLE]
_PLAIN_BLOCK = PATTERN * 4
_CHUNK = b"%x\r\n" % PERIOD + PATTERN + b"\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class BadBodyError(Exception):
    """The framing of a chunked body was broken."""


class BodyReader:
    """One body with a known length, or chunked when the length is None."""

    __slots__ = ("_line", "_missing", "_state", "finished", "intact", "received")

    def __init__(self, length: int | None) -> None:
        self.received = 0
        self.intact = True
        self.finished = length == 0
        self._missing = length or 0
        self._line = b""
        self._state = "size" if length is None else "plain"

    def feed(self, data: bytes) -> bytes:
        """Take the body's part of data; return what follows the body. Raises BadBodyError."""
        if self._state == "plain":
            taken = min(self._missing, len(data))
            self._take(data, 0, taken)
            self.finished = self._missing == 0
            return data[taken:]
        return self._feed_chunked(data)

    def _feed_chunked(self, data: bytes) -> bytes:
        at = 0
        while not self.finished and at < len(data):
            if self._state == "data":
                taken = min(self._missing, len(data) - at)
                self._take(data, at, at + taken)
                at += taken
                if not self._missing:
                    self._state = "data-end"
                continue
            line_end = data.find(b"\n", at)
            if line_end < 0:
                self._line += data[at:]
                return b""
            line = self._line + data[at : line_end + 1]
            self._line = b""
            at = line_end + 1
            self._on_line(line)
        return data[at:]

    def _on_line(self, line: bytes) -> None:
        if not line.endswith(b"\r\n"):
            raise BadBodyError(f"bare LF in {line[:40]!r}")
        if self._state == "data-end":
            if line != b"\r\n":
                raise BadBodyError(f"{line[:40]!r} where a chunk should end")
            self._state = "size"
        elif self._state == "size":
            try:
                self._missing = int(line.partition(b";")[0], 16)
            except ValueError:
                raise BadBodyError(f"{line[:40]!r} is no chunk size") from None
            self._state = "data" if self._missing else "trailer"
        elif line == b"\r\n":
            self.finished = True

    def _take(self, data: bytes, start: int, end: int) -> None:
        if end - start >= _SAMPLE:
            self._sample(data, start, start)
            self._sample(data, start, end - _SAMPLE)
        self.received += end - start
        self._missing -= end - start

    def _sample(self, data: bytes, start: int, at: int) -> None:
        expected = (self.received + at - start) % PERIOD
        if data[at : at + _SAMPLE] != _WRAPPED[expected : expected + _SAMPLE]:
            self.intact = False


class BodyWriter:
    """Hands out the pieces of one patterned body, ready for the wire."""

    __slots__ = ("_chunked", "_left")

    def __init__(self, size: int, *, chunked: bool) -> None:
        self._left = size
        self._chunked = chunked

    def next_piece(self) -> bytes:
        """The next bytes to write; b"" when all are out."""
        if self._left <= 0:
            return b""
        if not self._chunked:
            piece = _PLAIN_BLOCK if self._left >= len(_PLAIN_BLOCK) else _PLAIN_BLOCK[: self._left]
            self._left -= len(piece)
            return piece
        if self._left > PERIOD:
            self._left -= PERIOD
            return _CHUNK
        last = PATTERN[: self._left]
        self._left = 0
        return b"%x\r\n" % len(last) + last + b"\r\n" + LAST_CHUNK
