"""Several workers' knowledge as one: added up, never more than what is known, and promises outlive who was told."""

from __future__ import annotations

from typing import Any

import orjson

from router.admin.activity import ActivityFilter, Seen
from router.app.uses import WorkersUses, moment_text, wanted_text
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.telemetry.activity import Activity, Use

ANY = ActivityFilter()
BOX = Endpoint(SandboxRef("team-a", "box"), "pod", State.READY, sandbox_uid="uid-a")
OTHER = Endpoint(SandboxRef("team-a", "other"), "pod", State.READY, sandbox_uid="uid-b")


def activity(started_at: float) -> Activity:
    return Activity(clock=lambda: started_at)


async def heard(worker: Activity, under_way: Any = ()) -> dict[str, Any]:
    """Returns a worker's answer as the supervisor reads it."""
    answer: dict[str, Any] = orjson.loads(orjson.dumps(await moment_text(worker.moment(under_way))))
    return answer


def told(seen: Seen) -> list[Use]:
    return [use for uses in seen.slices for use in uses]


async def test_workers_are_added_up() -> None:
    one, two = activity(100.0), activity(300.0)
    one.first_used(BOX, 400.0)
    two.first_used(BOX, 410.0)
    one.keep_awake(BOX, 50.0)
    two.first_used(OTHER, 420.0)
    answers = [
        await heard(one, [(BOX, None), (BOX, 90.0)]),
        await heard(two, [(BOX, None), (BOX, 80.0)]),
    ]
    uses = WorkersUses(started_at=50.0)
    seen = await uses.add_up(answers, gaps=(), wanted=ANY, now=500.0)
    assert told(seen) == [
        Use("team-a", "box", "uid-a", 410.0, 2, 2, 150.0),
        Use("team-a", "other", "uid-b", 420.0, 0, 0, 0.0),
    ]
    assert (seen.now, seen.started_at, seen.gaps) == (500.0, 50.0, ())
    assert seen.complete_since == 300.0, "the youngest worker's start"


async def test_more_than_a_slice_comes_whole() -> None:
    worker = activity(100.0)
    for number in range(700):
        ref = SandboxRef("team-a", f"box-{number}")
        worker.first_used(Endpoint(ref, "", State.READY, sandbox_uid=f"uid-{number}"), 150.0)
    seen = await WorkersUses(started_at=50.0).add_up(
        [await heard(worker)], gaps=(), wanted=ANY, now=200.0
    )
    assert sorted(use.name for use in told(seen)) == sorted(f"box-{n}" for n in range(700))


async def test_a_worker_that_could_not_be_asked_leaves_nothing_known_until_now() -> None:
    worker = activity(100.0)
    worker.first_used(BOX, 150.0)
    seen = await WorkersUses(started_at=50.0).add_up(
        [await heard(worker)], gaps=["worker 1 does not answer"], wanted=ANY, now=500.0
    )
    assert seen.gaps == ("worker 1 does not answer",)
    assert seen.complete_since == 500.0


async def test_a_promise_outlives_the_worker_that_was_told() -> None:
    worker, uses = activity(100.0), WorkersUses(started_at=50.0)
    worker.keep_awake(BOX, 1000.0)
    await uses.add_up([await heard(worker)], gaps=(), wanted=ANY, now=200.0)
    assert repr(uses) == "<WorkersUses awake=1>"
    replacement = activity(300.0)
    replacement.first_used(BOX, 310.0)
    for wanted in (ANY, ActivityFilter(namespace="team-a"), ActivityFilter(name="box")):
        seen = await uses.add_up([await heard(replacement)], gaps=(), wanted=wanted, now=400.0)
        assert told(seen) == [Use("team-a", "box", "uid-a", 310.0, 0, 0, 1100.0)]
    seen = await uses.add_up([], gaps=(), wanted=ActivityFilter(name="other"), now=400.0)
    assert told(seen) == []
    seen = await uses.add_up([], gaps=(), wanted=ANY, now=1101.0)
    assert told(seen) == []
    assert repr(uses) == "<WorkersUses awake=0>"


async def test_a_promise_counts_before_any_worker_is_asked_and_a_shorter_one_takes_nothing_back() -> (
    None
):
    uses = WorkersUses(started_at=50.0)
    uses.promise(("team-a", "box", "uid-a", 1000.0), now=100.0)
    uses.promise(("team-a", "box", "uid-a", 10.0), now=200.0)
    seen = await uses.add_up([], gaps=["worker 0 is not running"], wanted=ANY, now=300.0)
    assert told(seen) == [Use("team-a", "box", "uid-a", 0.0, 0, 0, 1100.0)]


async def test_promises_that_are_over_make_room_when_nobody_asks_for_long() -> None:
    uses = WorkersUses(started_at=50.0, most_promises=10)
    for number in range(100):
        uses.promise(("team-a", f"box-{number}", "", 5.0), now=100.0 + number)
    assert len(uses._awake) <= 10
    seen = await uses.add_up([], gaps=(), wanted=ANY, now=199.0)
    assert sorted(use.name for use in told(seen)) == [f"box-{n}" for n in (95, 96, 97, 98, 99)]
    assert seen.complete_since == 50.0, "nothing was forgotten before its time"


async def test_more_promises_than_there_is_room_for_leave_nobody_idle_until_the_forgotten_ends() -> (
    None
):
    uses = WorkersUses(started_at=50.0, most_promises=10)
    for number in range(11):
        uses.promise(("team-a", f"box-{number}", "", 500.0 + number), now=100.0)
    seen = await uses.add_up([], gaps=(), wanted=ANY, now=200.0)
    assert sorted(use.name for use in told(seen)) == sorted(f"box-{n}" for n in range(1, 11))
    assert seen.complete_since == 600.0


def test_a_filter_travels_as_json() -> None:
    wanted = ActivityFilter(namespace="team-a")
    assert ActivityFilter(**orjson.loads(orjson.dumps(wanted_text(wanted)))) == wanted
