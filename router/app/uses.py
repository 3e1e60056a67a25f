"""Uses: what several workers saw of sandboxes' use, put together for the page /activity."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from router.admin.activity import ActivityFilter, Seen
from router.telemetry.activity import MAX_SANDBOXES, Moment, Use

_SLICE: Final = 250
_MOST_PROMISES: Final = MAX_SANDBOXES


async def moment_text(moment: Moment) -> dict[str, Any]:
    """Returns a worker's knowledge as JSON can carry it to the supervisor, made in turns with the worker's requests."""
    slices = []
    for uses in moment.slices():
        slices.append(orjson.Fragment(orjson.dumps([tuple(use) for use in uses])))
        await asyncio.sleep(0)
    return {"now": moment.now, "complete_since": moment.complete_since, "slices": slices}


def wanted_text(wanted: ActivityFilter) -> dict[str, Any]:
    """Returns the filter as JSON can carry it between processes."""
    return {"namespace": wanted.namespace, "name": wanted.name}


class WorkersUses:
    """Adds workers up, and keeps their promises: who was to be kept awake stays so when the worker that was told has died."""

    def __init__(self, *, started_at: float, most_promises: int = _MOST_PROMISES) -> None:
        self._started_at = started_at
        self._complete_since = started_at
        self._most_promises = most_promises
        self._awake: dict[tuple[str, str, str], float] = {}

    def __repr__(self) -> str:
        return f"<WorkersUses awake={len(self._awake)}>"

    def promise(self, wish: tuple[str, str, str, float], *, now: float) -> None:
        """Remembers a sandbox (namespace, name, UID) that is to be kept awake for so many seconds from `now` on."""
        namespace, name, uid, seconds = wish
        key = (namespace, name, uid)
        if key not in self._awake and len(self._awake) >= self._most_promises:
            self._make_room(now)
        self._awake[key] = max(self._awake.get(key, 0.0), now + seconds)

    def _make_room(self, now: float) -> None:
        """Forgets what is over, then what ends soonest until a tenth is free, and says that it isn't known."""
        left = sorted(
            ((until, key) for key, until in self._awake.items() if until > now), reverse=True
        )
        kept = min(len(left), self._most_promises - max(1, self._most_promises // 10))
        if kept < len(left):
            # A time to come: until then nobody counts as idle.
            self._complete_since = max(self._complete_since, left[kept][0])
        self._awake = {key: until for until, key in left[:kept]}

    async def add_up(
        self,
        answers: Iterable[Mapping[str, Any]],
        *,
        gaps: Iterable[str],
        wanted: ActivityFilter,
        now: float,
    ) -> Seen:
        """Returns what the workers that answered saw; `gaps` says who didn't, `now` (monotonic seconds) when they were asked."""
        uses: dict[tuple[str, str, str], Use] = {}
        complete_since = self._complete_since
        for answer in answers:
            complete_since = max(complete_since, answer["complete_since"])
            for rows in answer["slices"]:
                for row in rows:
                    use = Use(*row)
                    known = uses.get(use[:3])
                    uses[use[:3]] = use if known is None else _both(known, use)
                await asyncio.sleep(0)
        self._keep_promises(uses, wanted, now)
        gaps = tuple(gaps)
        return Seen(
            now=now,
            started_at=self._started_at,
            # Whatever a worker that can't be asked saw until now isn't known.
            complete_since=max(complete_since, now) if gaps else complete_since,
            slices=_slices(list(uses.values())),
            gaps=gaps,
        )

    def _keep_promises(
        self, uses: dict[tuple[str, str, str], Use], wanted: ActivityFilter, now: float
    ) -> None:
        awake = self._awake
        awake.update({key: use.awake_until for key, use in uses.items() if use.awake_until > now})
        for key, until in list(awake.items()):
            if until <= now:
                del awake[key]
            elif wanted.namespace in (None, key[0]) and wanted.name in (None, key[1]):
                promised = Use(*key, 0.0, 0, 0, until)
                known = uses.get(key)
                uses[key] = promised if known is None else _both(known, promised)


def _both(one: Use, other: Use) -> Use:
    return Use(
        *one[:3],
        max(one.used_at, other.used_at),
        one.open_requests + other.open_requests,
        one.open_tunnels + other.open_tunnels,
        max(one.awake_until, other.awake_until),
    )


def _slices(uses: list[Use]) -> Iterator[list[Use]]:
    return (uses[start : start + _SLICE] for start in range(0, len(uses), _SLICE))
