"""Metrics: turns one process's counters, and what other rooms know, into the Snapshot that a scrape shows."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Collection, Mapping

from router import code_form
from router.telemetry.metric_catalogue import BY_NAME, FAMILIES
from router.telemetry.metric_family import Family, Kind, Source
from router.telemetry.namespace_labels import NamespaceLabels
from router.telemetry.recorder import Counters
from router.telemetry.snapshot import FORGOTTEN, Series, Snapshot

Reading = Callable[[], float | Mapping[tuple[str, ...], float] | None]
"""Answers at a scrape: one number, numbers by their label values, or None for "not known yet"."""
Histograms = Callable[[], Mapping[tuple[str, ...], Series]]
"""Answers at a scrape: a histogram for each value of the labels."""

_Found = dict[str, dict[tuple[str, ...], Series]]


class Metrics:
    """What can be shown of one process. Belongs to the loop's thread; RouterTelemetry adds to its `counters`."""

    def __init__(self, *, version: str, namespaces: NamespaceLabels | None = None) -> None:
        """`namespaces` decides which of the table's namespaces are named, by default all."""
        self._version = version
        self._labels = NamespaceLabels() if namespaces is None else namespaces
        self.counters = Counters(self._labels)
        self._readings: list[tuple[Family, Reading]] = []
        self._histograms: dict[str, Histograms] = {}
        self._known_namespaces: Callable[[], Collection[str] | None] = lambda: None

    def __repr__(self) -> str:
        return f"<Metrics {self.counters!r}>"

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
        for name, labels, series in self.counters.requests.rows(self._known_namespaces()):
            found[name][labels] = series
        for family, reading in self._readings:
            self._add_reading(found, family, reading)
        for name, histograms in self._histograms.items():
            found[name] = {labels: list(series) for labels, series in histograms().items()}
        rows: Snapshot = {name: list(series.items()) for name, series in found.items() if series}
        rows[FORGOTTEN] = [((namespace,), []) for namespace in self._labels.forgotten]
        return rows

    def _add_scalars(self, found: _Found) -> None:
        counters = self.counters
        scalars: dict[str, float] = {
            "sandbox_router_inflight_requests": counters.inflight_requests,
            "sandbox_router_open_tunnels": counters.open_tunnels,
            "sandbox_router_client_connections": counters.client_connections,
            "sandbox_router_connections_refused_total": counters.connections_refused,
            "sandbox_router_upstream_retries_total": counters.upstream_retries,
            "sandbox_router_cache_invalidations_total": counters.cache_invalidations,
        }
        for name, value in scalars.items():
            _add(found, name, (), value)
        build = (self._version, platform.python_version(), str(code_form.CURRENT))
        _add(found, "sandbox_router_build_info", build, 1)
        _add(found, "sandbox_router_bytes_total", ("from_client",), counters.bytes_from_client)
        _add(found, "sandbox_router_bytes_total", ("to_client",), counters.bytes_to_client)
        for code, count in counters.router_errors.items():
            _add(found, "sandbox_router_router_errors_total", (code,), count)
        for ended, count in counters.wakes.items():
            _add(found, "sandbox_router_wakes_total", (ended,), count)
        found["sandbox_router_wake_duration_seconds"] = {(): list(counters.wake_durations)}
        found["sandbox_router_first_byte_seconds"] = {(): list(counters.first_byte)}
        found["sandbox_router_connect_duration_seconds"] = {
            (outcome,): list(series) for outcome, series in counters.connect.items()
        }
        found["sandbox_router_wait_duration_seconds"] = {(): list(counters.wait)}

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
