"""A request head that has come in part: what can't become good any more is refused before its end."""

from __future__ import annotations

from typing import Final

from router.errors import HeadersTooLarge, MalformedMessage, RouterError, UriTooLong

_TLS_HANDSHAKE: Final = b"\x16\x03"


def fault_of(
    partial: bytearray, seen: int, *, max_request_line_bytes: int, max_header_bytes: int
) -> RouterError | None:
    """Returns why the head can't become good, None while it can. Bytes before `seen` were checked already."""
    line_end = partial.find(b"\n", 0, max_request_line_bytes + 2)
    if partial.startswith(_TLS_HANDSHAKE):
        return MalformedMessage("This port speaks plain HTTP, not TLS.")
    if line_end < 0 and len(partial) > max_request_line_bytes:
        return UriTooLong()
    if len(partial) > max_header_bytes:
        return HeadersTooLarge()
    if _has_bare_lf(partial, seen):
        return MalformedMessage("Lines end with CR LF.")
    if seen <= line_end and b" HTTP/" not in partial[:line_end]:
        return MalformedMessage("Malformed request line.")
    return None


def check_sizes(
    data: bytes, end: int, *, max_request_line_bytes: int, max_header_bytes: int
) -> None:
    """Holds a whole head, data[:end], to the limits. Raises UriTooLong, HeadersTooLarge."""
    if data.find(b"\r\n") > max_request_line_bytes:
        raise UriTooLong
    if end > max_header_bytes:
        raise HeadersTooLarge


def without_empty_lines(data: bytes) -> bytes:
    """Returns the data without CR LF pairs in front of a request line (RFC 9112 §2.2)."""
    while data.startswith(b"\r\n"):
        data = data[2:]
    return data


def _has_bare_lf(data: bytearray, start: int) -> bool:
    at = data.find(b"\n", start)
    while at >= 0:
        if at == 0 or data[at - 1] != 0x0D:
            return True
        at = data.find(b"\n", at + 1)
    return False
