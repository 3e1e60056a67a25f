"""The goals for the complete router, each judged from the run's own pairs."""

from __future__ import annotations

from dataclasses import dataclass

from bench.summary import Spread, Summary

REFERENCES = ("envoy", "haproxy", "nginx")
_RATIO, _MORE, _ABSOLUTE = "ratio", "more", "absolute"


@dataclass(frozen=True, slots=True)
class Goal:
    """At most this much, for a subject in a case."""

    case: str
    limit: float
    kind: str = _RATIO
    subject: str = "router"
    against: str = "envoy"
    against_case: str = ""
    """Another case than its own, to compare with."""

    @property
    def wording(self) -> str:
        if self.kind == _ABSOLUTE:
            return f"at most {self.limit:g} MB per 1,000"
        where = f" in {self.against_case}" if self.against_case else ""
        if self.kind == _RATIO:
            return f"at most {self.limit:g} x {self.against}'s{where}"
        return f"at most {self.limit:g} µs more than {self.against}{where}"


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
    Goal("get-64-differ", 0.5),
    Goal("get-64-differ", 1.6, against="haproxy"),
    Goal("get-8-differ", 0.6),
    Goal("get-rate-differ", 0.6),
    Goal("post-64-differ", 0.5),
    Goal("get-64-proxied", 1.15, against="router", against_case="get-64-differ"),
    Goal("tls-64", 0.8),
    Goal("get-64-differ", 4, _MORE, "router-log", "router"),
    Goal("get-rate-differ", 4, _MORE, "router-log", "router"),
    Goal("down", 0.85),
    Goal("down-chunked", 0.85),
    Goal("up", 0.85),
    Goal("up-chunked", 0.85),
    Goal("ws-64b", 0.9),
    Goal("ws-4kb", 0.9),
    Goal("get-64-differ", 1.1, subject="router-pure"),
    Goal("get-64-differ", 1.1, subject="router-2w", against="router"),
    Goal("get-8-turns", 8, _MORE, against="router", against_case="get-8-differ"),
    Goal("idle-keepalive", 3, _ABSOLUTE),
    Goal("idle-websocket", 9, _ABSOLUTE),
)


def judge(summary: Summary) -> list[Verdict]:
    """Every goal, with what the run reached."""
    return [Verdict(goal, _reached(goal, summary)) for goal in GOALS]


def _reached(goal: Goal, summary: Summary) -> Spread | None:
    cell = summary.cell(goal.case, goal.subject)
    if goal.kind == _ABSOLUTE:
        return cell.cost
    against = summary.cell(goal.against_case or goal.case, goal.against)
    return cell.ratio_to(against) if goal.kind == _RATIO else cell.difference_to(against)


def cases_with_goals() -> set[str]:
    """Every case that some goal needs."""
    return {name for goal in GOALS for name in (goal.case, goal.against_case) if name}
