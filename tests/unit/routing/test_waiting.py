"""The waiting room is bounded, wakes once and leaks nothing."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from router.errors import SandboxNotReady
from router.routing.endpoint import SandboxRef
from router.routing.waiting import CALLERS_SHARE_IS_FULL, IS_FULL, Waiter, WaitingRoom

BOX = SandboxRef("team-a", "box")
OTHER = SandboxRef("team-a", "other")
FOREIGN = SandboxRef("team-b", "box")


def room(
    places: int = 10, places_per_namespace: int = 10, places_per_caller: int | None = None
) -> WaitingRoom:
    return WaitingRoom(
        places=places,
        places_per_namespace=places_per_namespace,
        places_per_caller=places_per_caller,
    )


def ignore() -> None:
    """Wakes nobody."""


def test_waking_a_name_wakes_everybody_who_waits_for_it_in_order_and_nobody_else() -> None:
    woken: list[str] = []
    waiting = room()
    for name in ("first", "second"):
        waiting.enter(BOX, lambda name=name: woken.append(name))
    other = waiting.enter(OTHER, lambda: woken.append("other"))

    waiting.wake([BOX])

    assert woken == ["first", "second"]
    assert other.is_waiting
    assert len(waiting) == 1


def test_a_waiter_is_woken_once_however_often_its_name_is() -> None:
    woken: list[str] = []
    waiting = room()
    waiting.enter(BOX, lambda: woken.append("once"))

    waiting.wake([BOX, BOX])
    waiting.wake([BOX])

    assert woken == ["once"]


def test_a_cancelled_waiter_is_not_woken_and_frees_its_place_once() -> None:
    woken: list[str] = []
    waiting = room()
    staying = waiting.enter(BOX, lambda: woken.append("staying"))
    leaving = waiting.enter(BOX, lambda: woken.append("leaving"))

    leaving.cancel()
    leaving.cancel()
    assert len(waiting) == 1
    waiting.wake([BOX])
    staying.cancel()

    assert woken == ["staying"]
    assert len(waiting) == 0


def test_a_full_room_refuses_with_a_reason_for_the_log() -> None:
    waiting = room(places=1)
    waiting.enter(BOX, ignore)

    with pytest.raises(SandboxNotReady) as caught:
        waiting.enter(FOREIGN, ignore)

    assert caught.value.retry_after_s
    assert "full" in caught.value.reason


def test_one_namespace_cannot_fill_the_room_for_others() -> None:
    waiting = room(places=3, places_per_namespace=2)
    for _ in range(2):
        waiting.enter(BOX, ignore)

    with pytest.raises(SandboxNotReady):
        waiting.enter(OTHER, ignore)
    waiting.enter(FOREIGN, ignore)

    assert len(waiting) == 3


def test_one_caller_cannot_fill_the_room_however_many_namespaces_it_asks_for() -> None:
    waiting = room(places=10, places_per_namespace=2, places_per_caller=3)
    namespaces = [SandboxRef(f"team-{number}", "box") for number in range(4)]
    for ref in namespaces[:3]:
        waiting.enter(ref, ignore, "alice")

    with pytest.raises(SandboxNotReady) as caught:
        waiting.enter(namespaces[3], ignore, "alice")
    waiting.enter(namespaces[3], ignore, "bob")

    assert caught.value.reason == CALLERS_SHARE_IS_FULL
    assert caught.value.reason in IS_FULL
    assert len(waiting) == 4


def test_callers_that_cannot_be_told_apart_have_no_share() -> None:
    waiting = room(places=10, places_per_caller=1)

    for _ in range(10):
        waiting.enter(BOX, ignore, None)

    assert len(waiting) == 10


def test_a_callers_place_is_free_again_when_it_is_woken_or_leaves() -> None:
    waiting = room(places_per_caller=1)
    waiting.enter(BOX, ignore, "alice")
    waiting.wake([BOX])
    waiting.enter(OTHER, ignore, "alice").cancel()

    assert waiting.enter(BOX, ignore, "alice").is_waiting


def test_without_a_bound_of_its_own_a_caller_may_take_what_a_namespace_may() -> None:
    waiting = room(places=10, places_per_namespace=1)
    waiting.enter(BOX, ignore, "alice")

    with pytest.raises(SandboxNotReady):
        waiting.enter(FOREIGN, ignore, "alice")


def test_nobody_waits_in_a_room_without_places() -> None:
    with pytest.raises(SandboxNotReady):
        room(places=0).enter(BOX, ignore)


def test_places_are_free_again_before_the_first_call() -> None:
    waiting = room(places=1)
    again: list[Waiter] = []
    waiting.enter(BOX, lambda: again.append(waiting.enter(BOX, ignore)))

    waiting.wake([BOX])

    assert again[0].is_waiting
    assert len(waiting) == 1


def test_a_waiter_that_another_one_cancels_while_both_are_woken_is_spared() -> None:
    woken: list[str] = []
    waiting = room()
    waiters: list[Waiter] = []
    waiting.enter(BOX, lambda: waiters[0].cancel())
    waiters.append(waiting.enter(BOX, lambda: woken.append("cancelled")))

    waiting.wake([BOX])

    assert woken == []
    assert len(waiting) == 0


def test_room_and_waiter_say_their_state() -> None:
    waiting = room()
    waiter = waiting.enter(BOX, ignore)
    assert repr(waiting) == "<WaitingRoom 1 of 10>"
    assert repr(waiter) == "<Waiter for team-a/box waiting>"
    waiter.cancel()
    assert repr(waiter) == "<Waiter for team-a/box ended>"


class RoomModel(RuleBasedStateMachine):
    """Any order of entering, waking and cancelling keeps the bounds and the counts."""

    PLACES = 4
    PER_NAMESPACE = 3
    PER_CALLER = 2
    refs = st.sampled_from([BOX, OTHER, FOREIGN])

    def __init__(self) -> None:
        super().__init__()
        self.room = room(self.PLACES, self.PER_NAMESPACE, self.PER_CALLER)
        self.inside: dict[int, Waiter] = {}
        self.woken: list[int] = []
        self.entered = 0

    @rule(ref=refs, caller=st.sampled_from([None, "alice", "bob"]))
    def enter(self, ref: SandboxRef, caller: str | None) -> None:
        number = self.entered
        self.entered += 1
        in_namespace = sum(w.ref.namespace == ref.namespace for w in self.inside.values())
        of_caller = sum(w.caller == caller for w in self.inside.values() if caller is not None)
        if (
            len(self.inside) < self.PLACES
            and in_namespace < self.PER_NAMESPACE
            and of_caller < self.PER_CALLER
        ):
            self.inside[number] = self.room.enter(ref, lambda: self.woken.append(number), caller)
        else:
            with pytest.raises(SandboxNotReady):
                self.room.enter(ref, ignore, caller)

    @rule(refs=st.lists(refs))
    def wake(self, refs: list[SandboxRef]) -> None:
        self.woken.clear()
        expected = {n for n, waiter in self.inside.items() if waiter.ref in refs}
        self.room.wake(refs)
        assert sorted(self.woken) == sorted(expected)
        for number in expected:
            assert not self.inside.pop(number).is_waiting

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.inside)))
        waiter = self.inside.pop(number)
        waiter.cancel()
        waiter.cancel()

    @invariant()
    def counts_are_those_who_are_inside(self) -> None:
        assert len(self.room) == len(self.inside)

    def teardown(self) -> None:
        for waiter in self.inside.values():
            waiter.cancel()
        assert len(self.room) == 0
        assert self.room._by_ref == {}
        assert self.room._by_namespace == {}


TestAnyOrderOfEventsKeepsTheRoomConsistent = RoomModel.TestCase
TestAnyOrderOfEventsKeepsTheRoomConsistent.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)
