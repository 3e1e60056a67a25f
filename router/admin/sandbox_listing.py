"""The listing of /debug/sandboxes: which sandboxes the table holds, filtered, counted, in order."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from router.errors import BadRequest
from router.routing.endpoint import Endpoint, SandboxRef, State

DEFAULT_LIMIT = 1000
MAX_LIMIT = 10_000
MAX_OFFSET = 10_000_000
_PARAMETERS = ("namespace", "name", "state", "search", "offset", "limit")
_SLICE: Final = 500
"""So many sandboxes are looked at before others have their turn: a tenth of a millisecond or three."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What to list; None means any."""

    namespace: str | None = None
    name: str | None = None
    state: State | None = None
    search: str = ""
    """A part of `namespace/name`; "" for any."""
    offset: int = 0
    """How many of the first are left out."""
    limit: int = DEFAULT_LIMIT

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filter:
        """Returns the filter that a query string asks for. Raises BadRequest for what it doesn't understand."""
        unknown = sorted(set(query) - set(_PARAMETERS))
        if unknown:
            raise BadRequest(f"Unknown parameter; the parameters are {', '.join(_PARAMETERS)}.")
        return cls(
            namespace=query.get("namespace"),
            name=query.get("name"),
            state=_state(query.get("state")),
            search=query.get("search", ""),
            offset=_number("offset", query.get("offset"), 0, least=0, most=MAX_OFFSET),
            limit=_number("limit", query.get("limit"), DEFAULT_LIMIT, least=1, most=MAX_LIMIT),
        )

    def names(self, ref: SandboxRef) -> bool:
        """Returns True when a sandbox of this name is to be listed, if its state is."""
        return (
            (self.namespace is None or ref.namespace == self.namespace)
            and (self.name is None or ref.name == self.name)
            and (not self.search or self.search in f"{ref.namespace}/{ref.name}")
        )


async def listing(
    endpoints: Iterable[Endpoint],
    wanted: Filter,
    *,
    notes_about: Callable[[SandboxRef], Sequence[str]] = lambda ref: (),
) -> dict[str, Any]:
    """Returns up to `limit` sandboxes by namespace and name, from `offset` on, how many there are in all, and of each state.

    The states are counted whatever state is asked for. A large table is gone through in slices, so that requests don't
    wait for it; `notes_about` says what stands out about one of the sandboxes, in sentences.
    """
    known = iter(tuple(endpoints))
    states: Counter[str] = Counter()
    sorted_slices: list[list[Endpoint]] = []
    while piece := list(islice(known, _SLICE)):
        named = [endpoint for endpoint in piece if wanted.names(endpoint.ref)]
        states.update(endpoint.state.value for endpoint in named)
        if wanted.state is not None:
            named = [endpoint for endpoint in named if endpoint.state is wanted.state]
        if named:
            sorted_slices.append(sorted(named, key=_ref))
        await asyncio.sleep(0)
    merged = heapq.merge(*sorted_slices, key=_ref)
    left_out = wanted.offset
    while left_out and list(islice(merged, min(left_out, _SLICE))):
        left_out -= min(left_out, _SLICE)
        await asyncio.sleep(0)
    entries: list[dict[str, Any]] = []
    while piece := list(islice(merged, min(_SLICE, wanted.limit - len(entries)))):
        entries += [_entry(endpoint, notes_about(endpoint.ref)) for endpoint in piece]
        await asyncio.sleep(0)
    return {
        "total": sum(map(len, sorted_slices)),
        "states": {state.value: states[state.value] for state in State},
        "offset": wanted.offset,
        "limit": wanted.limit,
        "sandboxes": entries,
    }


def _ref(endpoint: Endpoint) -> SandboxRef:
    return endpoint.ref


def _entry(endpoint: Endpoint, notes: Sequence[str]) -> dict[str, Any]:
    return {
        "namespace": endpoint.ref.namespace,
        "name": endpoint.ref.name,
        "state": endpoint.state.value,
        "reason": endpoint.reason,
        "pod_uid": endpoint.uid,
        "sandbox_uid": endpoint.sandbox_uid,
        "addresses": list(endpoint.addresses),
        "ports": {str(asked): dialled for asked, dialled in endpoint.ports.items()},
        "notes": list(notes),
    }


def _state(text: str | None) -> State | None:
    if text is None:
        return None
    try:
        return State(text)
    except ValueError:
        states = ", ".join(state.value for state in State)
        raise BadRequest(f"Unknown state; the states are {states}.") from None


def _number(name: str, text: str | None, usual: int, *, least: int, most: int) -> int:
    if text is None:
        return usual
    if text.isascii() and text.isdigit() and len(text) <= 8 and least <= int(text) <= most:
        return int(text)
    raise BadRequest(f"The {name} is a number from {least} to {most}.")
