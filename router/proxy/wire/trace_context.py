"""W3C Trace Context: a request's place in a trace, as its head tells it and as the sandbox is told."""

from __future__ import annotations

import re
import time
from typing import Final, NamedTuple

from router.proxy.wire.header_rules import Kind
from router.proxy.wire.request_head import RequestHead

WAIT: Final = "wait"
CONNECT: Final = "connect"
FIRST_BYTE: Final = "first byte"

# §3.2.2: lower-case hexadecimal; a version after 00 may have more fields.
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")


class TraceParent(NamedTuple):
    """A valid traceparent: both ids in hexadecimal, and the flags, of which 1 means that the trace is recorded."""

    trace_id: str
    parent_id: str
    flags: int


def parse_traceparent(value: bytes) -> TraceParent | None:
    """Returns what a traceparent header says, None for an invalid one."""
    match = _TRACEPARENT.fullmatch(value)
    if match is None:
        return None
    version, trace_id, parent_id, flags, more = match.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    if not trace_id.strip(b"0") or not parent_id.strip(b"0"):
        return None
    return TraceParent(trace_id.decode("ascii"), parent_id.decode("ascii"), int(flags, 16))


class TraceHeaders:
    """The trace context of one request, and the lines of its head that hold it."""

    __slots__ = ("_head", "_parents", "_states", "parent")

    def __init__(self, head: RequestHead) -> None:
        self._head = head
        self._parents = _lines_of(head, Kind.TRACEPARENT)
        self._states = _lines_of(head, Kind.TRACESTATE)
        self.parent = parse_traceparent(self._parents[0][1]) if len(self._parents) == 1 else None
        """None without one valid traceparent: whatever came then means nothing."""

    def __repr__(self) -> str:
        return f"<TraceHeaders {self.parent!r}>"

    @property
    def state(self) -> str:
        """The tracestate, several lines joined; empty where it means nothing."""
        if self.parent is None:
            return ""
        return b",".join([value for _, value in self._states]).decode("latin-1")

    def send(self, traceparent: bytes) -> None:
        """Puts `traceparent` into the head. A tracestate stays as it came if it belongs to the trace (§3.3.1)."""
        line = b"traceparent: " + traceparent
        if self.parent is not None:
            self._head.changes = {self._parents[0][0]: line}
        else:
            self._head.changes = {at: b"" for at, _ in (*self._parents, *self._states)}
            self._head.added = line + b"\r\n"


def _lines_of(head: RequestHead, kind: int) -> list[tuple[int, bytes]]:
    """Returns the place and the value of each line of that kind."""
    if not head.kinds >> kind & 1:
        return []
    return [(at, value) for found, _, value, at in head.special if found == kind]


class Step:
    """A part of a traced request, in monotonic seconds; `error` is a reason from UPSTREAM_ERRORS, "" for none."""

    __slots__ = ("began_at", "ended_at", "error", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.began_at = time.monotonic()
        self.ended_at: float | None = None
        """None while it goes on."""
        self.error = ""

    def __repr__(self) -> str:
        return f"<Step {self.name} ended={self.ended_at is not None} error={self.error!r}>"


class Trace:
    """The steps of a traced request that took a turn of the loop or more; whoever makes its span adds to it."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def begins(self, name: str) -> None:
        """Notes that a step begins, or goes on if it was the last one and nothing had failed."""
        steps = self.steps
        if steps and steps[-1].name == name and not steps[-1].error:
            steps[-1].ended_at = None
        else:
            steps.append(Step(name))

    def ends(self, error: str = "") -> None:
        """Notes that the last step has ended."""
        step = self.steps[-1]
        step.ended_at = time.monotonic()
        step.error = error
