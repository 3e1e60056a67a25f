"""Metrics: one process's counters, as plain integers.

The hot path touches dictionaries keyed by small tuples, which a scrape turns into a Snapshot (bench/telemetry.py: the
prometheus_client objects cost ten times as much). Labels come from closed sets, or from the table of sandboxes.
"""

from __future__ import annotations

import math
import platform
from bisect import bisect_left
from collections.abc import Callable, Mapping
from http import HTTPStatus

from router import code_form
from router.proxy.outcome import Outcome
from router.telemetry.metric_catalogue import (
    BY_NAME,
    CONNECT_BUCKETS_S,
    FAMILIES,
    METHODS,
    OTHER,
    REQUEST_BUCKETS_S,
    ROUTER_ERROR_CODES,
    UNKNOWN,
    WAIT_BUCKETS_S,
    Family,
    Source,
)
from router.telemetry.snapshot import Series, Snapshot

Reading = Callable[[], float | Mapping[tuple[str, ...], float] | None]
"""Answers at a scrape: one number, numbers by their label values, or None for "not known yet"."""

MAX_NAMESPACES = 10_000
CLIENT_CLOSED = 499

_METHODS = frozenset(method.encode() for method in METHODS)
_OTHER_METHOD = b"other"
# Unregistered codes share one series: what answers is untrusted code, and could make 500 series a namespace.
_STATUSES = frozenset(status.value for status in HTTPStatus) | {CLIENT_CLOSED}
_OTHER_STATUS = 0
_DECISIONS = {"allowed": "allow", "denied": "deny"}
_OF_REQUESTS = ("sandbox_router_requests_total", "sandbox_router_request_duration_seconds")


_Found = dict[str, dict[tuple[str, ...], Series]]


class Metrics:
    """Counts what happens in one process. Belongs to the loop's thread; nothing here waits or raises on the hot path."""

    def __init__(self, *, version: str, max_namespaces: int = MAX_NAMESPACES) -> None:
        self.inflight_requests = 0
        self.open_tunnels = 0
        self.client_connections = 0
        self.connections_refused = 0
        self.upstream_retries = 0
        self.cache_invalidations = 0
        self._version = version
        self._bytes_from_client = 0
        self._bytes_to_client = 0
        self._max_namespaces = max_namespaces
        self._namespaces: set[str] = set()
        # Keys are canonical, so a raw key that is found needs no checking. A series: counts by bucket, then the sum.
        self._requests: dict[tuple[bytes, int, str], list[float]] = {}
        self._authz: dict[tuple[str, str], int] = {}
        self._upstream_errors: dict[tuple[str, str], int] = {}
        self._router_errors = dict.fromkeys(ROUTER_ERROR_CODES, 0)
        self._connect = _new_histogram(CONNECT_BUCKETS_S)
        self._wait = _new_histogram(WAIT_BUCKETS_S)
        self._readings: list[tuple[Family, Reading]] = []

    def __repr__(self) -> str:
        return f"<Metrics inflight={self.inflight_requests} series={len(self._requests)}>"

    # --- the hot path -----------------------------------------------------------------------

    def request_finished(self, outcome: Outcome) -> None:
        """Counts one ended request or tunnel."""
        self.inflight_requests -= 1
        duration_s = outcome.total_s
        series = self._requests.get((outcome.method, outcome.status, outcome.namespace))
        if series is None:
            series = self._series_of(outcome)
        series[bisect_left(REQUEST_BUCKETS_S, duration_s)] += 1
        series[-1] += duration_s
        self._bytes_from_client += outcome.bytes_from_client
        self._bytes_to_client += outcome.bytes_to_client
        if outcome.authz:
            try:
                self._authz[outcome.namespace, outcome.authz] += 1
            except KeyError:
                self._first_decision(outcome)
        if outcome.connect_s is not None:
            _observe(self._connect, CONNECT_BUCKETS_S, outcome.connect_s)
        if outcome.wait_s is not None:
            _observe(self._wait, WAIT_BUCKETS_S, outcome.wait_s)
        if outcome.is_tunnel:
            self.open_tunnels -= 1
        if outcome.code:
            self._router_error(outcome.code)
        if outcome.upstream_error:
            self._upstream_error(outcome)

    def _series_of(self, outcome: Outcome) -> list[float]:
        method = outcome.method if outcome.method in _METHODS else _OTHER_METHOD
        status = outcome.status if outcome.status in _STATUSES else _OTHER_STATUS
        key = (method, status, self._namespace(outcome.namespace))
        series = self._requests.get(key)
        if series is None:
            series = self._requests[key] = _new_histogram(REQUEST_BUCKETS_S)
        return series

    def _first_decision(self, outcome: Outcome) -> None:
        key = (self._namespace(outcome.namespace), outcome.authz)
        self._authz[key] = self._authz.get(key, 0) + 1

    def _upstream_error(self, outcome: Outcome) -> None:
        reason = BY_NAME["sandbox_router_upstream_errors_total"].closed(1, outcome.upstream_error)
        key = (self._namespace(outcome.namespace), reason)
        self._upstream_errors[key] = self._upstream_errors.get(key, 0) + 1

    def _router_error(self, code: str) -> None:
        # Other ends of a request (client_closed, tunnel_*) are codes too, but no answers of the router's.
        if code in self._router_errors:
            self._router_errors[code] += 1

    def _namespace(self, namespace: str) -> str:
        """Returns the label: "" (the table doesn't know it) stays, and beyond the limit new ones share `other`."""
        if not namespace or namespace in self._namespaces:
            return namespace
        if len(self._namespaces) >= self._max_namespaces:
            return OTHER
        self._namespaces.add(namespace)
        return namespace

    # --- other rooms' numbers ---------------------------------------------------------------

    def read_at_scrape(self, name: str, reading: Reading) -> None:
        """Asks `reading` for the family's numbers at each scrape; several readings of one family add up.

        Raises KeyError for a family that isn't in the catalogue, ValueError for one that is kept here.
        """
        family = BY_NAME[name]
        if family.source is not Source.READING:
            raise ValueError(f"{name} is not read at the scrape")
        self._readings.append((family, reading))

    # --- the scrape -------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Returns every series of this process, those of the process itself (process_*) apart."""
        found = {family.name: _zeros(family) for family in FAMILIES}
        self._add_scalars(found)
        self._add_requests(found)
        for family, reading in self._readings:
            self._add_reading(found, family, reading)
        return {name: list(series.items()) for name, series in found.items() if series}

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
        for code, value in self._router_errors.items():
            _add(found, "sandbox_router_router_errors_total", (code,), value)
        found["sandbox_router_connect_duration_seconds"] = {(): list(self._connect)}
        found["sandbox_router_wait_duration_seconds"] = {(): list(self._wait)}

    def _add_requests(self, found: _Found) -> None:
        total, duration = (found[name] for name in _OF_REQUESTS)
        for (method, status, namespace), series in self._requests.items():
            labels = (
                method.decode(),
                str(status) if status else OTHER,
                namespace or UNKNOWN,
            )
            total[labels] = [sum(series[:-1])]
            duration[labels] = list(series)
        for (namespace, decision), value in self._authz.items():
            known = BY_NAME["sandbox_router_authz_decisions_total"].closed(
                1, _DECISIONS.get(decision, decision)
            )
            labels_of_decision = (namespace or UNKNOWN, known)
            _add(found, "sandbox_router_authz_decisions_total", labels_of_decision, value)
        for (namespace, reason), value in self._upstream_errors.items():
            labels_of_error = (namespace or UNKNOWN, reason)
            _add(found, "sandbox_router_upstream_errors_total", labels_of_error, value)

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


def _new_histogram(buckets_s: tuple[float, ...]) -> list[float]:
    """Returns zeros: one for each bucket, one for everything above, then the sum (see snapshot.py)."""
    return [0] * (len(buckets_s) + 1) + [0.0]


def _observe(series: list[float], buckets_s: tuple[float, ...], value_s: float) -> None:
    series[bisect_left(buckets_s, value_s)] += 1
    series[-1] += value_s


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
