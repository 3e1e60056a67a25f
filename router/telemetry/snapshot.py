"""Snapshot: all series of one process at one moment, as values that JSON can carry between workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from router.telemetry.metric_catalogue import BY_NAME, FAMILIES, Family, Kind, Merge

Series: TypeAlias = list[float]
"""One number; or, for a histogram, the count of each bucket, of everything above the last, and the sum of all values."""

Snapshot: TypeAlias = dict[str, list[tuple[tuple[str, ...], Series]]]
"""By family name: label values with their series."""

_COMBINE: dict[Merge, Callable[[float, float], float]] = {
    Merge.SUM: lambda left, right: left + right,
    Merge.MAX: max,
    Merge.MIN: min,
}


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Returns one snapshot for several processes, each family by its own rule; families that it doesn't know are left out."""
    merged: dict[str, dict[tuple[str, ...], Series]] = {}
    for snapshot in snapshots:
        for name, rows in snapshot.items():
            family = BY_NAME.get(name)
            if family is not None:
                _merge_family(merged.setdefault(name, {}), family, rows)
    return {
        family.name: list(merged[family.name].items())
        for family in FAMILIES
        if family.name in merged
    }


def _merge_family(
    merged: dict[tuple[str, ...], Series],
    family: Family,
    rows: Sequence[tuple[tuple[str, ...], Series]],
) -> None:
    combine = _COMBINE[family.merge]
    for labels, series in rows:
        key = tuple(labels)
        known = merged.get(key)
        merged[key] = list(series) if known is None else list(map(combine, known, series))


def without_gauges(snapshot: Snapshot) -> Snapshot:
    """Returns what stays true of a worker that has died: merged with the living, it keeps totals from going backwards."""
    return {
        name: rows
        for name, rows in snapshot.items()
        if name in BY_NAME and BY_NAME[name].kind is not Kind.GAUGE
    }
