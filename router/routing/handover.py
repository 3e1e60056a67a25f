"""Handover: a whole table of sandboxes on its way from one worker to another, page by page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final

from router.routing.endpoint import NO_PORTS, NO_WISHES, Endpoint, SandboxRef, State, Wishes
from router.routing.index import EndpointIndex

PAGE: Final = 500
"""Sandboxes at a time: packing one page costs requests two milliseconds at most."""
_SNAPSHOTS: Final = 2

_PLACE: Final = ("donor", "token", "next")
"""What of a page names the one behind it; `donor` is the supervisor's."""

Page = dict[str, Any]
"""What JSON can carry: `token`, `next` (None on the last page), `endpoints`; on the first page `aliases` and `age_s`."""


@dataclass(frozen=True, slots=True)
class HandedTable:
    """A table as another worker knew it, and how many seconds ago it was as its source."""

    endpoints: tuple[Endpoint, ...]
    aliases: Mapping[SandboxRef, SandboxRef]
    age_s: float


class Donor:
    """Gives this worker's table away. What changes after the first page is left to the other's own watch."""

    def __init__(self, index: EndpointIndex) -> None:
        self._index = index
        self._tokens = itertools.count(1)
        self._snapshots: dict[int, tuple[Endpoint, ...]] = {}

    def page(self, asked: Mapping[str, Any]) -> Page | None:
        """Returns the page that `asked` names by `token` and `next`, or the first one; None without a whole table."""
        token = asked.get("token")
        if token is None:
            return self._first()
        endpoints = self._snapshots.get(token)
        return None if endpoints is None else self._page(token, endpoints, asked["next"])

    def _first(self) -> Page | None:
        age_s = self._index.age_s()
        if not self._index.is_complete() or age_s is None:
            return None
        endpoints, aliases = self._index.snapshot()
        token = next(self._tokens)
        while len(self._snapshots) >= _SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]
        self._snapshots[token] = endpoints
        return {
            **self._page(token, endpoints, 0),
            "aliases": [[*alias, *ref] for alias, ref in aliases.items()],
            "age_s": age_s,
        }

    def _page(self, token: int, endpoints: tuple[Endpoint, ...], start: int) -> Page:
        end = start + PAGE
        is_last = end >= len(endpoints)
        if is_last:
            self._snapshots.pop(token, None)
        return {
            "token": token,
            "next": None if is_last else end,
            "endpoints": [_packed(endpoint) for endpoint in endpoints[start:end]],
        }


async def fetch(ask: Callable[[Page], Awaitable[Page | None]]) -> HandedTable | None:
    """Returns the table that `ask` brings page by page; None when nobody has one, or who had it has gone."""
    page = await ask({})
    if page is None:
        return None
    aliases = {
        SandboxRef(alias_namespace, alias): SandboxRef(namespace, name)
        for alias_namespace, alias, namespace, name in page["aliases"]
    }
    age_s: float = page["age_s"]
    endpoints = [_unpacked(packed) for packed in page["endpoints"]]
    while page["next"] is not None:
        page = await ask({key: page.get(key) for key in _PLACE})
        if page is None:
            return None
        endpoints += map(_unpacked, page["endpoints"])
    return HandedTable(tuple(endpoints), aliases, age_s)


# By the fields' names, so that one that is new to Endpoint travels too.
_FIELDS: Final = tuple(field.name for field in fields(Endpoint))
_VALUES: Final = attrgetter(*_FIELDS)
_REF, _STATE, _ADDRESSES, _PORTS, _NOT_BEFORE, _WISHES = map(
    _FIELDS.index, ("ref", "state", "addresses", "ports", "tokens_not_before", "wishes")
)


def _packed(endpoint: Endpoint) -> list[Any]:
    values = list(_VALUES(endpoint))
    values[_REF] = list(endpoint.ref)
    values[_STATE] = endpoint.state.value
    values[_PORTS] = list(endpoint.ports.items())
    path_mode, wakes, public_ports = endpoint.wishes
    values[_WISHES] = [path_mode, wakes, list(public_ports)] if any(endpoint.wishes) else None
    # JSON has no infinity: it would arrive as "no such rule".
    values[_NOT_BEFORE] = None if math.isinf(endpoint.tokens_not_before) else values[_NOT_BEFORE]
    return values


def _unpacked(values: list[Any]) -> Endpoint:
    values[_REF] = SandboxRef(*values[_REF])
    values[_STATE] = State(values[_STATE])
    values[_ADDRESSES] = tuple(values[_ADDRESSES])
    values[_PORTS] = dict(values[_PORTS]) if values[_PORTS] else NO_PORTS
    if values[_WISHES] is None:
        values[_WISHES] = NO_WISHES
    else:
        path_mode, wakes, public_ports = values[_WISHES]
        values[_WISHES] = Wishes(path_mode, wakes, frozenset(public_ports))
    values[_NOT_BEFORE] = math.inf if values[_NOT_BEFORE] is None else values[_NOT_BEFORE]
    return Endpoint(*values)
