"""What is remembered of sandboxes' use: bounded, never wrong about whom it forgot, and no matter of the wall clock."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.routing.endpoint import Endpoint, SandboxRef, State
from router.telemetry.activity import Activity, Use


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def box(name: str = "box", *, namespace: str = "team-a", uid: str | None = None) -> Endpoint:
    ref = SandboxRef(namespace, name)
    return Endpoint(
        ref,
        f"pod-of-{name}",
        State.READY,
        ("10.0.0.5",),
        sandbox_uid=f"uid-of-{name}" if uid is None else uid,
    )


def use_of(activity: Activity, endpoint: Endpoint, at: float) -> None:
    """Notes a use as the recorder does."""
    entry = activity.entries.get(endpoint.sandbox_uid or endpoint.ref)
    if entry is None:
        activity.first_used(endpoint, at)
    else:
        entry.used_at = max(entry.used_at, at)


def told(activity: Activity, under_way=(), **wanted: str) -> list[Use]:
    return [use for uses in activity.moment(under_way, **wanted).slices() for use in uses]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_sandbox_is_told_with_when_it_was_used_last(clock: Clock) -> None:
    activity = Activity(clock=clock)
    use_of(activity, box(), 1001.0)
    use_of(activity, box(), 1005.0)
    assert told(activity) == [Use("team-a", "box", "uid-of-box", 1005.0, 0, 0, 0.0)]
    assert repr(activity) == "<Activity sandboxes=1>"
    assert repr(activity.moment([])) == "<Moment sandboxes=1 in_use=0>"


def test_a_sandbox_that_comes_back_with_another_pod_is_the_same_and_a_namesake_is_not(
    clock: Clock,
) -> None:
    activity = Activity(clock=clock)
    use_of(activity, box(), 1001.0)
    again = Endpoint(box().ref, "another-pod", State.READY, ("10.0.0.9",), sandbox_uid="uid-of-box")
    use_of(activity, again, 1002.0)
    use_of(activity, box(uid="another-sandbox"), 1003.0)
    assert [(use.uid, use.used_at) for use in told(activity)] == [
        ("uid-of-box", 1002.0),
        ("another-sandbox", 1003.0),
    ]


def test_where_discovery_knows_no_uid_the_name_counts(clock: Clock) -> None:
    activity = Activity(clock=clock)
    use_of(activity, box(uid=""), 1001.0)
    use_of(activity, box("other", uid=""), 1002.0)
    assert [(use.name, use.uid) for use in told(activity)] == [("box", ""), ("other", "")]


def test_a_request_under_way_is_activity_at_this_moment_also_the_first(clock: Clock) -> None:
    activity = Activity(clock=clock)
    use_of(activity, box(), 1001.0)
    clock.now = 1100.0
    fresh = box("fresh")
    uses = told(activity, [(box(), None), (box(), None), (fresh, None)])
    assert uses == [
        Use("team-a", "box", "uid-of-box", 1100.0, 2, 0, 0.0),
        Use("team-a", "fresh", "uid-of-fresh", 1100.0, 1, 0, 0.0),
    ]
    assert told(activity) == [Use("team-a", "box", "uid-of-box", 1001.0, 0, 0, 0.0)], "none is left"


def test_an_open_tunnel_is_activity_when_something_moved(clock: Clock) -> None:
    activity = Activity(clock=clock)
    clock.now = 1100.0
    assert told(activity, [(box(), 1040.0), (box(), 1030.0)]) == [
        Use("team-a", "box", "uid-of-box", 1040.0, 0, 2, 0.0)
    ]
    use_of(activity, box(), 1050.0)
    assert told(activity, [(box(), 1040.0)])[0].used_at == 1050.0


def test_one_namespace_or_name_can_be_asked_for(clock: Clock) -> None:
    activity = Activity(clock=clock)
    for each in (box(), box("other"), box(namespace="team-b", uid="b")):
        use_of(activity, each, 1001.0)
    under_way = [(box("open"), None), (box("open", namespace="team-b", uid="c"), 1000.0)]
    assert {use[:2] for use in told(activity, under_way, namespace="team-b")} == {
        ("team-b", "box"),
        ("team-b", "open"),
    }
    assert [use[:2] for use in told(activity, under_way, namespace="team-a", name="other")] == [
        ("team-a", "other")
    ]


# --- kept awake -----------------------------------------------------------------------------


def test_a_wish_to_be_kept_awake_is_told_and_the_longer_one_stands(clock: Clock) -> None:
    activity = Activity(clock=clock)
    assert activity.keep_awake(box(), 600) == 600
    clock.now += 100
    assert activity.keep_awake(box(), 60) == 500
    assert activity.keep_awake(box(), 900) == 900
    assert told(activity) == [Use("team-a", "box", "uid-of-box", 1000.0, 0, 0, 2000.0)]


# --- room -----------------------------------------------------------------------------------


def test_over_the_bound_who_was_unused_longest_is_forgotten_and_that_is_said(clock: Clock) -> None:
    activity = Activity(max_sandboxes=3, clock=clock)
    for number, at in enumerate((1030.0, 1010.0, 1020.0)):
        use_of(activity, box(f"box-{number}"), at)
    assert activity.moment([]).complete_since == 1000.0
    use_of(activity, box("newcomer"), 1040.0)
    assert {use.name for use in told(activity)} == {"box-0", "box-2", "newcomer"}
    assert activity.moment([]).complete_since == 1010.0


def test_who_is_gone_is_forgotten_first_and_costs_no_knowledge(clock: Clock) -> None:
    gone = {"uid-of-box-2"}
    activity = Activity(
        max_sandboxes=3, clock=clock, is_gone=lambda ref, uid: uid in gone and ref.name == "box-2"
    )
    for number in range(3):
        use_of(activity, box(f"box-{number}"), 1010.0 + number)
    use_of(activity, box("newcomer"), 1040.0)
    assert {use.name for use in told(activity)} == {"box-0", "box-1", "newcomer"}
    assert activity.moment([]).complete_since == 1000.0
    use_of(activity, box("another"), 1041.0)
    assert {use.name for use in told(activity)} == {"box-1", "newcomer", "another"}


def test_who_is_to_be_kept_awake_is_forgotten_last(clock: Clock) -> None:
    activity = Activity(max_sandboxes=2, clock=clock)
    activity.keep_awake(box("promised"), 3600)
    use_of(activity, box("other"), 1500.0)
    use_of(activity, box("newcomer"), 1600.0)
    assert {use.name for use in told(activity)} == {"promised", "newcomer"}
    activity.keep_awake(box("newcomer"), 7200)
    use_of(activity, box("another"), 1700.0)
    assert activity.moment([]).complete_since == 4600.0, "until then nobody may count as idle"


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(0, 14), st.integers(0, 20), st.sampled_from([0, 0, 0, 50])),
        max_size=60,
    ),
    st.sets(st.integers(0, 14)),
)
def test_whoever_is_not_told_of_had_no_activity_since_it_is_complete(
    steps: list[tuple[int, int, int]], gone: set[int]
) -> None:
    clock = Clock()
    removed = {f"uid-of-box-{number}" for number in gone}
    activity = Activity(max_sandboxes=5, clock=clock, is_gone=lambda ref, uid: uid in removed)
    last: dict[str, float] = {}
    for number, pause, awake in steps:
        clock.now += pause
        name = f"box-{number}"
        last[name] = max(last.get(name, 0.0), clock.now + awake)
        use_of(activity, box(name), clock.now)
        if awake:
            activity.keep_awake(box(name), awake)
        uses = {use.name: max(use.used_at, use.awake_until) for use in told(activity)}
        assert len(uses) <= 5
        assert len(activity._queue) == len(activity.entries)
        complete_since = activity.moment([]).complete_since
        for each, at in last.items():
            if f"uid-of-{each}" not in removed:
                # What is concluded without an entry is never later than the truth.
                assert max(uses.get(each, 0.0), complete_since) >= at


# --- size -----------------------------------------------------------------------------------


def names() -> Iterator[Endpoint]:
    """Yields sandboxes whose texts nobody else holds, as after their end."""
    for number in range(20_000):
        yield Endpoint(
            SandboxRef("team-a", f"sandbox-of-a-usual-length-{number:06}"),
            "",
            State.READY,
            sandbox_uid=f"3b0c6c1e-0000-4000-8000-{number:012}",
        )


@pytest.mark.alone
def test_a_sandbox_costs_less_than_500_bytes() -> None:
    gc.collect()
    tracemalloc.start()
    try:
        activity = Activity()
        for endpoint in names():
            use_of(activity, endpoint, time.monotonic())
        gc.collect()
        bytes_each = tracemalloc.get_traced_memory()[0] / len(activity.entries)
    finally:
        tracemalloc.stop()
    assert 100 < bytes_each < 500
