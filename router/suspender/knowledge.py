"""Knowledge: what the routers have told, put together, and since when nothing can have been missed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from router.routing.endpoint import SandboxRef
from router.suspender.activity import Answer

INFINITELY_LONG_AGO = float("-inf")


@dataclass(slots=True)
class _Source:
    """One router: when its process began, and what it was asked to keep awake. Times of the suspender's clock."""

    started_at: float
    awake_until: dict[SandboxRef, float] = field(default_factory=dict)


class Knowledge:
    """Kept from round to round. All times are the suspender's own steady clock's; routers tell ages, which it turns into such.

    Whatever a router may have seen without telling it (it ended, was replaced, or began after the others) moves
    `complete_since`: before that time a sandbox may have been at work unseen.
    """

    def __init__(self, *, now: float) -> None:
        self.complete_since = now
        """From this time on every activity is known. At first, the start: routers that ended before are not known of."""
        self.asked_at = now
        """What is known was true at this time."""
        self._names: set[str] = set()
        self._sources: dict[str, _Source] = {}
        self._processes: dict[str, str] = {}
        """Which process answered last, by the router's name."""
        self._last: dict[SandboxRef, float] = {}
        self._promised: dict[SandboxRef, float] = {}
        """Who is to be kept awake by the word of a router that has ended since."""

    def __repr__(self) -> str:
        return f"<Knowledge routers={len(self._sources)} sandboxes={len(self._last)}>"

    def found(self, names: Collection[str], *, is_continuous: bool, now: float) -> None:
        """Notes which routers there are. Who is missing may have seen something until just now; so may one that came and went."""
        gone = self._names - set(names)
        if gone or not is_continuous:
            self.complete_since = now
        for name in gone:
            self._forget(name)
            self._processes.pop(name, None)
        self._names = set(names)

    def learn(self, answers: Mapping[str, Answer], *, asked_at: float, answered_at: float) -> None:
        """Takes the answers of all routers, by name. Each was made at some time between asking and answering."""
        self.asked_at = asked_at
        last: dict[SandboxRef, float] = {}
        for name, answer in answers.items():
            if self._processes.get(name, answer.process) != answer.process:
                # Restarted; or the address leads to several, and what the other one saw since then isn't known.
                self.complete_since = max(self.complete_since, asked_at)
                self._forget(name)
            self._processes[name] = answer.process
            started_at = answered_at - answer.uptime_s
            self.complete_since = max(self.complete_since, started_at)
            source = self._source(name, started_at, asked_at)
            for ref, seen in answer.sandboxes.items():
                at = answered_at - seen.idle_s
                if at > last.get(ref, INFINITELY_LONG_AGO):
                    last[ref] = at
            source.awake_until = {
                ref: answered_at + seen.awake_s
                for ref, seen in answer.sandboxes.items()
                if seen.awake_s
            }
        self._last = last
        self._promised = {ref: at for ref, at in self._promised.items() if at > asked_at}

    def last_activity(self, ref: SandboxRef) -> float:
        """Returns when any router saw this sandbox at work last, INFINITELY_LONG_AGO if none did."""
        return self._last.get(ref, INFINITELY_LONG_AGO)

    def awake_until(self, ref: SandboxRef) -> float:
        """Returns until when it is to be kept awake, INFINITELY_LONG_AGO if nobody asked for that."""
        told = [source.awake_until.get(ref) for source in self._sources.values()]
        return max(
            (at for at in (*told, self._promised.get(ref)) if at is not None),
            default=INFINITELY_LONG_AGO,
        )

    def _source(self, name: str, started_at: float, asked_at: float) -> _Source:
        known = self._sources.get(name)
        # The same process tells its start again and again, give or take the time that the question took.
        if known is not None and started_at > known.started_at and self._is_new(known, started_at):
            self._forget(name)
            known = None
        if known is None:
            known = self._sources[name] = _Source(started_at)
        return known

    @staticmethod
    def _is_new(known: _Source, started_at: float) -> bool:
        return started_at - known.started_at > 1.0

    def _forget(self, name: str) -> None:
        """Keeps the promises of a router that has ended."""
        source = self._sources.pop(name, None)
        if source is not None:
            for ref, at in source.awake_until.items():
                self._promised[ref] = max(at, self._promised.get(ref, INFINITELY_LONG_AGO))
