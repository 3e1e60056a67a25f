from __future__ import annotations

import pytest

from router.routing.freshness import Freshness


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def freshness(clock: Clock) -> Freshness:
    return Freshness(clock=clock)


def test_a_table_is_as_old_as_its_last_sync(freshness: Freshness, clock: Clock) -> None:
    assert freshness.age_s() is None
    freshness.set_synced()
    clock.now += 30.0
    assert freshness.age_s() == 30.0

    freshness.set_synced(clock.now - 2.0)
    assert freshness.age_s() == 2.0
    assert freshness.last_synced_at == clock.now - 2.0


def test_a_table_is_stale_beyond_its_age_limit_and_as_long_as_it_was_never_synced(
    freshness: Freshness, clock: Clock
) -> None:
    assert freshness.is_stale(30.0)
    freshness.set_synced()
    clock.now += 30.0
    assert not freshness.is_stale(30.0)
    clock.now += 1.0
    assert freshness.is_stale(30.0)


def test_without_a_limit_no_table_is_stale(freshness: Freshness) -> None:
    assert not freshness.is_stale(0.0)


def test_while_everything_is_awaited_nothing_is_complete(freshness: Freshness) -> None:
    freshness.set_awaited(None)

    assert not freshness.is_complete()
    assert not freshness.is_complete("team-a")


def test_a_namespace_that_is_in_is_complete_while_another_is_awaited(
    freshness: Freshness,
) -> None:
    freshness.set_awaited(frozenset({"team-b"}))

    assert freshness.is_complete("team-a")
    assert not freshness.is_complete("team-b")
    assert not freshness.is_complete()


def test_a_table_of_which_nothing_is_awaited_is_complete(freshness: Freshness) -> None:
    freshness.set_awaited(None)
    freshness.set_awaited(frozenset())

    assert freshness.is_complete()
    assert freshness.is_complete("team-a")
    assert repr(freshness) == "<Freshness complete=True age=None>"
