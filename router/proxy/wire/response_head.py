"""ResponseHead: a response's head, from bytes, strictly."""

from __future__ import annotations

import re
from typing import Any, Final

import httptools

from router.errors import BadResponse, RouterError
from router.proxy.wire.head_lines import (
    JUDGE,
    Action,
    HeadLines,
    appending_reader,
    kind_set,
    note_connection,
    read_connection,
    read_content_length,
    read_transfer_encoding,
    special_lines,
)
from router.proxy.wire.header_rules import RESPONSE_KINDS, Kind
from router.proxy.wire.scanning import IS_COMPILED, response_scanner

SCOPED_KINDS: Final = range(Kind.LOCATION, Kind.COUNT)
"""What becomes of these depends on how the client named the sandbox."""
_PLAIN: Final = kind_set(Kind.CONTENT_LENGTH)
SCOPED: Final = kind_set(*SCOPED_KINDS)
_USUAL_STATUS_LINE: Final = b"HTTP/1.1 200 OK\r\n"
# llhttp takes statuses below 100 and any byte in the reason.
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] [1-9][0-9]{2}(?: [^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")


class ResponseHead(HeadLines):
    """One response's head, interim or final."""

    kind_table = RESPONSE_KINDS

    status: int
    is_plain: bool
    """True when no header needs a decision, so the head may cross as it is."""
    upgrade: bytes | None = None

    def __repr__(self) -> str:
        return f"<ResponseHead {self.status} http={self.version} plain={self.is_plain}>"


def _unusual_version(block: bytes) -> int:
    """Returns 10 or 11 for a status line as it has to be. Raises BadResponse."""
    if not block.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")):
        raise BadResponse(reason="the answer does not begin with HTTP/1.1 or HTTP/1.0")
    if not _STATUS_LINE.match(block):
        raise BadResponse(reason="malformed status line")
    return 11 if block.startswith(b"HTTP/1.1") else 10


def parse_response(block: bytes) -> ResponseHead:
    """Returns the head in `block`: from the status line up to and with the empty line. Raises BadResponse."""
    head = ResponseHead()
    head.block = block
    if _SCANNER is None or not _SCANNER.read(head, block):
        read_response(head, block)
    head.is_plain = (
        head.version == 11
        and not head.kinds & ~_PLAIN
        # RFC 9110 §8.6: no length in a 1xx or 204.
        and not (head.kinds and (head.status < 200 or (head.status == 204 and head.content_length)))
    )
    return head


def read_response(head: ResponseHead, block: bytes) -> None:
    """Fills the head from its bytes: the reference, and the author of every error. Raises BadResponse."""
    head.version = 11 if block.startswith(_USUAL_STATUS_LINE) else _unusual_version(block)
    head.keep_alive = head.version == 11
    try:
        httptools.HttpResponseParser(JUDGE).feed_data(block)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as exc:
        raise BadResponse(reason=f"malformed head: {exc}") from exc
    head.status = int(block[9:12])
    try:
        head._lines = block.split(b"\r\n")
        head._special = special_lines(head._lines, RESPONSE_KINDS)
        for kind, _, value, _ in head._special:
            head.kinds |= 1 << kind
            reader = _RESPONSE_READERS[kind]
            if reader is not None:
                reader(head, value)
        if head.has_connection:
            read_connection(head)
    except RouterError as exc:
        raise BadResponse(reason=exc.detail) from exc


_RESPONSE_READERS: Final[list[Any]] = [None] * Kind.COUNT
_RESPONSE_READERS[Kind.CONNECTION] = note_connection
_RESPONSE_READERS[Kind.TRANSFER_ENCODING] = read_transfer_encoding
_RESPONSE_READERS[Kind.CONTENT_LENGTH] = read_content_length
_RESPONSE_READERS[Kind.UPGRADE] = appending_reader("upgrade", Kind.UPGRADE)


# --- the compiled form -----------------------------------------------------------------------

ACTIONS: Final[dict[int, tuple[int, str | int]]] = {
    Kind.FORWARD: (Action.NOTHING, ""),
    Kind.DROP: (Action.NOTHING, ""),
    Kind.CONNECTION: (Action.CONNECTION, ""),
    Kind.TRANSFER_ENCODING: (Action.CODING, ""),
    Kind.CONTENT_LENGTH: (Action.LENGTH, ""),
    **dict.fromkeys(SCOPED_KINDS, (Action.NOTHING, "")),
}
"""What the scanner does with a kind's value: the same as its reader above. It leaves a head with any other kind to them."""

_SCANNER: Final = response_scanner(ACTIONS) if IS_COMPILED else None
