"""Overview: what an operator looks at first, as numbers and rates made of the router's own metrics."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from router.telemetry.snapshot import Snapshot

_WINDOW_S: Final = 10.0
"""Rates are those of about so long."""
_PREFIX: Final = "sandbox_router_"
_CLASSES: Final = ("2xx", "3xx", "4xx", "5xx", "101", "499")


@dataclass(frozen=True, slots=True)
class Count:
    """Something that is counted: since the start, and each second of late (None until that is known)."""

    name: str
    total: float
    per_second: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of the whole router, all its workers together."""

    missing: Sequence[str]
    """What keeps it from being ready, in sentences."""
    notes: Sequence[str]
    """What works less well than it could, in sentences."""
    requests: Count
    responses: Sequence[Count]
    """By class of status: `2xx` and so on, `101` for tunnels, `499` for clients that left."""
    errors: Sequence[Count]
    """The router's own errors by code, the most frequent first; those that have occurred."""
    wakes: Sequence[Count]
    from_clients: Count
    """Body bytes."""
    to_clients: Count
    in_flight: int
    open_tunnels: int
    clients: int
    waiting: int
    sandboxes: Mapping[str, int]
    """How many there are of each state."""
    table_age_s: float | None
    """How old the table's last news may be; None where there is none, or no age."""


_Totals = Mapping[tuple[str, str], float]
"""Counters by what they count and its label."""


class Rates:
    """Makes Overviews of snapshots, and remembers the counters of some seconds for their rates."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._past: deque[tuple[float, _Totals]] = deque()

    def overview(
        self, snapshot: Snapshot, *, missing: Sequence[str], notes: Sequence[str]
    ) -> Overview:
        """Returns the Overview as of now."""
        totals = _totals(snapshot)
        now = self._clock()
        past = self._past
        while len(past) > 1 and past[1][0] <= now - _WINDOW_S:
            past.popleft()
        then, before = past[0] if past else (now, totals)
        past.append((now, totals))

        def count(kind: str, name: str) -> Count:
            total = totals.get((kind, name), 0.0)
            grown = total - before.get((kind, name), 0.0)
            # A worker that died took what nobody had asked it for along.
            rate = max(0.0, grown) / (now - then) if now > then else None
            return Count(name, total, rate)

        def counts(kind: str) -> list[Count]:
            found = [count(kind, name) for of, name in totals if of == kind]
            return sorted((each for each in found if each.total), key=lambda each: -each.total)

        age_s = _number(snapshot, "index_age_seconds")
        return Overview(
            missing=missing,
            notes=notes,
            requests=count("requests", ""),
            responses=[count("class", name) for name in _CLASSES],
            errors=counts("error"),
            wakes=counts("wake"),
            from_clients=count("bytes", "from_client"),
            to_clients=count("bytes", "to_client"),
            in_flight=int(_number(snapshot, "inflight_requests") or 0),
            open_tunnels=int(_number(snapshot, "open_tunnels") or 0),
            clients=int(_number(snapshot, "client_connections") or 0),
            waiting=int(_number(snapshot, "waiting_requests") or 0),
            sandboxes={
                labels[0]: int(series[0])
                for labels, series in snapshot.get(_PREFIX + "index_sandboxes", ())
            },
            table_age_s=age_s,
        )


def _totals(snapshot: Snapshot) -> _Totals:
    totals: Counter[tuple[str, str]] = Counter()

    def add(kind: str, name: str, value: float) -> None:
        totals[kind, name] += value  # type: ignore[assignment]  # a Counter adds floats as well

    for (_, code, _), series in snapshot.get(_PREFIX + "requests_total", ()):
        add("requests", "", series[0])
        add("class", code if code in _CLASSES else f"{code[:1]}xx", series[0])
    for kind, family in (
        ("error", "router_errors_total"),
        ("wake", "wakes_total"),
        ("bytes", "bytes_total"),
    ):
        for labels, series in snapshot.get(_PREFIX + family, ()):
            add(kind, labels[0], series[0])
    return totals


def _number(snapshot: Snapshot, family: str) -> float | None:
    """Returns the sum of a family's series, None when it has none."""
    rows = snapshot.get(_PREFIX + family, ())
    return sum(series[0] for _, series in rows) if rows else None
