"""Logs: every record of the process as one line on standard error, JSON or text.

Whoever logs never waits: a thread of its own writes. A message that comes again and again is written a few times, then counted.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from enum import Enum
from types import TracebackType
from typing import Any, BinaryIO

from router.telemetry.escaping import printable
from router.telemetry.line_writer import LineWriter
from router.telemetry.repeats import Repeats

ROOT = "sandbox_router"
TEXT_LIMIT = 4096
TRACEBACK_LIMIT = 32 * 1024
MAX_PENDING_BYTES = 2 * 1024 * 1024
_DEPTH_LIMIT = 4
_ITEM_LIMIT = 100

_OF_EVERY_RECORD = frozenset(("time", "level", "logger", "message"))
_OF_EXCEPTIONS = frozenset(("error", "traceback"))


def configure(*, level: str, log_format: str, sink: BinaryIO | None = None) -> None:
    """Sends the records of the router from `level` on, and warnings of its libraries, to `sink` (standard error).

    May be called again; only what an earlier call installed is replaced. Raises ValueError for an unknown level or format.
    """
    formatter = _FORMATTERS.get(log_format)
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None or formatter is None:
        raise ValueError(f"no such log level or format: {level!r}, {log_format!r}")
    root = logging.getLogger()
    for handler in _installed():
        root.removeHandler(handler)
        handler.end()
    handler = LogHandler(sink=sys.stderr.buffer if sink is None else sink, repeats=Repeats())
    handler.setFormatter(formatter())
    root.addHandler(handler)
    logging.getLogger(ROOT).setLevel(number)


def take_all() -> None:
    """Makes records of what Python itself would write to standard error, in whichever thread: for a whole process."""
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_thread


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    logging.getLogger(ROOT).critical(
        "the program failed for a reason that nobody foresaw", exc_info=(kind, error, trace)
    )


def _log_unraisable(told: sys.UnraisableHookArgs) -> None:
    error = told.exc_value or told.exc_type()
    logging.getLogger(ROOT).error(
        told.err_msg or "an exception that nobody could catch",
        exc_info=(told.exc_type, error, told.exc_traceback),
        extra={"fields": {"in": repr(told.object)}},
    )


def _log_thread(told: threading.ExceptHookArgs) -> None:
    error = told.exc_value or told.exc_type()
    logging.getLogger(ROOT).error(
        "a thread failed",
        exc_info=(told.exc_type, error, told.exc_traceback),
        extra={"fields": {"thread": told.thread.name if told.thread else ""}},
    )


def lost() -> dict[tuple[str, ...], int]:
    """Returns how many records of this process were not written, by reason: left out as repeats, or nobody took them."""
    handlers = _installed()
    return {
        ("repeated",): sum(handler.repeats.left_out for handler in handlers),
        ("not_taken",): sum(handler.not_taken for handler in handlers),
    }


def flush() -> None:
    """Waits until what was logged is written; it blocks, for 4 s at most."""
    for handler in _installed():
        handler.flush()


def _installed() -> list[LogHandler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, LogHandler)]


class LogHandler(logging.Handler):
    """Makes lines of records and gives them to a LineWriter; the lock of every handler lets in one thread at a time."""

    def __init__(
        self, *, sink: BinaryIO, repeats: Repeats, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._clock = clock
        self.repeats = repeats
        self._writer = LineWriter(
            sink, max_pending_bytes=MAX_PENDING_BYTES, name="log-writer", is_shared=True
        )
        self._timer: threading.Timer | None = None
        self._is_ended = False
        atexit.register(self.end)

    def __repr__(self) -> str:
        return f"<LogHandler {self.repeats!r} {self._writer!r}>"

    @property
    def not_taken(self) -> int:
        """Records that nobody took in time."""
        return self._writer.dropped

    def emit(self, record: logging.LogRecord) -> None:
        """Hands one record over, or counts it. Never waits, never raises."""
        if self._is_ended:
            return
        now = self._clock()
        for count in self.repeats.due(now):
            self._put(count)
        # Who asks for debug wants every record.
        if record.levelno <= logging.DEBUG or self.repeats.admits(record, now):
            self._put(record)
        elif self._timer is None:
            self._wake_at(self.repeats.next_at(), now)

    def flush(self) -> None:
        """Waits until what was handed over is written, or nobody takes it."""
        self._writer.flush()

    def end(self) -> None:
        """Writes what is left and the last counts; later records are lost."""
        atexit.unregister(self.end)
        with self._locked():
            if self._timer is not None:
                self._timer.cancel()
            for count in self.repeats.rest(self._clock()):
                self._put(count)
            self._is_ended = True
        # Without the lock: the writing thread may have something to log itself.
        self._writer.end()

    def _put(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception as exc:  # a library's arguments that don't fit its message, say
            text = self.format(_unreadable(record, exc))
        self._writer.put(text.encode() + b"\n")

    def _wake_at(self, at: float | None, now: float) -> None:
        """Sees to it that a count is written when it is due, even if nothing is logged any more."""
        self._timer = None
        if at is not None:
            self._timer = threading.Timer(max(0.0, at - now), self._say_counts)
            self._timer.daemon = True
            self._timer.start()

    def _say_counts(self) -> None:
        with self._locked():
            now = self._clock()
            for count in self.repeats.due(now):
                self._put(count)
            self._wake_at(self.repeats.next_at(), now)

    def _locked(self) -> threading.RLock:
        assert self.lock is not None
        return self.lock


def _unreadable(record: logging.LogRecord, error: Exception) -> logging.LogRecord:
    message = "a log record can't be formatted"
    told = logging.LogRecord(record.name, logging.ERROR, "", 0, message, None, None)
    told.fields = {"template": str(record.msg), "reason": type(error).__name__}
    return told


class JsonFormatter(logging.Formatter):
    """One JSON object a record, in ASCII, whatever the record holds."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line without its line feed."""
        facts: dict[str, Any] = {
            "time": _time_text(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _plain(record.getMessage()),
        }
        error, stack = _error_of(record)
        # A field can't replace what the record itself says.
        taken = _OF_EVERY_RECORD | _OF_EXCEPTIONS if error else _OF_EVERY_RECORD
        for name, fact in _fields_of(record).items():
            facts[f"field_{name}" if name in taken else name] = fact
        if error:
            facts["error"] = printable(error, TEXT_LIMIT)
            facts["traceback"] = stack[-TRACEBACK_LIMIT:]
        # ASCII escapes also cover U+2028, C1 controls and lone surrogates; DEL is the one that it leaves.
        return json.dumps(facts).replace("\x7f", "\\u007f")


class TextFormatter(logging.Formatter):
    """One line a record for people; the lines of a traceback follow it, each behind a bar."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the lines without the last line feed."""
        words = [
            _time_text(record.created),
            f"{record.levelname:<7}",
            record.name.removeprefix(f"{ROOT}."),
            printable(record.getMessage(), TEXT_LIMIT),
        ]
        words += [f"{name}={_word(fact)}" for name, fact in _fields_of(record).items()]
        error, stack = _error_of(record)
        if error:
            words.append(f"error={_word(printable(error, TEXT_LIMIT))}")
        lines = [" ".join(words)]
        lines += [
            f"  | {printable(line, TEXT_LIMIT)}"
            for line in stack[-TRACEBACK_LIMIT:].split("\n")
            if line
        ]
        return "\n".join(lines)


_FORMATTERS: dict[str, type[logging.Formatter]] = {"json": JsonFormatter, "text": TextFormatter}


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", None)
    if not isinstance(fields, Mapping):
        return {}
    return {printable(str(name), 64): _plain(fact) for name, fact in fields.items()}


def _error_of(record: logging.LogRecord) -> tuple[str, str]:
    """Returns the record's exception in a sentence, and its traceback; empty without one."""
    if not record.exc_info or record.exc_info[1] is None:
        return "", ""
    error = record.exc_info[1]
    text = str(error)
    sentence = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return sentence, "".join(traceback.format_exception(error))


def _plain(fact: object, depth: int = 0) -> Any:
    """Returns what JSON can say of a fact, bounded in length and depth."""
    if fact is None or isinstance(fact, bool | int):
        return fact
    if isinstance(fact, float):
        return fact if math.isfinite(fact) else str(fact)
    if isinstance(fact, bytes):
        return printable(fact.decode("utf-8", "backslashreplace"), TEXT_LIMIT)
    if isinstance(fact, Enum):
        return _plain(fact.value, depth + 1)
    if depth < _DEPTH_LIMIT:
        if isinstance(fact, Mapping):
            items = list(fact.items())[:_ITEM_LIMIT]
            return {printable(str(key), 64): _plain(value, depth + 1) for key, value in items}
        if isinstance(fact, list | tuple | set | frozenset):
            return [_plain(item, depth + 1) for item in list(fact)[:_ITEM_LIMIT]]
    return printable(str(fact), TEXT_LIMIT)


def _word(fact: object) -> str:
    """Returns a fact as one word: in JSON's form unless it is plain."""
    if isinstance(fact, str) and fact and not set(fact) & set(" \"'=\\"):
        return fact
    return json.dumps(fact, ensure_ascii=False)


def _time_text(at: float) -> str:
    """Returns RFC 3339 in UTC with milliseconds."""
    second = int(at)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
    return f"{text}.{int((at - second) * 1000):03d}Z"
