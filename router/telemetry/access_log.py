"""AccessLog: one line for each request, whatever bytes the request was made of."""

from __future__ import annotations

import asyncio
import time
from typing import BinaryIO

import orjson

from router.proxy.request import Outcome
from router.proxy.wire.trace_context import parse_traceparent
from router.telemetry.escaping import path_of, printable, printable_path
from router.telemetry.line_writer import SHARED_WRITE_BYTES, LineWriter
from router.telemetry.usual_line import MOST_BYTES, UsualLines

Facts = dict[str, str | int | float | None]

STDOUT = 1
PATH_LIMIT = 2048
TEXT_LIMIT = 256
# A line of cut fields must still fit into one undivided write.
_TIGHT_PATH_LIMIT = 1024
_TIGHT_TEXT_LIMIT = 32

_GATHERED = 64
_GATHER_S = 0.05

_BACKSLASH = 0x5C
_DELETE = 0x7F

_METHOD_TEXT = {
    method.encode(): method
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
}
_IN_TEXT_HEAD = {"time", "method", "path", "status", "total_s", "namespace", "sandbox", "port"}
_NEEDS_QUOTES = frozenset(" \"'=\\")
_MILLISECONDS = tuple(f"{number:03d}Z" for number in range(1000))

_USUAL_TRACEPARENT_BYTES = 55
_HEX = b"0123456789abcdef"
_HYPHEN = 0x2D
_NO_TRACE = b"0" * 32
_NO_SPAN = b"0" * 16


class AccessLog:
    """Turns outcomes into lines and gives them to a LineWriter. Belongs to the loop's thread, which it never blocks."""

    def __init__(
        self,
        *,
        sink: BinaryIO | int = STDOUT,
        log_format: str = "json",
        max_pending_bytes: int = 8 * 1024 * 1024,
        is_shared: bool = True,
    ) -> None:
        """`log_format` is `json` or `text`; `is_shared` says that other processes write to the same sink."""
        self._writer = LineWriter(sink, max_pending_bytes=max_pending_bytes, is_shared=is_shared)
        self._gathered: list[Outcome] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_json = log_format == "json"
        self._second = -1.0
        self._second_text = ""
        self._usual = UsualLines()

    def __repr__(self) -> str:
        return f"<AccessLog {'json' if self._is_json else 'text'} {self._writer!r}>"

    @property
    def dropped(self) -> int:
        """Lines that nobody took in time."""
        return self._writer.dropped

    def write(self, outcome: Outcome) -> None:
        """Takes one ended request, whose outcome doesn't change any more; never waits, never raises.

        Lines are made some at a time: between two requests each would find the processor's caches cold, at twice the cost.
        """
        gathered = self._gathered
        gathered.append(outcome)
        if len(gathered) >= _GATHERED:
            self._make_lines()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER_S, self._make_lines)

    async def close(self, *, timeout_s: float = 2.0) -> None:
        """Writes what is left, for at most `timeout_s`."""
        self._make_lines()
        await self._writer.close(timeout_s=timeout_s)

    def _make_lines(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered = self._gathered, []
        for outcome in gathered:
            self._writer.write(self.line(outcome))

    def line(self, outcome: Outcome) -> bytes:
        """Returns the line, with its line feed: printable characters alone, at most PIPE_BUF bytes."""
        if self._is_json:
            usual = self._usual.line(
                outcome,
                self._time_text(outcome.started_at),
                trace_id_of(outcome.traceparent) if outcome.traceparent else "",
            )
            if usual is not None:
                return usual
        facts = self._facts(outcome)
        if self._is_json:
            try:
                line = orjson.dumps(facts, option=orjson.OPT_APPEND_NEWLINE)
            except orjson.JSONEncodeError:
                pass
            else:
                # One look at the whole instead of one at each field: nothing was escaped. (`in` with a number is a
                # tenth of `in` with bytes: bench/telemetry.py.)
                if (
                    _BACKSLASH not in line
                    and _DELETE not in line
                    and line.isascii()
                    and len(line) <= MOST_BYTES
                ):
                    return line
        return self._careful_line(outcome, facts)

    def _facts(self, outcome: Outcome) -> Facts:
        """Returns the fields in their order, text as it came, durations cut to microseconds (round() costs three times as much)."""
        method = outcome.method
        wait_s, connect_s, first_byte_s = outcome.wait_s, outcome.connect_s, outcome.first_byte_s
        facts: Facts = {
            "time": self._time_text(outcome.started_at),
            "method": _METHOD_TEXT.get(method) or method.decode("latin-1"),
            "path": path_of(outcome.path).decode("latin-1"),
            "status": outcome.status,
            "code": outcome.code,
            "total_s": int(outcome.total_s * 1e6) / 1e6,
            "wait_s": None if wait_s is None else int(wait_s * 1e6) / 1e6,
            "connect_s": None if connect_s is None else int(connect_s * 1e6) / 1e6,
            "first_byte_s": None if first_byte_s is None else int(first_byte_s * 1e6) / 1e6,
            "bytes_from_client": outcome.bytes_from_client,
            "bytes_to_client": outcome.bytes_to_client,
            "client": outcome.client,
            "principal": outcome.principal,
            "namespace": outcome.asked_namespace or outcome.namespace,
            "sandbox": outcome.sandbox,
            "port": outcome.port,
            "pod_uid": outcome.pod_uid,
            "trace_id": trace_id_of(outcome.traceparent) if outcome.traceparent else "",
            "retries": outcome.retries,
            "upstream_error": outcome.upstream_error,
        }
        if outcome.woke:
            facts["woke"] = True
        if outcome.authz == "public":
            facts["public"] = True
        if outcome.token_id:
            facts["token_id"] = outcome.token_id
        if outcome.key_id:
            facts["key_id"] = outcome.key_id
        if outcome.error_reason:
            facts["error_reason"] = outcome.error_reason
        return facts

    def _careful_line(self, outcome: Outcome, facts: Facts) -> bytes:
        """Returns the line of facts of which some may be long or not printable."""
        line = self._limited_line(outcome, facts, PATH_LIMIT, TEXT_LIMIT)
        if len(line) > SHARED_WRITE_BYTES:
            line = self._limited_line(outcome, facts, _TIGHT_PATH_LIMIT, _TIGHT_TEXT_LIMIT)
        return line

    def _limited_line(
        self, outcome: Outcome, facts: Facts, path_limit: int, text_limit: int
    ) -> bytes:
        safe: Facts = {
            name: printable(fact, text_limit) if isinstance(fact, str) else fact
            for name, fact in facts.items()
        }
        safe["path"] = printable_path(path_of(outcome.path), path_limit)
        if self._is_json:
            return orjson.dumps(safe, option=orjson.OPT_APPEND_NEWLINE)
        return _text_line(safe)

    def _time_text(self, at: float) -> str:
        """Returns RFC 3339 in UTC with milliseconds; the part up to the second is made once a second."""
        since = at - self._second
        if not 0.0 <= since < 1.0:
            self._second = at // 1
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(self._second))
            since = at - self._second
        return self._second_text + _MILLISECONDS[int(since * 1000)]


def trace_id_of(traceparent: bytes) -> str:
    """Returns the trace id of a valid traceparent header, else "".

    Version 00 is read by position: the general parser costs three times as much.
    """
    if len(traceparent) == _USUAL_TRACEPARENT_BYTES and traceparent.startswith(b"00-"):
        trace_id = traceparent[3:35]
        if (
            traceparent.translate(None, _HEX) == b"---"
            and traceparent[35] == traceparent[52] == _HYPHEN
            and trace_id != _NO_TRACE
            and traceparent[36:52] != _NO_SPAN
        ):
            return trace_id.decode("ascii")
        return ""
    parent = parse_traceparent(traceparent)
    return "" if parent is None else parent.trace_id


def _text_line(facts: Facts) -> bytes:
    """Returns the form for people: what happened first, then what is worth adding as name=value."""
    where = f"{facts['namespace'] or '-'}/{facts['sandbox'] or '-'}:{facts['port'] or '-'}"
    words = [
        f"{facts['time']} {_quoted(facts['method'])} {facts['path']} {facts['status']} {facts['total_s']}s {_quoted(where)}"
    ]
    words += [
        f"{name}={_quoted(fact)}"
        for name, fact in facts.items()
        if name not in _IN_TEXT_HEAD and fact not in (None, "", 0)
    ]
    return " ".join(words).encode() + b"\n"


def _quoted(fact: object) -> str:
    """Returns a fact as one word, in JSON's quotes where it wouldn't be one."""
    text = str(fact)
    if text and not set(text) & _NEEDS_QUOTES:
        return text
    return orjson.dumps(text).decode()
