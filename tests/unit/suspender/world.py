"""World: sandboxes, routers and suspenders in virtual time, with everything that goes wrong; it knows what really happened."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from router.routing.endpoint import SandboxRef
from router.suspender.activity import Answer, Seen
from router.suspender.candidates import Candidate, CandidateStore, Standing
from router.suspender.rounds import Ending, Rounds
from router.suspender.routers import Router, Routers, RoutersUnknown
from router.suspender.survey import RouterIncomplete, RouterSilent
from router.suspender.suspension import Outcome, Result
from router.suspender.verdict import Verdict


@dataclass
class Promise:
    """Somebody asked for a sandbox to be kept awake. Until a suspender has heard of it, it lives and dies with that router."""

    router: int | None
    """None once that router has ended: then only suspenders remember it."""
    until: float
    is_heard: bool = False


@dataclass
class Box:
    """One Sandbox, and the truth about it."""

    ref: SandboxRef
    idle_timeout_s: float
    version: int = 1
    is_running: bool = True
    is_ready: bool = True
    ready_since: float = 0.0
    last_activity: float = -1e9
    """When it was really at work last, whoever saw it."""
    promises: list[Promise] = field(default_factory=list)
    streams: set[int] = field(default_factory=set)
    """Routers that have a request of it open."""

    @property
    def awake_until(self) -> float:
        return max((promise.until for promise in self.promises), default=-1e9)

    def candidate(self) -> Candidate:
        standing = Standing.AT_WORK if self.is_ready else Standing.NOT_READY
        return Candidate(
            ref=self.ref,
            uid=f"uid-{self.ref.name}",
            version=str(self.version),
            idle_timeout_s=self.idle_timeout_s,
            complaint="",
            standing=standing if self.is_running else Standing.SUSPENDED,
            says_mode=True,
            ready_since=round(self.ready_since),
        )


@dataclass
class RouterProcess:
    """One router: what it has seen since its start. Its death takes that along."""

    name: str
    started_at: float
    last: dict[SandboxRef, float] = field(default_factory=dict)
    awake: dict[SandboxRef, float] = field(default_factory=dict)
    is_reachable: bool = True
    is_complete: bool = True


class World:
    """Steps of virtual time; `now` is the clock of everything, though routers only tell ages."""

    def __init__(self, seed: int, *, boxes: int = 4, routers: int = 2) -> None:
        self.random = random.Random(seed)
        self.now = 1000.0
        self.boxes = {
            ref: Box(ref, idle_timeout_s=self.random.choice((300.0, 900.0, 1800.0)))
            for ref in (SandboxRef("ns", f"box-{number}") for number in range(boxes))
        }
        for box in self.boxes.values():
            box.ready_since = self.now
        self.numbers = 0
        self.routers: dict[int, RouterProcess] = {}
        self.came_and_went = 0
        """Counts changes of the set of routers, as a slice's generation does."""
        for _ in range(routers):
            self.start_router()
        self.is_api_away = False
        self.suspended = 0
        self.wrongs: list[str] = []
        """Sandboxes that were suspended and must not have been. Not raised: a round survives whatever fails in it."""
        self.suspenders: list[Suspender] = []

    # --- what happens -----------------------------------------------------------------------

    def start_router(self) -> int:
        self.numbers += 1
        self.routers[self.numbers] = RouterProcess(f"pod-{self.numbers}", self.now)
        self.came_and_went += 1
        return self.numbers

    def end_router(self, number: int) -> None:
        """It goes for good, and what it knew with it."""
        del self.routers[number]
        self.came_and_went += 1
        self._lose(number)

    def restart_router(self, number: int) -> None:
        """Its container crashes and starts again in the same pod: same name, empty memory."""
        old = self.routers[number]
        self.routers[number] = RouterProcess(old.name, self.now)
        self._lose(number)

    def _lose(self, number: int) -> None:
        for box in self.boxes.values():
            box.streams.discard(number)
            for promise in box.promises:
                if promise.router == number:
                    promise.router = None
            box.promises = [
                promise
                for promise in box.promises
                if promise.is_heard or promise.router is not None
            ]

    def restart_suspender(self, place: int) -> None:
        """It comes back with an empty memory: what only suspenders remembered is forgotten."""
        self.suspenders[place] = Suspender(self, is_leader=self.suspenders[place].is_leader)
        for box in self.boxes.values():
            box.promises = [promise for promise in box.promises if promise.router is not None]

    def request(self, box: Box, number: int) -> None:
        """Wakes it if need be, and is answered."""
        self.wake(box)
        box.last_activity = self.now
        self.routers[number].last[box.ref] = self.now

    def keep_awake(self, box: Box, number: int, seconds: float) -> None:
        self.request(box, number)
        box.promises.append(Promise(number, self.now + seconds))
        router = self.routers[number]
        router.awake[box.ref] = max(router.awake.get(box.ref, 0.0), self.now + seconds)

    def open_stream(self, box: Box, number: int) -> None:
        self.request(box, number)
        box.streams.add(number)

    def wake(self, box: Box) -> None:
        if not box.is_running:
            box.is_running = box.is_ready = True
            box.ready_since = self.now
            box.version += 1

    def restart_pod(self, box: Box) -> None:
        if box.is_running:
            box.ready_since = self.now
            box.version += 1

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for box in self.boxes.values():
            for number in box.streams:
                box.last_activity = self.now
                self.routers[number].last[box.ref] = self.now

    # --- what may never happen --------------------------------------------------------------

    def suspend(self, candidate: Candidate) -> Result:
        box = self.boxes[candidate.ref]
        if self.is_api_away:
            return Result(Outcome.UNAVAILABLE)
        if box.candidate() != candidate:
            return Result(Outcome.CHANGED)
        idle_s = self.now - box.last_activity
        for what, age_s in (("activity", idle_s), ("becoming ready", self.now - box.ready_since)):
            if age_s < box.idle_timeout_s:
                self.wrongs.append(f"{box.ref} suspended {age_s:.0f} s after {what}")
        if box.awake_until > self.now:
            self.wrongs.append(f"{box.ref} suspended though it was to be kept awake")
        if not box.is_running:
            self.wrongs.append(f"{box.ref} suspended though it did not run")
        box.is_running = box.is_ready = False
        box.version += 1
        self.suspended += 1
        return Result(Outcome.SUSPENDED)


@dataclass
class Told:
    """What a suspender counted."""

    endings: Counter[Ending] = field(default_factory=Counter)
    outcomes: Counter[Outcome] = field(default_factory=Counter)

    def round_ended(self, ending: Ending) -> None:
        self.endings[ending] += 1

    def judged(self, verdicts: Counter[Verdict], *, routers: int) -> None:
        pass

    def suspended(self, outcome: Outcome) -> None:
        self.outcomes[outcome] += 1


class Suspender:
    """One suspender with its own view of the world: a watch that lags, a list of routers, and the questions that it asks."""

    def __init__(self, world: World, *, is_leader: bool) -> None:
        self.world = world
        self.is_leader = is_leader
        self.lag_s = 0.0
        self.told = Told()
        self._changes_seen: int | None = None
        self.store = CandidateStore(clock=lambda: world.now)
        for box in world.boxes.values():
            self.store.upsert(box.candidate())
        self.rounds = Rounds(
            candidates=self.store,
            why_blind=lambda: "",
            finder=self,
            survey=self,
            suspension=self,
            may_act=lambda: self.is_leader,
            interval_s=15.0,
            tell=self.told,
            clock=lambda: world.now,
        )

    def catch_up(self) -> None:
        """Brings the watch's events up to now, unless it lags."""
        if self.lag_s <= 0:
            for box in self.world.boxes.values():
                self.store.upsert(box.candidate())

    async def find(self) -> Routers:
        if self.world.is_api_away:
            raise RoutersUnknown("away")
        before, self._changes_seen = self._changes_seen, self.world.came_and_went
        found = tuple(Router(each.name, (each.name,)) for each in self.world.routers.values())
        is_continuous = before is not None and self._changes_seen - before <= 1
        return Routers(found, is_continuous=is_continuous)

    async def ask(
        self, routers: Sequence[Router], wanted: Container[SandboxRef]
    ) -> dict[str, Answer]:
        world, answers = self.world, {}
        for router in world.routers.values():
            if not router.is_reachable:
                raise RouterSilent(router.name)
            if not router.is_complete:
                raise RouterIncomplete(router.name)
            open_here = {
                box.ref
                for number, each in world.routers.items()
                if each is router
                for box in world.boxes.values()
                if number in box.streams
            }
            answers[router.name] = Answer(
                uptime_s=world.now - router.started_at,
                sandboxes={
                    ref: Seen(
                        idle_s=0.0 if ref in open_here else world.now - at,
                        awake_s=max(0.0, router.awake.get(ref, 0.0) - world.now),
                    )
                    for ref, at in router.last.items()
                },
            )
        for box in world.boxes.values():
            for promise in box.promises:
                promise.is_heard = True
        return answers

    async def suspend(self, candidate: Candidate, may_act: Callable[[], bool]) -> Result:
        return self.world.suspend(candidate) if may_act() else Result(Outcome.WITHHELD)
