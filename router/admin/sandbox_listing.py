"""The listing of /debug/sandboxes: which sandboxes the table holds, filtered, counted, in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from router.errors import BadRequest
from router.routing.endpoint import Endpoint, SandboxRef, State

DEFAULT_LIMIT = 1000
MAX_LIMIT = 10_000
_PARAMETERS = ("namespace", "name", "state", "limit")


@dataclass(frozen=True, slots=True)
class Filter:
    """What to list; None means any."""

    namespace: str | None = None
    name: str | None = None
    state: State | None = None
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
            limit=_limit(query.get("limit")),
        )

    def takes(self, endpoint: Endpoint) -> bool:
        """Returns True when the sandbox is to be listed."""
        return (
            (self.namespace is None or endpoint.ref.namespace == self.namespace)
            and (self.name is None or endpoint.ref.name == self.name)
            and (self.state is None or endpoint.state is self.state)
        )


def listing(
    endpoints: Iterable[Endpoint],
    wanted: Filter,
    *,
    notes_about: Callable[[SandboxRef], Sequence[str]] = lambda ref: (),
) -> dict[str, Any]:
    """Returns the first `limit` sandboxes by namespace and name, and how many there are in all.

    `notes_about` says what stands out about one of them, in sentences.
    """
    found = [endpoint for endpoint in endpoints if wanted.takes(endpoint)]
    first = heapq.nsmallest(wanted.limit, found, key=lambda endpoint: endpoint.ref)
    return {
        "total": len(found),
        "limit": wanted.limit,
        "sandboxes": [_entry(endpoint, notes_about(endpoint.ref)) for endpoint in first],
    }


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


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= MAX_LIMIT:
        return int(text)
    raise BadRequest(f"The limit is a number from 1 to {MAX_LIMIT}.")
