from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace

import pytest

from router.routing.endpoint import SandboxRef
from router.suspender.activity import Answer, Seen
from router.suspender.candidates import Candidate, CandidateStore, Standing
from router.suspender.rounds import FRESH_S, TELL_AGAIN_S, Ending, Rounds
from router.suspender.routers import Router, Routers, RoutersUnknown
from router.suspender.survey import RouterIncomplete, RouterSilent
from router.suspender.suspension import Outcome, Result
from tests.unit.suspender.world import Told

ROUTER = Router("pod", ("10.0.0.1:9090",))


def candidate(name: str = "box", namespace: str = "ns") -> Candidate:
    return Candidate(
        ref=SandboxRef(namespace, name),
        uid=f"uid-{name}",
        version="1",
        idle_timeout_s=600.0,
        complaint="",
        standing=Standing.AT_WORK,
        says_mode=True,
        ready_since=0.0,
    )


@dataclass
class Stage:
    """Rounds with one router that saw nothing for long, and everything that a test may change."""

    now: float = 0.0
    routers: tuple[Router, ...] = (ROUTER,)
    find_error: Exception | None = None
    ask_error: Exception | None = None
    blind: str = ""
    is_leader: bool = True
    outcome: Outcome = Outcome.SUSPENDED
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """By name or namespace, where it is another one."""
    suspend_takes_s: float = 0.0
    idle_s: dict[str, float] = field(default_factory=dict)
    suspended: list[str] = field(default_factory=list)
    told: Told = field(default_factory=Told)

    def __post_init__(self) -> None:
        self.store = CandidateStore(clock=lambda: self.now)
        self.rounds = Rounds(
            candidates=self.store,
            why_blind=lambda: self.blind,
            finder=self,
            survey=self,
            suspension=self,
            may_act=lambda: self.is_leader,
            interval_s=15.0,
            tell=self.told,
            clock=lambda: self.now,
        )

    async def find(self) -> Routers:
        if self.find_error is not None:
            raise self.find_error
        return Routers(self.routers)

    async def ask(
        self, routers: Sequence[Router], wanted: Container[SandboxRef]
    ) -> dict[str, Answer]:
        if self.ask_error is not None:
            raise self.ask_error
        seen = {SandboxRef("ns", name): Seen(age, 0.0) for name, age in self.idle_s.items()}
        return {router.name: Answer(1e6, seen) for router in routers}

    async def suspend(self, candidate: Candidate, may_act: Callable[[], bool]) -> Result:
        self.now += self.suspend_takes_s
        if not may_act():
            return Result(Outcome.WITHHELD)
        self.suspended.append(candidate.ref.name)
        ref = candidate.ref
        usual = self.outcomes.get(ref.namespace, self.outcome)
        return Result(self.outcomes.get(ref.name, usual), "because")

    async def after(self, seconds: float) -> Ending:
        self.now += seconds
        return await self.rounds.once()


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.store.upsert(candidate())
    return stage


async def test_an_idle_sandbox_is_suspended_once_its_time_is_over(stage: Stage) -> None:
    early = await stage.after(590.0)
    assert (early, stage.suspended) == (Ending.ACTED, [])

    await stage.after(10.0)

    assert stage.suspended == ["box"]


@pytest.mark.parametrize(
    ("trouble", "ending"),
    [
        ({"routers": ()}, Ending.NO_ROUTER),
        ({"find_error": RoutersUnknown("x")}, Ending.ROUTERS_UNKNOWN),
        ({"ask_error": RouterSilent("x")}, Ending.ROUTER_SILENT),
        ({"ask_error": RouterIncomplete("x")}, Ending.ROUTER_INCOMPLETE),
        ({"blind": "first list under way"}, Ending.SANDBOXES_UNKNOWN),
        ({"is_leader": False}, Ending.STANDBY),
        ({"ask_error": KeyError("a bug")}, Ending.FAILED),
    ],
)
async def test_whatever_is_not_known_suspends_nobody(
    stage: Stage, trouble: dict[str, object], ending: Ending
) -> None:
    for name, value in trouble.items():
        setattr(stage, name, value)

    found = await stage.after(1000.0)

    assert (found, stage.suspended) == (ending, [])
    assert stage.told.endings == {ending: 1}
    assert stage.rounds.last_ended_at == 1000.0


async def test_a_standby_knows_enough_to_act_at_once_when_it_takes_over(stage: Stage) -> None:
    stage.is_leader = False
    await stage.after(1000.0)
    stage.is_leader = True

    await stage.after(15.0)

    assert stage.suspended == ["box"]


async def test_answers_that_have_grown_old_are_not_acted_on(stage: Stage) -> None:
    for number in range(20):
        stage.store.upsert(candidate(f"more-{number:02}"))
    stage.suspend_takes_s = FRESH_S / 4

    await stage.after(1000.0)
    first = len(stage.suspended)
    stage.suspend_takes_s = 0.0
    await stage.after(15.0)

    assert 0 < first < 8
    assert len(set(stage.suspended)) == 21


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.UNAVAILABLE])
async def test_an_api_that_refuses_is_not_asked_for_all_the_others_too(
    stage: Stage, outcome: Outcome
) -> None:
    for number in range(20):
        stage.store.upsert(candidate(f"more-{number:02}"))
    stage.outcome = outcome

    await stage.after(1000.0)

    assert len(stage.suspended) <= 4


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.UNAVAILABLE])
@pytest.mark.parametrize("refused", ["other-0", "ns"])
async def test_a_sandbox_or_namespace_that_is_refused_keeps_no_other_from_being_suspended(
    stage: Stage, outcome: Outcome, refused: str
) -> None:
    # Long before all others: they have waited longest, and are tried first.
    for number in range(20):
        stage.store.upsert(candidate(f"mine-{number:02}"))
    stage.now = 100.0
    for number in range(9):
        stage.store.upsert(candidate(f"other-{number}", "team-b"))
    stage.outcomes[refused] = outcome
    stage.outcomes["mine-00"] = outcome

    await stage.after(1000.0)
    for _ in range(3):
        await stage.after(15.0)

    others = {name for name in stage.suspended if name.startswith("other-")}
    assert len(others) == 9
    assert stage.suspended.count("mine-19") > 0 or refused == "ns"


async def test_a_conflict_keeps_nobody_else_from_being_suspended(stage: Stage) -> None:
    for number in range(9):
        stage.store.upsert(candidate(f"more-{number}"))
    stage.outcome = Outcome.CONFLICT

    await stage.after(1000.0)

    assert len(stage.suspended) == 10


async def test_the_longest_idle_go_first(stage: Stage) -> None:
    for name in ("b", "c"):
        stage.store.upsert(candidate(name))
    stage.idle_s = {"box": 700.0, "b": 900.0, "c": 800.0}

    await stage.after(1000.0)

    assert stage.suspended == ["b", "c", "box"]


class TestLog:
    """What an operator reads."""

    async def test_a_suspended_sandbox_is_named_with_what_was_checked(
        self, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage.idle_s = {"box": 700.0}
        with caplog.at_level(logging.INFO):
            await stage.after(1000.0)

        (record,) = [each for each in caplog.records if each.message == "sandbox suspended"]
        fields = record.fields  # type: ignore[attr-defined]
        assert (fields["namespace"], fields["sandbox"]) == ("ns", "box")
        assert (fields["idle_for_s"], fields["idle_timeout"]) == (700, "600s")
        assert fields["routers_asked"] == 1

    async def test_a_dry_run_names_each_sandbox_once(
        self, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage.outcome = Outcome.WOULD_SUSPEND
        with caplog.at_level(logging.INFO):
            for _ in range(3):
                await stage.after(700.0)

        assert [each.message for each in caplog.records] == ["sandbox would be suspended (dry run)"]

    async def test_a_reason_is_told_when_it_begins_and_now_and_then_and_its_end_too(
        self, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage.ask_error = RouterSilent("10.0.0.1:9090: refused")
        with caplog.at_level(logging.INFO):
            for _ in range(3):
                await stage.after(15.0)
            told_at_first = len(caplog.records)
            await stage.after(TELL_AGAIN_S)
            stage.ask_error = None
            await stage.after(15.0)

        assert told_at_first == 1
        told = [each.message for each in caplog.records if each.message != "sandbox suspended"]
        assert told == [
            "no sandbox can be suspended for now",
            "no sandbox can be suspended for now",
            "sandboxes can be suspended again",
        ]
        fields = caplog.records[0].fields  # type: ignore[attr-defined]
        assert fields["why"] == "router_silent"
        assert "10.0.0.1:9090" in fields["reason"]

    async def test_a_refusal_is_told_with_the_servers_words(
        self, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage.outcome = Outcome.REFUSED
        with caplog.at_level(logging.ERROR):
            await stage.after(1000.0)

        assert caplog.records[0].fields["reason"] == "because"  # type: ignore[attr-defined]


async def test_a_sandbox_that_changes_begins_anew(stage: Stage) -> None:
    await stage.after(590.0)
    stage.store.upsert(replace(candidate(), ready_since=500.0))

    await stage.after(100.0)

    assert stage.suspended == []


async def test_an_api_that_refuses_everywhere_is_not_asked_in_every_namespace(
    stage: Stage,
) -> None:
    for number in range(40):
        stage.store.upsert(candidate("box", f"team-{number:02}"))
    stage.outcome = Outcome.UNAVAILABLE

    await stage.after(1000.0)

    assert len(stage.suspended) <= 8
