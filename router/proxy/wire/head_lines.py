"""What the heads of both directions share: their lines, and what frames a body or names a hop."""

from __future__ import annotations

from typing import Any, Final, Protocol

from router.errors import HeadersTooLarge, MalformedMessage
from router.proxy.wire.header_rules import Kind, KindTable, nominated

Special = tuple[int, bytes, bytes, int]
"""A header line that needs a decision: its Kind, its name, its value without white space around it, its place among the lines."""


_MAX_LENGTH_DIGITS: Final = 18
_MAX_LINES: Final = 1000
_MAX_OPTIONS: Final = 64


class _NoCallbacks:
    """llhttp only judges: without callbacks it costs 0.4 µs a head, with one a header line five times that."""


JUDGE: Final = _NoCallbacks()


def special_lines(lines: list[bytes], kinds: KindTable) -> list[Special]:
    """Returns the header lines that need a decision. llhttp has found every line to be `name:value`."""
    special = []
    if len(lines) > _MAX_LINES:
        raise HeadersTooLarge(f"More than {_MAX_LINES} header lines.")
    for at in range(1, len(lines) - 2):
        name, _, value = lines[at].partition(b":")
        kind = kinds[name]
        if kind:
            special.append((kind, name, value.strip(b" \t"), at))
    return special


class Framed(Protocol):
    """What Connection, Content-Length and Transfer-Encoding say, in a head of either direction."""

    special: list[Special]
    content_length: int | None
    is_chunked: bool
    keep_alive: bool
    has_connection: bool
    nominated: frozenset[bytes]


def read_connection(head: Framed) -> list[bytes]:
    """Reads all Connection lines together (line by line, many of them would cost their square). Returns their options."""
    found = options(joined(head.special, Kind.CONNECTION).lower())
    if b"close" in found:
        head.keep_alive = False
    elif b"keep-alive" in found:
        head.keep_alive = True
    head.nominated = nominated(found)
    return found


def joined(special: list[Special], kind: int) -> bytes:
    """Returns the values of all lines of that kind as one list."""
    return b",".join([value for line_kind, _, value, _ in special if line_kind == kind])


def options(value: bytes) -> list[bytes]:
    """Returns the elements of a list header. Raises MalformedMessage for a list that only an attack has."""
    if value.count(b",") >= _MAX_OPTIONS:
        raise MalformedMessage("Too many options in a Connection, Upgrade or TE header.")
    return [option.strip(b" \t") for option in value.split(b",")]


def read_nothing(head: Any, value: bytes) -> None:
    pass


def note_connection(head: Any, value: bytes) -> None:
    head.has_connection = True


def read_transfer_encoding(head: Any, value: bytes) -> None:
    if value.lower() != b"chunked" or head.is_chunked:
        raise MalformedMessage("Transfer-Encoding must be `chunked`, once.")
    if head.content_length is not None:
        raise MalformedMessage("Both Content-Length and Transfer-Encoding.")
    head.is_chunked = True


def read_content_length(head: Any, value: bytes) -> None:
    if not value.isdigit() or len(value) > _MAX_LENGTH_DIGITS:
        raise MalformedMessage("Malformed Content-Length.")
    if head.content_length is not None or head.is_chunked:
        raise MalformedMessage("The body's length is given more than once.")
    head.content_length = int(value)


def appending_reader(attribute: str) -> Any:
    def read(head: Any, value: bytes) -> None:
        earlier = getattr(head, attribute)
        setattr(head, attribute, value if earlier is None else earlier + b", " + value)

    return read


def drop_nominated(lines: list[bytes], nominated: frozenset[bytes]) -> None:
    """Empties the lines that a Connection header took out."""
    for at in range(1, len(lines)):
        if lines[at].partition(b":")[0].lower() in nominated:
            lines[at] = b""
