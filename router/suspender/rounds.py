"""Rounds: every so often ask all routers, judge each Sandbox, suspend the idle ones."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Final, Protocol

from router.routing.endpoint import SandboxRef
from router.settings.values import show_duration
from router.suspender.activity import Answer
from router.suspender.candidates import Candidate, CandidateStore, Watched
from router.suspender.knowledge import INFINITELY_LONG_AGO, Knowledge
from router.suspender.routers import Router, RouterFinder, RoutersUnknown
from router.suspender.survey import RouterIncomplete, RouterSilent
from router.suspender.suspension import Outcome, Result
from router.suspender.verdict import Verdict, judge

logger = logging.getLogger("sandbox_router.suspender")

FRESH_S: Final = 20.0
"""Answers older than this are not acted on: what is left waits for the next round."""
AT_ONCE: Final = 4
MOST_FAILING: Final = 3
"""Namespaces in which the API server may refuse or fail before a round ends."""
TELL_AGAIN_S: Final = 600.0


class Ending(enum.Enum):
    """How a round ended."""

    ACTED = "acted"
    """Everything was known, and whatever was idle was suspended (or nothing was)."""
    STANDBY = "standby"
    """Everything was known; another holds the Lease."""
    SANDBOXES_UNKNOWN = "sandboxes_unknown"
    ROUTERS_UNKNOWN = "routers_unknown"
    NO_ROUTER = "no_router"
    ROUTER_SILENT = "router_silent"
    ROUTER_INCOMPLETE = "router_incomplete"
    FAILED = "failed"

    @property
    def is_complete(self) -> bool:
        """True when everything was known."""
        return self in (Ending.ACTED, Ending.STANDBY)


class CannotAct(Exception):
    """Something is not known, so nobody is suspended in this round."""

    def __init__(self, ending: Ending, detail: str) -> None:
        self.ending = ending
        super().__init__(detail)


class Asks(Protocol):
    """Asks every router."""

    async def ask(
        self, routers: Sequence[Router], wanted: Container[SandboxRef]
    ) -> dict[str, Answer]:
        """Returns each one's answer. Raises RouterSilent, RouterIncomplete."""
        ...


class Suspends(Protocol):
    """Suspends one Sandbox."""

    async def suspend(self, candidate: Candidate, may_act: Callable[[], bool]) -> Result:
        """Returns what became of it."""
        ...


class Tells(Protocol):
    """What is counted."""

    def round_ended(self, ending: Ending) -> None:
        """Counts a round."""

    def judged(self, verdicts: Counter[Verdict], *, routers: int) -> None:
        """Takes how many Sandboxes stand how, and how many routers were asked."""

    def suspended(self, outcome: Outcome) -> None:
        """Counts one attempt."""


class Rounds:
    """Knows from round to round what the routers told. `why_blind` says why the Sandboxes aren't all known, "" if they are."""

    def __init__(
        self,
        *,
        candidates: CandidateStore,
        why_blind: Callable[[], str],
        finder: RouterFinder,
        survey: Asks,
        suspension: Suspends,
        may_act: Callable[[], bool],
        interval_s: float,
        tell: Tells,
        clock: Callable[[], float],
    ) -> None:
        self.last_ended_at = clock()
        """When a round ended last, however; for the liveness probe."""
        self._candidates = candidates
        self._why_blind = why_blind
        self._finder = finder
        self._survey = survey
        self._suspension = suspension
        self._may_act = may_act
        self._interval_s = interval_s
        self._tell = tell
        self._clock = clock
        self._knowledge = Knowledge(now=clock())
        self._trouble: tuple[Ending, float] | None = None
        self._would: set[Candidate] = set()
        self._failed: set[SandboxRef] = set()
        """Idle Sandboxes that the API server did not suspend when it was asked last."""
        self._failing: set[str] = set()
        """The namespaces in which it did not, in the last round."""

    def __repr__(self) -> str:
        return f"<Rounds {self._candidates!r} {self._knowledge!r}>"

    async def run(self) -> None:
        """Goes on until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(self._interval_s)

    async def once(self) -> Ending:
        """Returns how one round ended. Never raises."""
        try:
            ending = await self._look_and_act()
        except CannotAct as why:
            ending = why.ending
            self._say_trouble(ending, str(why))
        except Exception as error:  # the loop's boundary: one round's fault must not end suspending
            ending = Ending.FAILED
            logger.exception("round failed")
            self._say_trouble(ending, f"{type(error).__name__}: {error}")
        else:
            self._say_recovery()
        self.last_ended_at = self._clock()
        self._tell.round_ended(ending)
        return ending

    async def _look_and_act(self) -> Ending:
        routers = await self._learn()
        watched = self._candidates.all()
        judged = [(each, judge(each, self._knowledge)) for each in watched]
        verdicts = Counter(verdict for _, verdict in judged)
        self._tell.judged(verdicts, routers=routers)
        idle = [each for each, verdict in judged if verdict is Verdict.IDLE]
        if not self._may_act():
            return Ending.STANDBY
        self._would &= {each.candidate for each in idle}
        self._failed &= {each.candidate.ref for each in idle}
        await self._suspend_all(sorted(idle, key=self._turn_of), routers)
        return Ending.ACTED

    async def _learn(self) -> int:
        """Brings the knowledge up to now. Returns how many routers there are. Raises CannotAct."""
        try:
            routers = await self._finder.find()
            self._knowledge.found(
                [router.name for router in routers.found],
                is_continuous=routers.is_continuous,
                now=self._clock(),
            )
            if not routers.found:
                raise CannotAct(
                    Ending.NO_ROUTER, "no router was found: check --service, or --routers"
                )
            asked_at = self._clock()
            wanted = {each.candidate.ref for each in self._candidates.all()}
            answers = await self._survey.ask(routers.found, wanted)
        except RoutersUnknown as error:
            raise CannotAct(Ending.ROUTERS_UNKNOWN, str(error)) from error
        except RouterSilent as error:
            raise CannotAct(Ending.ROUTER_SILENT, str(error)) from error
        except RouterIncomplete as error:
            raise CannotAct(Ending.ROUTER_INCOMPLETE, str(error)) from error
        self._knowledge.learn(answers, asked_at=asked_at, answered_at=self._clock())
        # Last, so that routers that end are noticed meanwhile too.
        if blind := self._why_blind():
            raise CannotAct(Ending.SANDBOXES_UNKNOWN, blind)
        return len(routers.found)

    # --- suspending -------------------------------------------------------------------------

    async def _suspend_all(self, idle: list[Watched], routers: int) -> None:
        """Suspends a few at a time, until the answers are too old. A failure ends it for its namespace, several for all."""
        queue = iter(idle)
        failing: set[str] = set()

        async def work() -> None:
            for watched in queue:
                ref = watched.candidate.ref
                if len(failing) >= MOST_FAILING or not self._is_still_so():
                    return
                if ref.namespace in failing:
                    continue
                result = await self._suspension.suspend(watched.candidate, self._is_still_so)
                self._tell.suspended(result.outcome)
                self._say(watched, result, routers)
                if result.outcome in (Outcome.REFUSED, Outcome.UNAVAILABLE):
                    failing.add(ref.namespace)
                    self._failed.add(ref)
                else:
                    self._failed.discard(ref)

        async with asyncio.TaskGroup() as tasks:
            for number in range(min(AT_ONCE, len(idle))):
                tasks.create_task(work(), name=f"suspend {number}")
        self._failing = failing

    def _is_still_so(self) -> bool:
        """Returns True while we hold the Lease and what we know is of just now."""
        return self._may_act() and self._clock() - self._knowledge.asked_at <= FRESH_S

    def _turn_of(self, watched: Watched) -> tuple[bool, bool, float]:
        """The longest idle go first. What failed comes last, or it would keep all others from their turn round after round."""
        ref = watched.candidate.ref
        return ref.namespace in self._failing, ref in self._failed, self._idle_since(watched)

    def _idle_since(self, watched: Watched) -> float:
        last = self._knowledge.last_activity(watched.candidate.ref)
        return max(last, watched.unchanged_since)

    # --- the log ----------------------------------------------------------------------------

    def _say(self, watched: Watched, result: Result, routers: int) -> None:
        candidate, now = watched.candidate, self._clock()
        last = self._knowledge.last_activity(candidate.ref)
        fields: dict[str, object] = {
            "sandbox": candidate.ref.name,
            "namespace": candidate.ref.namespace,
            "sandbox_uid": candidate.uid,
            "idle_timeout": show_duration(candidate.idle_timeout_s),
            "idle_for_s": round(now - self._idle_since(watched)),
            "activity_seen": last != INFINITELY_LONG_AGO,
            "routers_asked": routers,
        }
        if result.outcome is Outcome.SUSPENDED:
            logger.info("sandbox suspended", extra={"fields": fields})
        elif result.outcome is Outcome.WOULD_SUSPEND:
            if candidate not in self._would:
                logger.info("sandbox would be suspended (dry run)", extra={"fields": fields})
            self._would.add(candidate)
        elif result.outcome in (Outcome.REFUSED, Outcome.UNAVAILABLE):
            fields["reason"] = result.reason
            logger.error("the API server did not suspend an idle sandbox", extra={"fields": fields})
        elif result.outcome is Outcome.CONFLICT:
            fields["reason"] = result.reason
            logger.info("sandbox changed as it was to be suspended", extra={"fields": fields})

    def _say_trouble(self, ending: Ending, detail: str) -> None:
        """Tells a reason when it begins, and again every ten minutes."""
        now = self._clock()
        told, told_at = self._trouble or (None, now)
        if told is ending and now - told_at < TELL_AGAIN_S:
            return
        self._trouble = (ending, now)
        logger.warning(
            "no sandbox can be suspended for now",
            extra={"fields": {"why": ending.value, "reason": detail}},
        )

    def _say_recovery(self) -> None:
        if self._trouble is not None:
            self._trouble = None
            logger.info("sandboxes can be suspended again")
