"""The page /activity: for each sandbox that the router saw, when it was used last."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from router.errors import BadRequest
from router.telemetry.activity import Use

_PARAMETERS: Final = ("namespace", "name")
_PROCESS: Final = uuid.uuid4().hex
"""By which who asks notices that one address leads to several routers, each of which knows its own part."""


@dataclass(frozen=True, slots=True)
class ActivityFilter:
    """What to tell of; None means any."""

    namespace: str | None = None
    name: str | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ActivityFilter:
        """Returns the filter that a query string asks for. Raises BadRequest for what it doesn't understand."""
        if set(query) - set(_PARAMETERS):
            raise BadRequest(f"Unknown parameter; the parameters are {', '.join(_PARAMETERS)}.")
        return cls(namespace=query.get("namespace"), name=query.get("name"))


@dataclass(frozen=True, slots=True)
class Seen:
    """What one process, or several, have seen; times are monotonic seconds."""

    now: float
    """When it was true."""
    started_at: float
    """The start of the router's own process."""
    complete_since: float
    """Nothing is known from before: the youngest process's start, or later."""
    slices: Iterable[Sequence[Use]]
    gaps: Sequence[str] = ()
    """Why not everything that was seen is told, in sentences; empty when it is."""


async def document(
    seen: Seen,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> bytes:
    """Returns the page as JSON. Times are put into the clock's words as it goes now, and the loop has its turns between."""
    to_wall = wall() - monotonic()

    def when(at: float) -> datetime:
        return datetime.fromtimestamp(at + to_wall, UTC)

    parts: list[bytes] = []
    for uses in seen.slices:
        rows = (_row(use, seen.now, when) for use in uses)
        parts += [orjson.dumps(row, option=orjson.OPT_UTC_Z) for row in rows]
        await asyncio.sleep(0)
    head = {
        "now": when(seen.now),
        "started": when(seen.started_at),
        "process": _PROCESS,
        "complete": not seen.gaps,
        "incomplete_because": "; ".join(seen.gaps),
        "complete_since": when(seen.complete_since),
    }
    return b'%b,"sandboxes":[\n%b\n]}\n' % (
        orjson.dumps(head, option=orjson.OPT_UTC_Z)[:-1],
        b",\n".join(parts),
    )


def _row(use: Use, now: float, when: Callable[[float], datetime]) -> dict[str, Any]:
    return {
        "namespace": use.namespace,
        "name": use.name,
        "uid": use.uid,
        "last_activity": when(min(now, max(use.used_at, use.awake_until))),
        "open_requests": use.open_requests,
        "open_tunnels": use.open_tunnels,
        "awake_until": when(use.awake_until) if use.awake_until else None,
    }
