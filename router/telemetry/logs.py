"""Logs: every record of the process as one line on standard error, JSON or text."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
import traceback
from collections.abc import Mapping
from enum import Enum
from typing import Any, TextIO

from router.telemetry.escaping import printable

ROOT = "sandbox_router"
TEXT_LIMIT = 4096
TRACEBACK_LIMIT = 32 * 1024
_DEPTH_LIMIT = 4
_ITEM_LIMIT = 100

_RESERVED = ("time", "level", "logger", "message", "error", "traceback")


def configure(*, level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Sends the records of the router from `level` on, and warnings of its libraries, to `stream` (standard error).

    May be called again; only what an earlier call installed is replaced. Raises ValueError for an unknown level or format.
    """
    formatter = _FORMATTERS.get(log_format)
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None or formatter is None:
        raise ValueError(f"no such log level or format: {level!r}, {log_format!r}")
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
        root.removeHandler(handler)
    handler = _Handler(sys.stderr if stream is None else stream)
    handler.setFormatter(formatter())
    root.addHandler(handler)
    logging.getLogger(ROOT).setLevel(number)


class _Handler(logging.StreamHandler[TextIO]):
    """A stream handler that is known as ours."""


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
        for name, fact in _fields_of(record).items():
            # A field can't replace what the record itself says.
            facts[f"{name}_" if name in _RESERVED else name] = fact
        error, stack = _error_of(record)
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
