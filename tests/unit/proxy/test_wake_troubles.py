"""WakeTroubles: whose failure holds up whom, and for how long."""

from __future__ import annotations

import itertools

import pytest

from router.proxy.ports import WakeFailed
from router.proxy.wake_troubles import WakeTroubles

REFUSED = WakeFailed("admission webhook says no", concerns_all=False)
AWAY = WakeFailed("503 from the API server", concerns_all=True)


def test_a_refusal_holds_up_its_own_sandbox_alone() -> None:
    troubles = WakeTroubles()
    troubles.failed("uid-1", "team-a", 100.0, REFUSED)
    trouble = troubles.find("uid-1", "team-a", 100.1)
    assert trouble is not None
    assert trouble.is_refusal
    assert troubles.find("uid-2", "team-a", 100.1) is None


def test_a_failure_holds_up_its_namespace_and_all_once_another_fails_too() -> None:
    troubles = WakeTroubles()
    troubles.failed("uid-1", "team-a", 100.0, AWAY)
    assert troubles.find("uid-2", "team-a", 100.1) is not None
    assert troubles.find("uid-3", "team-b", 100.1) is None
    troubles.failed("uid-3", "team-b", 100.2, AWAY)
    assert troubles.find("uid-4", "team-c", 100.3) is not None


def test_a_success_between_two_failures_keeps_them_apart() -> None:
    troubles = WakeTroubles()
    troubles.failed("uid-1", "team-a", 100.0, AWAY)
    troubles.went_well("uid-9", "team-z", 100.1)
    troubles.failed("uid-3", "team-b", 100.2, AWAY)
    assert troubles.find("uid-4", "team-c", 100.3) is None


def test_a_server_that_says_how_long_it_is_left_alone_holds_up_everyone_for_so_long() -> None:
    troubles = WakeTroubles()
    busy = WakeFailed("429 from the API server", concerns_all=True, at_least_s=7.0)
    troubles.failed("uid-1", "team-a", 100.0, busy)
    assert troubles.find("uid-4", "team-c", 106.9) is not None
    assert troubles.find("uid-4", "team-c", 110.1) is None


def test_failures_in_a_row_pause_longer_up_to_a_bound() -> None:
    troubles, now, pauses = WakeTroubles(), 100.0, []
    for _ in range(12):
        now = troubles.failed("uid-1", "team-a", now, REFUSED).until
        pauses.append(now)
    steps = [after - before for before, after in itertools.pairwise(pauses)]
    assert steps[0] < 3
    assert steps[-1] == pytest.approx(30.0, rel=0.26)


def test_what_it_keeps_of_sandboxes_is_bounded() -> None:
    troubles = WakeTroubles()
    for number in range(10_000):
        troubles.failed(f"uid-{number}", "team-a", 100.0 * number, REFUSED)
    assert len(troubles) <= 4097
