"""Turns the records of a run into medians, spreads, and ratios between subjects."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bench.loads import Measured


@dataclass(frozen=True, slots=True)
class Record:
    """One measurement: what a subject did in one case of one round."""

    case: str
    subject: str
    round: int
    measured: Measured


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of the rounds, with the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None when there is nothing to summarise."""
        if not values:
            return None
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Cell:
    """A case of a subject over all rounds; a single error makes the whole cell invalid."""

    by_round: dict[int, Measured] = field(default_factory=dict)

    @property
    def errors(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for measured in self.by_round.values():
            for reason, count in measured.errors.items():
                total[reason] = total.get(reason, 0) + count
        return total

    @property
    def valid(self) -> bool:
        return bool(self.by_round) and not self.errors and None not in self._costs.values()

    @property
    def cost(self) -> Spread | None:
        """The spread of the cost; None for an invalid cell."""
        if not self.valid:
            return None
        return Spread.of([cost for cost in self._costs.values() if cost is not None])

    def spread(self, name: str) -> Spread | None:
        """The spread of another figure of Measured, over the rounds that have it."""
        values = (getattr(measured, name) for measured in self.by_round.values())
        return Spread.of([value for value in values if value is not None])

    def ratio_to(self, reference: Cell) -> Spread | None:
        """This cost over the reference's, paired round by round."""
        return Spread.of([mine / theirs for mine, theirs in self._pairs(reference) if theirs > 0])

    def difference_to(self, reference: Cell) -> Spread | None:
        """This cost minus the reference's, paired round by round."""
        return Spread.of([mine - theirs for mine, theirs in self._pairs(reference)])

    def _pairs(self, reference: Cell) -> list[tuple[float, float]]:
        if not (self.valid and reference.valid):
            return []
        pairs = ((cost, reference._costs.get(number)) for number, cost in self._costs.items())
        return [(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None]

    @property
    def _costs(self) -> dict[int, float | None]:
        return {number: measured.cost for number, measured in self.by_round.items()}


class Summary:
    """The records of a run as a table of cells."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._cells: dict[tuple[str, str], Cell] = {}
        for record in records:
            cell = self._cells.setdefault((record.case, record.subject), Cell())
            cell.by_round[record.round] = record.measured

    def cell(self, case: str, subject: str) -> Cell:
        """The cell; an empty one when this wasn't measured."""
        return self._cells.get((case, subject), Cell())

    def figures(self, name: str) -> list[float]:
        """A figure of Measured from every measurement that has it."""
        found = (
            getattr(each, name) for cell in self._cells.values() for each in cell.by_round.values()
        )
        return [value for value in found if value is not None]

    @property
    def cases(self) -> list[str]:
        """The cases that were measured, in the order of their first record."""
        return list(dict.fromkeys(case for case, _subject in self._cells))

    @property
    def subjects(self) -> list[str]:
        return list(dict.fromkeys(subject for _case, subject in self._cells))
