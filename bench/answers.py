"""Reads the heads of HTTP/1.1 answers, as far as the load must check them."""

from __future__ import annotations

from typing import NamedTuple


class BadAnswerError(Exception):
    """The answer isn't what was asked for; the text says what came."""


class AnswerHead(NamedTuple):
    status: int
    length: int | None  # None: chunked
    size: int  # bytes of the head on the wire


def header(head: bytes, name: bytes) -> bytes | None:
    """The value of the first header of that (lower-case) name."""
    start = head.lower().find(b"\r\n" + name + b":")
    if start < 0:
        return None
    start += len(name) + 3
    return head[start : head.index(b"\r\n", start)].strip()


def read_head(data: bytes) -> AnswerHead | None:
    """The head at the start of data; None while it isn't whole. Raises BadAnswerError."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = data[: end + 2]
    if not head.startswith(b"HTTP/1.1 "):
        raise BadAnswerError(f"no HTTP/1.1 answer: {head[:40]!r}")
    status = int(head[9:12])
    length = header(head, b"content-length")
    coding = header(head, b"transfer-encoding")
    if coding is not None and coding.lower() != b"chunked":
        raise BadAnswerError(f"transfer coding {coding!r}")
    if length is None and coding is None and status != 101:
        raise BadAnswerError(f"{status} with neither a length nor chunks")
    return AnswerHead(status, None if coding else int(length or b"0"), end + 4)
