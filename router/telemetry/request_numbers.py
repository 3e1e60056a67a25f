"""RequestNumbers: what is counted of requests by method, status and namespace.

One entry holds all that an ordinary request counts, found by one look-up under what the request says itself
(bench/telemetry.py). Entries are few: their keys are canonical, whatever clients and sandboxes invent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from http import HTTPStatus
from typing import Final

from router.proxy.request import UPSTREAM_ERRORS, Outcome
from router.routing.waiting import IS_FULL
from router.telemetry.metric_catalogue import BY_NAME
from router.telemetry.metric_labels import (
    AUTHZ_DECISIONS,
    METHODS,
    OTHER,
    REQUEST_BUCKETS_S,
    UNKNOWN,
)
from router.telemetry.namespace_labels import NamespaceLabels

CLIENT_CLOSED: Final = 499

Rows = Iterator[tuple[str, tuple[str, ...], list[float]]]
"""Family name, label values, series."""

_METHODS: Final = frozenset(method.encode() for method in METHODS)
_OTHER_METHOD: Final = b"other"
# Unregistered codes share one series: what answers is untrusted code, and could make 500 series a namespace.
_STATUSES: Final = frozenset(status.value for status in HTTPStatus) | {CLIENT_CLOSED}
_OTHER_STATUS: Final = 0
_DECISIONS: Final = {"allowed": "allow", "denied": "deny"}
_BORN_DECISIONS: Final = ("allow", "deny")
_DECISIONS_FAMILY: Final = BY_NAME["sandbox_router_authz_decisions_total"]
_MAX_SHORTCUTS: Final = 20_000
ZEROS_UP_TO: Final = 500
"""With more namespaces in the table, only those with traffic have series: zeros alone would be tens of thousands."""


class Entry:
    """The numbers of one method, status and namespace."""

    __slots__ = ("allowed", "durations", "not_allowed")

    def __init__(self) -> None:
        self.allowed = 0
        """Requests that the caller was allowed to make."""
        self.not_allowed: dict[str, int] = {}
        """The others that came to a decision, by the outcome's word for it."""
        self.durations = new_histogram(REQUEST_BUCKETS_S)


class RequestNumbers:
    """Counts ended requests; the one who counts keeps the entry's lists up to date itself. Belongs to the loop's thread."""

    def __init__(self, *, labels: NamespaceLabels) -> None:
        self._labels = labels
        self.shortcuts: dict[tuple[bytes, int, str], Entry] = {}
        """Entries by what a request says: its method, status and namespace."""
        self._entries: dict[tuple[bytes, int, str], Entry] = {}
        self._upstream_errors: dict[tuple[str, str], int] = {}
        self._full: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    # --- counting ---

    def entry_of(self, outcome: Outcome) -> Entry:
        """Returns the entry that an outcome counts in, when it has no shortcut yet."""
        is_method = outcome.method in _METHODS
        is_status = outcome.status in _STATUSES
        key = (
            outcome.method if is_method else _OTHER_METHOD,
            outcome.status if is_status else _OTHER_STATUS,
            self._labels.label(outcome.namespace),
        )
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry()
        if is_method and is_status:
            if len(self.shortcuts) >= _MAX_SHORTCUTS:
                self.shortcuts.clear()
            self.shortcuts[outcome.method, outcome.status, outcome.namespace] = entry
        return entry

    def failed_upstream(self, outcome: Outcome) -> None:
        """Counts a failure on the sandbox's side."""
        reason = BY_NAME["sandbox_router_upstream_errors_total"].closed(1, outcome.upstream_error)
        key = (self._labels.label(outcome.namespace), reason)
        self._upstream_errors[key] = self._upstream_errors.get(key, 0) + 1

    def not_ready(self, outcome: Outcome) -> None:
        """Counts a request that found no place in the waiting room."""
        if outcome.error_reason in IS_FULL:
            label = self._labels.label(outcome.namespace)
            self._full[label] = self._full.get(label, 0) + 1

    # --- the scrape ---

    def rows(self, known: Collection[str] | None) -> Rows:
        """Yields every series. `known` are the table's namespaces, None when nobody knows them.

        Those without requests show zeros, while they are at most ZEROS_UP_TO; those that left long ago are dropped.
        """
        if known is not None:
            for namespace in self._labels.forget_missing(known):
                self._drop(namespace)
        few = known if known is not None and len(known) <= ZEROS_UP_TO else ()
        shown = {"", *(self._labels.label(namespace) for namespace in few)}
        labels = sorted(shown | self._labels.named)
        yield from self._requests()
        yield from self._all_decisions(labels)
        yield from self._all_upstream_errors(labels)
        for label in dict.fromkeys((*labels, *self._full)):
            name = "sandbox_router_waiting_room_full_total"
            yield name, (label or UNKNOWN,), [self._full.get(label, 0)]

    def _requests(self) -> Rows:
        for (method, status, label), entry in self._entries.items():
            key = (method.decode(), str(status) if status else OTHER, label or UNKNOWN)
            yield "sandbox_router_requests_total", key, [sum(entry.durations[:-1])]
            yield "sandbox_router_request_duration_seconds", key, list(entry.durations)

    def _all_decisions(self, labels: Collection[str]) -> Rows:
        found = dict.fromkeys(((label, born) for label in labels for born in _BORN_DECISIONS), 0)
        found |= {("", decision): 0 for decision in AUTHZ_DECISIONS}
        for (_, _, label), entry in self._entries.items():
            counts = {"allow": entry.allowed} if entry.allowed else {}
            for word, count in entry.not_allowed.items():
                decision = _DECISIONS_FAMILY.closed(1, _DECISIONS.get(word, word))
                counts[decision] = counts.get(decision, 0) + count
            for decision, count in counts.items():
                found[label, decision] = found.get((label, decision), 0) + count
        for (label, decision), total in found.items():
            yield "sandbox_router_authz_decisions_total", (label or UNKNOWN, decision), [total]

    def _all_upstream_errors(self, labels: Collection[str]) -> Rows:
        found = {(label, reason): 0 for label in labels for reason in UPSTREAM_ERRORS}
        found |= self._upstream_errors
        for (label, reason), total in found.items():
            yield "sandbox_router_upstream_errors_total", (label or UNKNOWN, reason), [total]

    def _drop(self, namespace: str) -> None:
        self.shortcuts.clear()
        self._entries = {k: v for k, v in self._entries.items() if k[2] != namespace}
        self._upstream_errors = {
            k: v for k, v in self._upstream_errors.items() if k[0] != namespace
        }
        self._full.pop(namespace, None)


def new_histogram(buckets_s: tuple[float, ...]) -> list[float]:
    """Returns zeros: one for each bucket, one for everything above, then the sum (see snapshot.py)."""
    return [0] * (len(buckets_s) + 1) + [0.0]


def observe(series: list[float], buckets_s: tuple[float, ...], value_s: float) -> None:
    """Adds one value to a histogram."""
    series[bisect_left(buckets_s, value_s)] += 1
    series[-1] += value_s
