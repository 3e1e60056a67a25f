"""What the heads of both directions share: their lines, and what frames a body or names a hop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from router.errors import HeadersTooLarge, MalformedMessage
from router.proxy.wire.header_rules import Kind, KindTable, nominated

if TYPE_CHECKING:
    from router.proxy.wire.scanner import Scan

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


class HeadLines:
    """What heads of both directions hold: their lines, and what frames a body. Defaults live on the class (made once a message)."""

    kind_table: KindTable

    block: bytes
    """The head as it came, with its empty line."""
    scan: Scan | None = None
    """Where the compiled scanner found the lines; None when this module read them."""
    version: int
    """10 or 11."""
    kinds: int = 0
    """The kinds of lines that came: bit 1 << Kind of each."""
    content_length: int | None = None
    is_chunked: bool = False
    keep_alive: bool = True
    has_connection: bool = False
    nominated: frozenset[bytes] = frozenset()
    """Names that Connection takes out, lower case."""
    joined_kinds: frozenset[int] = frozenset()
    """Kinds of which several lines came, whose values have become one list."""
    _lines: list[bytes] | None = None
    _special: list[Special] | None = None

    def forget_lines(self) -> None:
        """Frees the memory of the lines, which nothing needs for as long as a tunnel lasts."""
        self.block = b""
        self.scan = self._lines = self._special = None

    @property
    def lines(self) -> list[bytes]:
        """The head as it came, line by line: the start line, each header, two empty ones."""
        if self._lines is None:
            self._lines = self.block.split(b"\r\n")
        return self._lines

    @property
    def special(self) -> list[Special]:
        """The header lines that need a decision."""
        if self._special is None:
            if self.scan is not None:
                self._special = self.scan.special()
            else:
                self._special = special_lines(self.lines, self.kind_table)
        return self._special


def read_connection(head: HeadLines) -> list[bytes]:
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


def appending_reader(attribute: str, kind: int, between: bytes = b", ") -> Any:
    def read(head: Any, value: bytes) -> None:
        if getattr(head, attribute) is None:
            setattr(head, attribute, value)
        elif kind not in head.joined_kinds:
            # All at once: line by line, many of them would cost their square.
            head.joined_kinds |= {kind}
            values = [
                line_value for line_kind, _, line_value, _ in head.special if line_kind == kind
            ]
            setattr(head, attribute, between.join(values))

    return read


class Action:
    """What the value of a kind of line is for; the scanner has the same numbers."""

    NOTHING: Final = 0
    UNSURE: Final = 1
    """Only Python reads it."""
    HOST: Final = 2
    LENGTH: Final = 3
    CODING: Final = 4
    CONNECTION: Final = 5
    ONCE: Final = 6
    """The value of an attribute; given twice it is an error, or joined."""
    FIRST: Final = 7
    """The value of an attribute; the first one counts."""
    ASKED: Final = 8
    """One of Asked's values."""


class Crossing:
    """What becomes of a kind of line; the scanner has the same numbers."""

    AS_IT_CAME: Final = 0
    NOT: Final = 1
    TRIMMED: Final = 2
    """`name: value`, without other white space."""
    HOST: Final = 3
    """`name: ` and the host that the other side is to see."""


_NOT: Final = Crossing.NOT
_HOST: Final = Crossing.HOST
_KINDS_IN_A_SET: Final = 64


def crossings(by_kind: Mapping[int, int]) -> bytes:
    """Returns the table for crossing(): lines that need no decision cross as they came, of other kinds none that isn't named."""
    named = {Kind.FORWARD: Crossing.AS_IT_CAME, **by_kind}
    return bytes(named.get(kind, Crossing.NOT) for kind in range(_KINDS_IN_A_SET))


def kind_set(*kinds: int) -> int:
    """Returns the kinds as one integer, to be compared with HeadLines.kinds."""
    return sum(1 << kind for kind in kinds)


def crossing(
    head: HeadLines,
    start: bytes | None,
    table: bytes,
    host: bytes,
    changes: dict[int, bytes] | None,
    tail: bytes,
) -> bytes:
    """Returns the head that crosses: the start line (None: as it came), the lines that `table` lets through, `tail`.

    `changes` has the line to put in a line's place, b"" to drop it. `tail` ends with the empty line.
    """
    if head.scan is not None:
        return head.scan.crossing(start, table, host, changes, tail)
    lines = (head._lines or head.lines)[:-2]
    if start is not None:
        lines[0] = start
    special = head._special
    for kind, name, value, at in head.special if special is None else special:
        how = table[kind]
        if how == _NOT:
            lines[at] = b""
        elif how:  # else as it came
            lines[at] = b"%b: %b" % (name, host if how == _HOST else value)
    if changes is not None:
        for at, line in changes.items():
            lines[at] = line
    return b"%b\r\n%b" % (b"\r\n".join(filter(None, lines)), tail)


def without_nominated(head: HeadLines, changes: dict[int, bytes] | None) -> dict[int, bytes]:
    """Returns the changes, with the lines that a Connection header took out dropped.

    Not for a scanned head: the scanner leaves one that has such lines to this module.
    """
    dropped = {
        at: b""
        for at, line in enumerate(head.lines[1:-2], 1)
        if line.partition(b":")[0].lower() in head.nominated
    }
    return {**changes, **dropped} if changes else dropped
