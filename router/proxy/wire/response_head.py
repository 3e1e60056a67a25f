"""ResponseHead: a response's head, from bytes, strictly."""

from __future__ import annotations

import re
from typing import Any, Final

import httptools

from router.errors import BadResponse, RouterError
from router.proxy.wire.head_lines import (
    JUDGE,
    Special,
    appending_reader,
    note_connection,
    read_connection,
    read_content_length,
    read_nothing,
    read_transfer_encoding,
    special_lines,
)
from router.proxy.wire.header_rules import RESPONSE_KINDS, Kind

_CROSSES_AS_IT_IS: Final = frozenset({Kind.CONTENT_LENGTH, Kind.LOCATION, Kind.SET_COOKIE})
_USUAL_STATUS_LINE: Final = b"HTTP/1.1 200 OK\r\n"
# llhttp takes statuses below 100 and any byte in the reason.
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] [1-9][0-9]{2}(?: [^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")


class ResponseHead:
    """One response's head, interim or final."""

    status: int
    raw: bytes
    """The head as it came, with its empty line."""
    version: int
    special: list[Special]
    is_plain: bool
    """True when no header needs a decision, so `raw` may cross as it is."""
    content_length: int | None = None
    is_chunked: bool = False
    keep_alive: bool = True
    has_connection: bool = False
    nominated: frozenset[bytes] = frozenset()
    upgrade: bytes | None = None

    def __repr__(self) -> str:
        return f"<ResponseHead {self.status} http={self.version} plain={self.is_plain}>"


def _response_version(block: bytes) -> int:
    """Returns 10 or 11 for a status line as it has to be. Raises BadResponse."""
    if not block.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")):
        raise BadResponse(reason="the answer does not begin with HTTP/1.1 or HTTP/1.0")
    if not block.startswith(_USUAL_STATUS_LINE) and not _STATUS_LINE.match(block):
        raise BadResponse(reason="malformed status line")
    return 11 if block.startswith(b"HTTP/1.1") else 10


def parse_response(block: bytes) -> ResponseHead:
    """Returns the head in `block`: from the status line up to and with the empty line. Raises BadResponse."""
    head = ResponseHead()
    head.raw = block
    head.version = _response_version(block)
    head.is_plain = head.version == 11
    head.keep_alive = head.is_plain
    try:
        httptools.HttpResponseParser(JUDGE).feed_data(block)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as exc:
        raise BadResponse(reason=f"malformed head: {exc}") from exc
    head.status = int(block[9:12])
    try:
        head.special = special_lines(block.split(b"\r\n"), RESPONSE_KINDS)
        for kind, _, value, _ in head.special:
            if kind not in _CROSSES_AS_IT_IS:
                head.is_plain = False
            _RESPONSE_READERS[kind](head, value)
        if head.has_connection:
            read_connection(head)
    except RouterError as exc:
        raise BadResponse(reason=exc.detail) from exc
    if head.special and (head.status < 200 or (head.status == 204 and head.content_length)):
        head.is_plain = False
    return head


_RESPONSE_READERS: Final[list[Any]] = [read_nothing] * Kind.COUNT
_RESPONSE_READERS[Kind.CONNECTION] = note_connection
_RESPONSE_READERS[Kind.TRANSFER_ENCODING] = read_transfer_encoding
_RESPONSE_READERS[Kind.CONTENT_LENGTH] = read_content_length
_RESPONSE_READERS[Kind.UPGRADE] = appending_reader("upgrade")
