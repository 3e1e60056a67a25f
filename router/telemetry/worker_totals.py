"""WorkerTotals: the numbers of several workers as one, in which a worker that dies never makes a counter go back."""

from __future__ import annotations

from router.telemetry.snapshot import FORGOTTEN, Snapshot, merge, without_forgotten, without_gauges


class WorkerTotals:
    """Keeps what each worker last told, and what the dead had told. A life is one process; its number comes only once."""

    def __init__(self) -> None:
        self._living: dict[int, Snapshot] = {}
        self._dead: Snapshot = {}

    def __repr__(self) -> str:
        return f"<WorkerTotals living={len(self._living)}>"

    def born(self, life: int) -> None:
        """Notes that a worker begins."""
        self._living[life] = {}

    def told(self, life: int, snapshot: Snapshot) -> None:
        """Takes a worker's newest numbers; what a dead one is still heard to say changes nothing, for it was added up already."""
        if life in self._living:
            self._living[life] = snapshot

    def died(self, life: int) -> None:
        """Notes that a worker has ended: its gauges are gone, its counters stay. May be called twice."""
        last = self._living.pop(life, None)
        if last is not None:
            self._dead = merge((self._dead, without_gauges(last)))

    def total(self) -> Snapshot:
        """Returns all numbers added up, as they are at this moment: call it after the last answer."""
        everything = merge((self._dead, *self._living.values()))
        kept = without_forgotten(everything)
        if kept is not everything:
            # For good: should the namespace come back, its numbers begin anew.
            self._dead = without_gauges(
                without_forgotten({**self._dead, FORGOTTEN: everything[FORGOTTEN]})
            )
        return kept
