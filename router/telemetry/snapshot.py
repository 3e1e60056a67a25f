"""Snapshot: all series of one process at one moment, as values that JSON can carry between workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from router.telemetry.metric_catalogue import BY_NAME, FAMILIES
from router.telemetry.metric_family import Family, Kind, Merge
from router.telemetry.metric_labels import NAMESPACE_LABEL

Series: TypeAlias = list[float]
"""One number; or, for a histogram, the count of each bucket, of everything above the last, and the sum of all values."""

Snapshot: TypeAlias = dict[str, list[tuple[tuple[str, ...], Series]]]
"""By family name: label values with their series."""

FORGOTTEN = "forgotten_namespaces"
"""No family: its rows name the namespaces whose series a process has just dropped, with nothing beside them."""

_COMBINE: dict[Merge, Callable[[float, float], float]] = {
    Merge.SUM: lambda left, right: left + right,
    Merge.MAX: max,
    Merge.MIN: min,
}


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Returns one snapshot for several processes, each family by its own rule; families that it doesn't know are left out."""
    merged: dict[str, dict[tuple[str, ...], Series]] = {}
    forgotten: dict[tuple[str, ...], Series] = {}
    for snapshot in snapshots:
        for name, rows in snapshot.items():
            family = BY_NAME.get(name)
            if family is not None:
                _merge_family(merged.setdefault(name, {}), family, rows)
            elif name == FORGOTTEN:
                forgotten.update({tuple(labels): [] for labels, _ in rows})
    result = {
        family.name: list(merged[family.name].items())
        for family in FAMILIES
        if family.name in merged
    }
    return result | {FORGOTTEN: list(forgotten.items())} if forgotten else result


def without_forgotten(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot without the series of namespaces that any process has dropped.

    Workers drop them at moments of their own; half of a sum would look like a counter that went back.
    """
    forgotten = {labels[0] for labels, _ in snapshot.get(FORGOTTEN, ())}
    if not forgotten:
        return snapshot
    kept: Snapshot = {}
    for name, rows in snapshot.items():
        family = BY_NAME.get(name)
        if family is None or NAMESPACE_LABEL not in family.labels:
            kept[name] = rows
            continue
        position = family.labels.index(NAMESPACE_LABEL)
        kept[name] = [
            (labels, series) for labels, series in rows if labels[position] not in forgotten
        ]
    return kept


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
