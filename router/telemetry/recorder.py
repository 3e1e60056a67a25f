"""RouterTelemetry: one Outcome becomes numbers, a line, a span."""

from __future__ import annotations

from typing import Protocol

from router.proxy.outcome import Outcome
from router.telemetry.access_log import AccessLog
from router.telemetry.activity import Activity
from router.telemetry.metrics import Metrics


class Tracer(Protocol):
    """Makes a span of each ended request; cheap, synchronous, never raises."""

    def request_finished(self, outcome: Outcome) -> None:
        """Takes one ended request or tunnel."""
        ...


class RouterTelemetry:
    """Hands what the proxy tells to those who keep it; None means that nobody wants it, and costs one comparison.

    Implements proxy.outcome.Telemetry. Belongs to the loop's thread.
    """

    __slots__ = ("_access_log", "_activity", "_metrics", "_seen", "_tracer")

    def __init__(
        self,
        *,
        metrics: Metrics,
        access_log: AccessLog | None,
        tracer: Tracer | None = None,
        activity: Activity | None = None,
    ) -> None:
        self._metrics = metrics
        self._activity = Activity() if activity is None else activity
        self._seen = self._activity.entries
        self._access_log = access_log
        self._tracer = tracer

    def __repr__(self) -> str:
        return f"<RouterTelemetry {self._metrics!r} {self._access_log!r} tracer={self._tracer!r}>"

    def request_started(self) -> None:
        self._metrics.inflight_requests += 1

    def request_finished(self, outcome: Outcome) -> None:
        self._metrics.request_finished(outcome)
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
        self._metrics.open_tunnels += 1

    def upstream_retried(self) -> None:
        self._metrics.upstream_retries += 1

    def route_evicted(self) -> None:
        self._metrics.cache_invalidations += 1

    def wake_ended(self, outcome: str, duration_s: float | None) -> None:
        self._metrics.wake_ended(outcome, duration_s)

    def connection_opened(self) -> None:
        self._metrics.client_connections += 1

    def connection_closed(self) -> None:
        self._metrics.client_connections -= 1

    def connection_refused(self) -> None:
        self._metrics.connections_refused += 1
