from __future__ import annotations

from dataclasses import replace

import pytest

from router.routing.endpoint import SandboxRef
from router.suspender.activity import Answer, Seen
from router.suspender.candidates import Candidate, Standing, Watched
from router.suspender.knowledge import Knowledge
from router.suspender.verdict import Verdict, judge

BOX = SandboxRef("ns", "box")
CANDIDATE = Candidate(
    ref=BOX,
    uid="u",
    version="1",
    idle_timeout_s=600.0,
    complaint="",
    standing=Standing.AT_WORK,
    says_mode=True,
    ready_since=0.0,
)


def knowledge(*, idle_s: float = 601.0, awake_s: float = 0.0, uptime_s: float = 1e6) -> Knowledge:
    known = Knowledge(now=0.0)
    known.learn(
        {"a": Answer(uptime_s, {BOX: Seen(idle_s, awake_s)})}, asked_at=1000.0, answered_at=1000.0
    )
    return known


def watched(candidate: Candidate = CANDIDATE, unchanged_since: float = 0.0) -> Watched:
    return Watched(candidate, unchanged_since)


def test_one_that_nobody_saw_at_work_for_its_idle_time_may_be_suspended() -> None:
    assert judge(watched(), knowledge()) is Verdict.IDLE


def test_one_that_no_router_ever_saw_may_be_suspended_too() -> None:
    assert judge(watched(), knowledge(idle_s=float("inf"))) is Verdict.IDLE


def test_activity_within_its_idle_time_keeps_it() -> None:
    assert judge(watched(), knowledge(idle_s=599.0)) is Verdict.ACTIVE


def test_being_kept_awake_keeps_it() -> None:
    assert judge(watched(), knowledge(awake_s=1.0)) is Verdict.KEPT_AWAKE


def test_a_router_younger_than_its_idle_time_keeps_it() -> None:
    assert judge(watched(), knowledge(uptime_s=599.0)) is Verdict.NOT_WATCHED_LONG_ENOUGH


def test_a_change_within_its_idle_time_keeps_it() -> None:
    assert judge(watched(unchanged_since=401.0), knowledge()) is Verdict.CHANGED_RECENTLY


def test_a_ready_time_that_is_not_known_keeps_it() -> None:
    box = replace(CANDIDATE, ready_since=None)

    assert judge(watched(box), knowledge()) is Verdict.READY_TIME_UNKNOWN


@pytest.mark.parametrize("standing", [each for each in Standing if each is not Standing.AT_WORK])
def test_what_is_not_at_work_is_left_alone(standing: Standing) -> None:
    assert judge(watched(replace(CANDIDATE, standing=standing)), knowledge()) is Verdict.NOT_AT_WORK


def test_without_a_readable_idle_time_it_is_never() -> None:
    box = replace(CANDIDATE, idle_timeout_s=0.0, complaint="x")

    assert judge(watched(box), knowledge()) is Verdict.NEVER
