"""The goals for the complete router, each judged from the run's own pairs."""

from __future__ import annotations

from dataclasses import dataclass

from bench.summary import Spread, Summary

REFERENCE = "envoy"
_RATIO, _DIFFERENCE, _ABSOLUTE = "ratio", "difference", "absolute"


@dataclass(frozen=True, slots=True)
class Goal:
    """At most this much, for a subject in a case."""

    case: str
    limit: float
    kind: str = _RATIO
    subject: str = "router"
    against: str = REFERENCE

    @property
    def wording(self) -> str:
        if self.kind == _RATIO:
            return f"at most {self.limit:g} x {self.against}'s"
        if self.kind == _DIFFERENCE:
            return f"at most {self.limit:g} µs more than {self.against}"
        return f"at most {self.limit:g} MB per 1,000"


@dataclass(frozen=True, slots=True)
class Verdict:
    goal: Goal
    reached: Spread | None  # None: not measured, or not validly

    @property
    def word(self) -> str:
        if self.reached is None:
            return "not measured"
        return "met" if self.reached.median <= self.goal.limit else "missed"


GOALS: tuple[Goal, ...] = (
    Goal("get-64-differ", 0.8),
    Goal("get-rate-differ", 0.8),
    Goal("get-64-differ", 5, _DIFFERENCE, "router-log", "router"),
    Goal("get-rate-differ", 5, _DIFFERENCE, "router-log", "router"),
    Goal("down", 1.0),
    Goal("down-chunked", 1.0),
    Goal("up", 1.5),
    Goal("up-chunked", 1.5),
    Goal("ws-64b", 1.0),
    Goal("ws-4kb", 1.0),
    Goal("idle-websocket", 10, _ABSOLUTE),
    Goal("idle-keepalive", 6, _ABSOLUTE),
)


def judge(summary: Summary) -> list[Verdict]:
    """Every goal, with what the run reached."""
    return [Verdict(goal, _reached(goal, summary)) for goal in GOALS]


def _reached(goal: Goal, summary: Summary) -> Spread | None:
    cell = summary.cell(goal.case, goal.subject)
    if goal.kind == _ABSOLUTE:
        return cell.cost
    against = summary.cell(goal.case, goal.against)
    return cell.ratio_to(against) if goal.kind == _RATIO else cell.difference_to(against)
