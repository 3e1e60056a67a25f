"""LookupNumbers: how long the lookups of names took, by how they ended."""

from __future__ import annotations

from collections.abc import Mapping

from router.telemetry.metric_labels import DNS_BUCKETS_S, DNS_OUTCOMES
from router.telemetry.request_numbers import new_histogram, observe
from router.telemetry.snapshot import Series


class LookupNumbers:
    """One histogram for each end of a lookup, there from the start so that rates see the first."""

    def __init__(self) -> None:
        self._histograms = {outcome: new_histogram(DNS_BUCKETS_S) for outcome in DNS_OUTCOMES}

    def __repr__(self) -> str:
        counts = {how: sum(series[:-1]) for how, series in self._histograms.items()}
        return f"<LookupNumbers {counts}>"

    def ended(self, how: str, took_s: float) -> None:
        """Counts a lookup. Raises KeyError for an end that isn't one of DNS_OUTCOMES."""
        observe(self._histograms[how], DNS_BUCKETS_S, took_s)

    def histograms(self) -> Mapping[tuple[str, ...], Series]:
        """Returns the histograms by the values of their labels."""
        return {(how,): series for how, series in self._histograms.items()}
