"""Metrics: one process's counters, as plain integers.

The hot path touches dictionaries keyed by small tuples, which a scrape turns into a Snapshot (bench/telemetry.py: the
prometheus_client objects cost ten times as much). Labels come from closed sets, or from the table of sandboxes.
"""

from __future__ import annotations

import math
import platform
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from typing import Final

from router import code_form
from router.proxy.outcome import WAKE_OUTCOMES, Outcome
from router.telemetry.metric_catalogue import BY_NAME, FAMILIES
from router.telemetry.metric_family import Family, Kind, Source
from router.telemetry.metric_labels import (
    CONNECT_BUCKETS_S,
    CONNECT_OUTCOMES,
    FIRST_BYTE_BUCKETS_S,
    REQUEST_BUCKETS_S,
    ROUTER_ERROR_CODES,
    WAIT_BUCKETS_S,
    WAKE_BUCKETS_S,
)
from router.telemetry.namespace_labels import NamespaceLabels
from router.telemetry.request_numbers import RequestNumbers, new_histogram, observe
from router.telemetry.snapshot import FORGOTTEN, Series, Snapshot

Reading = Callable[[], float | Mapping[tuple[str, ...], float] | None]
"""Answers at a scrape: one number, numbers by their label values, or None for "not known yet"."""
Histograms = Callable[[], Mapping[tuple[str, ...], Series]]
"""Answers at a scrape: a histogram for each value of the labels."""

_FAILED_CONNECTS: Final = {
    "connect_refused": "refused",
    "connect_timeout": "timeout",
    "connect_unreachable": "unreachable",
    "connect_error": "error",
    "resolve_error": "resolve_error",
}

_Found = dict[str, dict[tuple[str, ...], Series]]


class Metrics:
    """Counts what happens in one process. Belongs to the loop's thread; nothing here waits or raises on the hot path."""

    def __init__(self, *, version: str, namespaces: NamespaceLabels | None = None) -> None:
        """`namespaces` decides which of the table's namespaces are named, by default all."""
        self.inflight_requests = 0
        self.open_tunnels = 0
        self.client_connections = 0
        self.connections_refused = 0
        self.upstream_retries = 0
        self.cache_invalidations = 0
        self._version = version
        self._bytes_from_client = 0
        self._bytes_to_client = 0
        self._labels = NamespaceLabels() if namespaces is None else namespaces
        self._requests = RequestNumbers(labels=self._labels)
        self._shortcuts = self._requests.shortcuts
        self._router_errors = dict.fromkeys(ROUTER_ERROR_CODES, 0)
        self._first_byte = new_histogram(FIRST_BYTE_BUCKETS_S)
        self._connect = {outcome: new_histogram(CONNECT_BUCKETS_S) for outcome in CONNECT_OUTCOMES}
        self._wait = new_histogram(WAIT_BUCKETS_S)
        self._wakes = dict.fromkeys(WAKE_OUTCOMES, 0)
        self._wake_durations = new_histogram(WAKE_BUCKETS_S)
        self._readings: list[tuple[Family, Reading]] = []
        self._histograms: dict[str, Histograms] = {}
        self._known_namespaces: Callable[[], Collection[str] | None] = lambda: None

    def __repr__(self) -> str:
        return f"<Metrics inflight={self.inflight_requests} series={len(self._requests)}>"

    # --- the hot path -----------------------------------------------------------------------

    def request_finished(self, outcome: Outcome) -> None:
        """Counts one ended request or tunnel."""
        self.inflight_requests -= 1
        duration_s = outcome.total_s
        entry = self._shortcuts.get((outcome.method, outcome.status, outcome.namespace))
        if entry is None:
            entry = self._requests.entry_of(outcome)
        series = entry.durations
        series[bisect_left(REQUEST_BUCKETS_S, duration_s)] += 1
        series[-1] += duration_s
        self._bytes_from_client += outcome.bytes_from_client
        self._bytes_to_client += outcome.bytes_to_client
        if outcome.authz == "allowed":
            entry.allowed += 1
        elif outcome.authz:
            counts = entry.not_allowed
            counts[outcome.authz] = counts.get(outcome.authz, 0) + 1
        if outcome.is_tunnel:
            self.open_tunnels -= 1
        else:
            first_byte_s = outcome.first_byte_s
            if first_byte_s is not None:
                series = self._first_byte
                series[bisect_left(FIRST_BYTE_BUCKETS_S, first_byte_s)] += 1
                series[-1] += first_byte_s
        if outcome.connect_s is not None or outcome.wait_s is not None:
            self._waited(outcome)
        code = outcome.code
        # Other ends of a request (client_closed, tunnel_*) are codes too, but no answers of the router's.
        if code and code in self._router_errors:
            self._router_errors[code] += 1
            if code == "sandbox_not_ready":
                self._requests.not_ready(outcome)
        if outcome.upstream_error:
            self._requests.failed_upstream(outcome)

    def _waited(self, outcome: Outcome) -> None:
        if outcome.connect_s is not None:
            observe(self._connect[_connected(outcome)], CONNECT_BUCKETS_S, outcome.connect_s)
        if outcome.wait_s is not None:
            observe(self._wait, WAIT_BUCKETS_S, outcome.wait_s)

    # --- now and then -----------------------------------------------------------------------

    def wake_ended(self, outcome: str, duration_s: float | None) -> None:
        """Counts one wake, whose outcome is one of WAKE_OUTCOMES."""
        self._wakes[outcome] += 1
        if duration_s is not None:
            observe(self._wake_durations, WAKE_BUCKETS_S, duration_s)

    # --- other rooms' numbers ---------------------------------------------------------------

    def read_at_scrape(self, name: str, reading: Reading) -> None:
        """Asks `reading` for the family's numbers at each scrape; several readings of one family add up.

        Raises KeyError for a family that isn't in the catalogue, ValueError for one that is kept here.
        """
        family = BY_NAME[name]
        if family.source is not Source.READING:
            raise ValueError(f"{name} is not read at the scrape")
        self._readings.append((family, reading))

    def read_histograms(self, name: str, reading: Histograms) -> None:
        """Asks `reading` for the family's histograms at each scrape. Raises KeyError, or ValueError for no such family."""
        family = BY_NAME[name]
        if family.source is not Source.READING or family.kind is not Kind.HISTOGRAM:
            raise ValueError(f"{name} is no histogram that is read at the scrape")
        self._histograms[name] = reading

    def read_namespaces(self, known: Callable[[], Collection[str] | None]) -> None:
        """Asks `known` at each scrape for the table's namespaces; None means that there is no complete table."""
        self._known_namespaces = known

    # --- the scrape -------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Returns every series of this process, those of the process itself (process_*) apart."""
        found = {family.name: _zeros(family) for family in FAMILIES}
        self._add_scalars(found)
        for name, labels, series in self._requests.rows(self._known_namespaces()):
            found[name][labels] = series
        for family, reading in self._readings:
            self._add_reading(found, family, reading)
        for name, histograms in self._histograms.items():
            found[name] = {labels: list(series) for labels, series in histograms().items()}
        rows: Snapshot = {name: list(series.items()) for name, series in found.items() if series}
        rows[FORGOTTEN] = [((namespace,), []) for namespace in self._labels.forgotten]
        return rows

    def _add_scalars(self, found: _Found) -> None:
        scalars: dict[str, float] = {
            "sandbox_router_inflight_requests": self.inflight_requests,
            "sandbox_router_open_tunnels": self.open_tunnels,
            "sandbox_router_client_connections": self.client_connections,
            "sandbox_router_connections_refused_total": self.connections_refused,
            "sandbox_router_upstream_retries_total": self.upstream_retries,
            "sandbox_router_cache_invalidations_total": self.cache_invalidations,
        }
        for name, value in scalars.items():
            _add(found, name, (), value)
        build = (self._version, platform.python_version(), str(code_form.CURRENT))
        _add(found, "sandbox_router_build_info", build, 1)
        _add(found, "sandbox_router_bytes_total", ("from_client",), self._bytes_from_client)
        _add(found, "sandbox_router_bytes_total", ("to_client",), self._bytes_to_client)
        for code, count in self._router_errors.items():
            _add(found, "sandbox_router_router_errors_total", (code,), count)
        for ended, count in self._wakes.items():
            _add(found, "sandbox_router_wakes_total", (ended,), count)
        found["sandbox_router_wake_duration_seconds"] = {(): list(self._wake_durations)}
        found["sandbox_router_first_byte_seconds"] = {(): list(self._first_byte)}
        found["sandbox_router_connect_duration_seconds"] = {
            (outcome,): list(series) for outcome, series in self._connect.items()
        }
        found["sandbox_router_wait_duration_seconds"] = {(): list(self._wait)}

    def _add_reading(
        self,
        found: _Found,
        family: Family,
        reading: Reading,
    ) -> None:
        answer = reading()
        if answer is None:
            return
        values = answer if isinstance(answer, Mapping) else {(): answer}
        for labels, value in values.items():
            closed = tuple(family.closed(position, label) for position, label in enumerate(labels))
            if math.isfinite(value):
                _add(found, family.name, closed, value)


def _connected(outcome: Outcome) -> str:
    """Returns how connecting ended, from CONNECT_OUTCOMES; an error that came later doesn't count."""
    failed = _FAILED_CONNECTS.get(outcome.upstream_error)
    if failed is not None:
        return failed
    if outcome.code == "client_closed" and outcome.first_byte_s is None:
        return "abandoned"
    return "connected"


def _zeros(family: Family) -> dict[tuple[str, ...], Series]:
    return {labels: [0] for labels in family.zero_series()}


def _add(
    found: _Found,
    name: str,
    labels: tuple[str, ...],
    value: float,
) -> None:
    series = found[name].setdefault(labels, [0])
    series[0] += value
