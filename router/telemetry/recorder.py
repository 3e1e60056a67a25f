"""RouterTelemetry: one Outcome becomes numbers (Counters), a line, a span."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, Protocol

from router.proxy.request import WAKE_OUTCOMES, Outcome
from router.telemetry.access_log import AccessLog
from router.telemetry.activity import Activity
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

_FAILED_CONNECTS: Final = {
    "connect_refused": "refused",
    "connect_timeout": "timeout",
    "connect_unreachable": "unreachable",
    "connect_error": "error",
    "resolve_error": "resolve_error",
}


class Tracer(Protocol):
    """Makes a span of each ended request; cheap, synchronous, never raises."""

    def request_finished(self, outcome: Outcome) -> None:
        """Takes one ended request or tunnel."""
        ...


class Counters:
    """What has happened in one process since its start, as plain integers. Belongs to the loop's thread.

    Nothing here waits or raises. The hot path touches dictionaries keyed by small tuples (bench/telemetry.py: the
    prometheus_client objects cost ten times as much); labels come from closed sets, or from the table of sandboxes.
    """

    __slots__ = (
        "_shortcuts",
        "bytes_from_client",
        "bytes_to_client",
        "cache_invalidations",
        "client_connections",
        "connect",
        "connections_refused",
        "first_byte",
        "inflight_requests",
        "open_tunnels",
        "requests",
        "router_errors",
        "upstream_retries",
        "wait",
        "wake_durations",
        "wakes",
    )

    def __init__(self, labels: NamespaceLabels) -> None:
        """`labels` decides which of the table's namespaces are named."""
        self.inflight_requests = 0
        self.open_tunnels = 0
        self.client_connections = 0
        self.connections_refused = 0
        self.upstream_retries = 0
        self.cache_invalidations = 0
        self.bytes_from_client = 0
        self.bytes_to_client = 0
        self.requests = RequestNumbers(labels=labels)
        self._shortcuts = self.requests.shortcuts
        self.router_errors = dict.fromkeys(ROUTER_ERROR_CODES, 0)
        self.first_byte = new_histogram(FIRST_BYTE_BUCKETS_S)
        self.connect = {outcome: new_histogram(CONNECT_BUCKETS_S) for outcome in CONNECT_OUTCOMES}
        self.wait = new_histogram(WAIT_BUCKETS_S)
        self.wakes = dict.fromkeys(WAKE_OUTCOMES, 0)
        self.wake_durations = new_histogram(WAKE_BUCKETS_S)

    def __repr__(self) -> str:
        return f"<Counters inflight={self.inflight_requests} series={len(self.requests)}>"

    def request_finished(self, outcome: Outcome) -> None:
        """Counts one ended request or tunnel."""
        self.inflight_requests -= 1
        duration_s = outcome.total_s
        entry = self._shortcuts.get((outcome.method, outcome.status, outcome.namespace))
        if entry is None:
            entry = self.requests.entry_of(outcome)
        series = entry.durations
        series[bisect_left(REQUEST_BUCKETS_S, duration_s)] += 1
        series[-1] += duration_s
        self.bytes_from_client += outcome.bytes_from_client
        self.bytes_to_client += outcome.bytes_to_client
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
                series = self.first_byte
                series[bisect_left(FIRST_BYTE_BUCKETS_S, first_byte_s)] += 1
                series[-1] += first_byte_s
        if outcome.connect_s is not None or outcome.wait_s is not None:
            self._waited(outcome)
        if outcome.code or outcome.upstream_error:
            self._failed(outcome)

    def _waited(self, outcome: Outcome) -> None:
        if outcome.connect_s is not None:
            observe(self.connect[_connected(outcome)], CONNECT_BUCKETS_S, outcome.connect_s)
        if outcome.wait_s is not None:
            observe(self.wait, WAIT_BUCKETS_S, outcome.wait_s)

    def _failed(self, outcome: Outcome) -> None:
        code = outcome.code
        # Other ends of a request (client_closed, tunnel_*) are codes too, but no responses of the router's.
        if code in self.router_errors:
            self.router_errors[code] += 1
            if code == "sandbox_not_ready":
                self.requests.not_ready(outcome)
        if outcome.upstream_error:
            self.requests.failed_upstream(outcome)

    def wake_ended(self, outcome: str, duration_s: float | None) -> None:
        """Counts one wake, whose outcome is one of WAKE_OUTCOMES."""
        self.wakes[outcome] += 1
        if duration_s is not None:
            observe(self.wake_durations, WAKE_BUCKETS_S, duration_s)


class RouterTelemetry:
    """Hands what the proxy tells to those who keep it; None means that nobody wants it, and costs one comparison.

    Implements proxy.ports.Telemetry. Belongs to the loop's thread.
    """

    __slots__ = ("_access_log", "_activity", "_counters", "_seen", "_tracer")

    def __init__(
        self,
        *,
        counters: Counters,
        access_log: AccessLog | None,
        tracer: Tracer | None = None,
        activity: Activity | None = None,
    ) -> None:
        self._counters = counters
        self._activity = Activity() if activity is None else activity
        self._seen = self._activity.entries
        self._access_log = access_log
        self._tracer = tracer

    def __repr__(self) -> str:
        return f"<RouterTelemetry {self._counters!r} {self._access_log!r} tracer={self._tracer!r}>"

    def request_started(self) -> None:
        self._counters.inflight_requests += 1

    def request_finished(self, outcome: Outcome) -> None:
        self._counters.request_finished(outcome)
        used = outcome.used
        if used is not None:
            used_at = outcome.used_at
            entry = self._seen.get(used.sandbox_uid or used.ref)
            if entry is None:
                self._activity.first_used(used, used_at)
            elif used_at > entry.used_at:
                entry.used_at = used_at
        if self._access_log is not None:
            self._access_log.write(outcome)
        if self._tracer is not None:
            self._tracer.request_finished(outcome)

    def tunnel_opened(self) -> None:
        self._counters.open_tunnels += 1

    def upstream_retried(self) -> None:
        self._counters.upstream_retries += 1

    def route_evicted(self) -> None:
        self._counters.cache_invalidations += 1

    def wake_ended(self, outcome: str, duration_s: float | None) -> None:
        self._counters.wake_ended(outcome, duration_s)

    def connection_opened(self) -> None:
        self._counters.client_connections += 1

    def connection_closed(self) -> None:
        self._counters.client_connections -= 1

    def connection_refused(self) -> None:
        self._counters.connections_refused += 1


def _connected(outcome: Outcome) -> str:
    """Returns how connecting ended, from CONNECT_OUTCOMES; an error that came later doesn't count."""
    failed = _FAILED_CONNECTS.get(outcome.upstream_error)
    if failed is not None:
        return failed
    if outcome.code == "client_closed" and outcome.first_byte_s is None:
        return "abandoned"
    return "connected"
