"""Readings: which number of another room is which metric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from router.routing.endpoint import Endpoint, State
from router.telemetry.lookup_numbers import LookupNumbers
from router.telemetry.metric_labels import OTHER, SANDBOX_STATES, SETTING_OF_SOURCE
from router.telemetry.metrics import Metrics
from router.watched_file import FileStatus


class Index(Protocol):
    """The table of sandboxes."""

    events: int
    evictions: int

    def __iter__(self) -> Iterator[Endpoint]: ...

    def waiting(self) -> int: ...

    def age_s(self) -> float | None: ...


class Connections(Protocol):
    """The pool."""

    @property
    def idle_count(self) -> int: ...

    @property
    def active_count(self) -> int: ...


class Handshaking(Protocol):
    """What accepts TLS connections."""

    @property
    def under_way(self) -> int: ...

    @property
    def waiting(self) -> int: ...


class Budget(Protocol):
    """What all connections hold together."""

    limit_bytes: int
    held_bytes: int
    ended: int


class Reloading(Protocol):
    """A file, or several that belong together, that is read again when it changes."""

    reloads_succeeded: int
    reloads_failed: int


class Reloadable(Protocol):
    """What is read again and again: a file, a URL."""

    def status(self, name: str) -> FileStatus: ...


class Expiring(Protocol):
    """The certificates in force."""

    @property
    def not_after(self) -> Mapping[str, float]: ...


class Dropping(Protocol):
    """The access log."""

    @property
    def dropped(self) -> int: ...


class Counting(Protocol):
    """What makes spans."""

    def counts(self) -> Mapping[tuple[str, ...], int]: ...


class _TableCount:
    """Counts the table once a scrape, however many families are about it: a large one takes milliseconds."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._states: Counter[str] | None = None

    def namespaces(self) -> set[str] | None:
        """Returns the namespaces in the table, None before it was complete once. Asked first at each scrape."""
        states: Counter[State] = Counter()
        namespaces: set[str] = set()
        for endpoint in self._index:
            states[endpoint.state] += 1
            namespaces.add(endpoint.ref.namespace)
        self._states = Counter({state.value: count for state, count in states.items()})
        return None if self._index.age_s() is None else namespaces

    def states(self) -> Mapping[tuple[str, ...], float]:
        """Returns the sandboxes by state."""
        if self._states is None:
            self.namespaces()
        assert self._states is not None
        states, self._states = self._states, None
        return {(state,): states[state] for state in SANDBOX_STATES}


def read_index(metrics: Metrics, index: Index) -> None:
    """Shows the table's size by state, its age, its events, and who waits; its namespaces have series from the start."""
    table = _TableCount(index)
    metrics.read_namespaces(table.namespaces)
    metrics.read_at_scrape("sandbox_router_index_sandboxes", table.states)
    metrics.read_at_scrape("sandbox_router_index_age_seconds", index.age_s)
    metrics.read_at_scrape(
        "sandbox_router_index_events_total",
        lambda: {("reported",): index.events, ("evicted",): index.evictions},
    )
    metrics.read_at_scrape("sandbox_router_waiting_requests", index.waiting)


def read_pool(metrics: Metrics, pool: Connections) -> None:
    """Shows the connections to sandboxes."""
    metrics.read_at_scrape(
        "sandbox_router_pool_connections",
        lambda: {("idle",): pool.idle_count, ("active",): pool.active_count},
    )


def read_budget(metrics: Metrics, budget: Budget) -> None:
    """Shows what connections hold, what they may hold, and how many were ended to make room."""
    metrics.read_at_scrape("sandbox_router_buffered_bytes", lambda: budget.held_bytes)
    metrics.read_at_scrape("sandbox_router_buffered_bytes_limit", lambda: budget.limit_bytes)
    metrics.read_at_scrape("sandbox_router_buffers_ended_total", lambda: budget.ended)


def read_file(metrics: Metrics, file: str, watched: Reloading) -> None:
    """Counts the reloads of a file, whose name is one of SETTING_OF_SOURCE."""
    label = SETTING_OF_SOURCE.get(file, OTHER)
    metrics.read_at_scrape(
        "sandbox_router_config_reloads_total",
        lambda: {
            (label, "success"): watched.reloads_succeeded,
            (label, "failure"): watched.reloads_failed,
        },
    )


def read_reloads(metrics: Metrics, name: str, source: Reloadable) -> None:
    """Shows how the last reload of what is read again and again ended, and when one last succeeded."""
    label = SETTING_OF_SOURCE.get(name, OTHER)

    def succeeded_at() -> Mapping[tuple[str, ...], float]:
        at = source.status(name).last_success_unix
        return {(label,): at} if at else {}

    metrics.read_at_scrape(
        "sandbox_router_last_reload_success", lambda: {(label,): float(source.status(name).ok)}
    )
    metrics.read_at_scrape("sandbox_router_last_reload_success_timestamp_seconds", succeeded_at)


def read_certificate_ends(metrics: Metrics, expiry: Expiring) -> None:
    """Shows when the certificates in force end."""
    metrics.read_at_scrape(
        "sandbox_router_certificate_not_after_seconds",
        lambda: {(setting,): ends_at for setting, ends_at in expiry.not_after.items()},
    )


def read_certificate(metrics: Metrics, watched: Reloading) -> None:
    """Shows the reloads of the server's certificate."""
    metrics.read_at_scrape(
        "sandbox_router_cert_reloads_total",
        lambda: {
            ("success",): watched.reloads_succeeded,
            ("failure",): watched.reloads_failed,
        },
    )


def read_handshakes(metrics: Metrics, failed: Mapping[str, int]) -> None:
    """Shows the TLS handshakes that failed, by reason."""
    metrics.read_at_scrape(
        "sandbox_router_tls_handshake_failures_total",
        lambda: {(reason,): count for reason, count in failed.items()},
    )


def read_open_handshakes(metrics: Metrics, handshakes: Handshaking) -> None:
    """Shows the TLS handshakes whose clients have said hello."""
    metrics.read_at_scrape(
        "sandbox_router_tls_handshakes",
        lambda: {("under_way",): handshakes.under_way, ("waiting",): handshakes.waiting},
    )


def read_auth_failures(metrics: Metrics, failures: Mapping[tuple[str, str], int]) -> None:
    """Shows refused credentials, which the authenticator counts by (mode, reason)."""
    metrics.read_at_scrape("sandbox_router_auth_failures_total", _of(failures))


def read_watch_restarts(metrics: Metrics, restarts: Mapping[tuple[str, str], int]) -> None:
    """Shows ended watches, which discovery counts by (resource, reason)."""
    metrics.read_at_scrape("sandbox_router_watch_restarts_total", _of(restarts))


def read_watches_refused(metrics: Metrics, refused: Callable[[], Mapping[str, int]]) -> None:
    """Shows the watches that the API server refuses, by resource."""
    metrics.read_at_scrape(
        "sandbox_router_watches_refused",
        lambda: {(resource,): count for resource, count in refused().items()},
    )


def read_lookups(metrics: Metrics, lookups: LookupNumbers) -> None:
    """Shows how the lookups of names ended, and how long they took."""
    metrics.read_histograms("sandbox_router_dns_lookup_duration_seconds", lookups.histograms)


def read_access_log(metrics: Metrics, access_log: Dropping) -> None:
    """Shows the lines that were lost."""
    metrics.read_at_scrape("sandbox_router_access_log_dropped_total", lambda: access_log.dropped)


def read_log(metrics: Metrics, lost: Callable[[], Mapping[tuple[str, ...], int]]) -> None:
    """Shows the lines of the process's own log that were not written, by reason."""
    metrics.read_at_scrape("sandbox_router_log_dropped_total", lost)


def read_spans(metrics: Metrics, spans: Counting) -> None:
    """Shows what became of the spans."""
    metrics.read_at_scrape("sandbox_router_spans_total", spans.counts)


def _of(counts: Mapping[tuple[str, str], int]) -> Callable[[], Mapping[tuple[str, ...], float]]:
    return lambda: {tuple(labels): count for labels, count in counts.items()}
