"""Heads that come in pieces; what can't become good any more is refused before its end."""

from __future__ import annotations

import re
from typing import Final

from router.errors import BadResponse, HeadersTooLarge, MalformedMessage, RouterError, UriTooLong

END_OF_HEAD: Final = b"\r\n\r\n"
_STATUS_LINE_START: Final = b"HTTP/1."
# Passed over in C: one by one, a flood of them would cost others 40 ms a read.
_EMPTY_LINES = re.compile(rb"(?:\r\n)++")
_TLS_HANDSHAKE: Final = b"\x16\x03"


class PartialHead:
    """Collects bytes until a head is whole. Sizes in bytes."""

    __slots__ = ("_data", "_max_header_bytes", "_max_request_line_bytes")

    def __init__(self, *, max_request_line_bytes: int, max_header_bytes: int) -> None:
        self._data = bytearray()
        self._max_request_line_bytes = max_request_line_bytes
        self._max_header_bytes = max_header_bytes

    def __repr__(self) -> str:
        return f"<PartialHead {len(self._data)} bytes>"

    @property
    def size(self) -> int:
        """How many bytes are held."""
        return len(self._data)

    @property
    def is_empty(self) -> bool:
        """True while nothing but empty lines has come (RFC 9112 §2.2)."""
        return not self._data

    def add(self, data: bytes) -> bytes | None:
        """Returns everything that has come once that holds a whole head, else None.

        Raises MalformedMessage, UriTooLong, HeadersTooLarge.
        """
        collected = self._data
        seen = len(collected)
        collected += data
        if collected.startswith(b"\r\n"):
            empty = _EMPTY_LINES.match(collected)
            size = empty.end() if empty is not None else 0
            del empty  # it holds the buffer, which could not shrink
            del collected[:size]
            seen = 0
        if collected.find(END_OF_HEAD, max(0, seen - 3)) >= 0:
            return bytes(collected)
        fault = self._fault(max(0, seen - 1))
        if fault is not None:
            raise fault
        return None

    def _fault(self, seen: int) -> RouterError | None:
        """Returns why the head can't become good. Bytes before `seen` were checked already."""
        collected = self._data
        limit = self._max_request_line_bytes
        line_end = collected.find(b"\n", 0, limit + 2)
        if collected.startswith(_TLS_HANDSHAKE):
            return MalformedMessage("This port speaks plain HTTP, not TLS.")
        if line_end < 0 and len(collected) > limit + len(b"\r"):
            return UriTooLong()
        if len(collected) > self._max_header_bytes:
            return HeadersTooLarge()
        if _has_bare_lf(collected, seen):
            return MalformedMessage("Lines end with CR LF.")
        if seen <= line_end and b" HTTP/" not in collected[:line_end]:
            return MalformedMessage("Malformed request line.")
        return None


def check_partial_response(collected: bytearray, seen: int, *, max_head_bytes: int) -> None:
    """Holds the beginning of a response's head, of which `seen` bytes were checked already, to what it can become.

    Raises BadResponse: a sandbox whose lines end with LF or CR alone would otherwise be waited for until its time is over.
    """
    if not collected.startswith(_STATUS_LINE_START[: len(collected)]):
        raise BadResponse(reason="the answer does not begin like HTTP/1")
    if _has_bare_lf(collected, max(0, seen - 1)):
        raise BadResponse(reason="a line of the answer's head ends with LF alone, not CR LF")
    if _has_bare_cr(collected, max(0, seen - 1)):
        raise BadResponse(reason="a line of the answer's head ends with CR alone, not CR LF")
    if len(collected) > max_head_bytes:
        raise BadResponse(reason="the answer's head is too large")


def check_sizes(
    data: bytes, end: int, *, max_request_line_bytes: int, max_header_bytes: int
) -> None:
    """Holds a whole head, data[:end], to the limits. Raises UriTooLong, HeadersTooLarge."""
    if data.find(b"\r\n") > max_request_line_bytes:
        raise UriTooLong
    if end > max_header_bytes:
        raise HeadersTooLarge


def _has_bare_cr(data: bytearray, start: int) -> bool:
    at = data.find(b"\r", start, -1)
    while at >= 0:
        if data[at + 1] != 0x0A:
            return True
        at = data.find(b"\r", at + 1, -1)
    return False


def _has_bare_lf(data: bytearray, start: int) -> bool:
    at = data.find(b"\n", start)
    while at >= 0:
        if at == 0 or data[at - 1] != 0x0D:
            return True
        at = data.find(b"\n", at + 1)
    return False
