"""Activity: one router's answer to `GET /activity`, in ages by that router's own clock."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from router.routing.endpoint import SandboxRef
from router.timestamps import parse_timestamp


class UnusableAnswer(ValueError):
    """An answer that nothing may be concluded from; the message says why."""


class IncompleteAnswer(UnusableAnswer):
    """The router says itself that it doesn't know everything it saw."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one router has seen of a sandbox."""

    idle_s: float
    """Since its last activity; 0 while a request is open."""
    awake_s: float
    """For so long it was asked to be kept awake, 0 if it wasn't."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one router has seen since its start. Ages, not times: no two machines' clocks are ever compared."""

    uptime_s: float
    """For so long it has seen everything: since its start, or since it last forgot something."""
    sandboxes: Mapping[SandboxRef, Seen]
    process: str = ""
    """Which process answered; "" for a router that doesn't say so."""


def parse_activity(body: bytes, wanted: Container[SandboxRef]) -> Answer:
    """Returns the answer about the wanted sandboxes. Raises UnusableAnswer unless each part of it is there and can be read."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UnusableAnswer(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise UnusableAnswer("not a JSON object")
    if document.get("complete") is not True:
        why = document.get("incomplete_because") or "it has not the whole of what it saw"
        raise IncompleteAnswer(f"not complete: {why}"[:500])
    now = _time(document, "now")
    sandboxes: dict[SandboxRef, Seen] = {}
    for entry in _entries(document):
        ref = _ref(entry)
        if ref in wanted:
            seen, known = _seen(entry, now), sandboxes.get(ref)
            sandboxes[ref] = seen if known is None else _later(known, seen)
    process = document.get("process")
    return Answer(
        uptime_s=max(0.0, now - _complete_since(document)),
        sandboxes=sandboxes,
        process=process if isinstance(process, str) else "",
    )


def _complete_since(document: Mapping[str, Any]) -> float:
    """Returns since when it knows everything: its start, or later where it had to forget something."""
    started = _time(document, "started")
    if document.get("complete_since") is None:
        return started
    return max(started, _time(document, "complete_since"))


def _entries(document: Mapping[str, Any]) -> list[Any]:
    entries = document.get("sandboxes")
    if not isinstance(entries, list):
        raise UnusableAnswer("it has no list of sandboxes")
    return entries


def _ref(entry: Any) -> SandboxRef:
    if not isinstance(entry, dict):
        raise UnusableAnswer("an entry is not an object")
    namespace, name = entry.get("namespace"), entry.get("name")
    if not (isinstance(namespace, str) and isinstance(name, str) and namespace and name):
        raise UnusableAnswer("an entry names no sandbox")
    return SandboxRef(namespace, name)


def _seen(entry: Mapping[str, Any], now: float) -> Seen:
    open_requests = entry.get("open_requests")
    if not isinstance(open_requests, int) or isinstance(open_requests, bool):
        raise UnusableAnswer("an entry has no number of open requests")
    until = entry.get("awake_until")
    return Seen(
        idle_s=0.0 if open_requests else _idle_s(entry, now),
        awake_s=0.0 if until is None else max(0.0, _time(entry, "awake_until") - now),
    )


def _idle_s(entry: Mapping[str, Any], now: float) -> float:
    """A sandbox that was only asked to be kept awake has no last activity."""
    if entry.get("last_activity") is None and entry.get("awake_until") is not None:
        return float("inf")
    return max(0.0, now - _time(entry, "last_activity"))


def _time(holder: Mapping[str, Any], key: str) -> float:
    try:
        return parse_timestamp(holder.get(key))
    except ValueError as error:
        raise UnusableAnswer(f"{key} {error}") from error


def _later(one: Seen, other: Seen) -> Seen:
    return Seen(min(one.idle_s, other.idle_s), max(one.awake_s, other.awake_s))
