from __future__ import annotations

import pytest

from router.discovery.pace import Pace
from router.discovery.retries import Retries, Retry
from router.kube.api_client import ApiError

PACE = Pace(first_retry_s=1.0, retry_limit_s=5.0, relist_jitter_s=0.5, short_watch_s=1.0)
CUT = ApiError(0, "reset")
GONE = ApiError(410, "too old", reason="Expired")
BUSY = ApiError(503, "busy")


@pytest.fixture
def retries() -> Retries:
    """Always takes the longest wait that it may choose."""
    return Retries(pace=PACE, uniform=lambda least, most: most)


def delays(retries: Retries, error: ApiError, times: int, stood_s: float = 0.0) -> list[float]:
    return [retries.after(error, stood_s=stood_s).delay_s for _ in range(times)]


def test_failures_in_a_row_wait_longer_and_longer_up_to_the_limit(retries: Retries) -> None:
    assert delays(retries, CUT, 6) == [1.0, 2.0, 4.0, 5.0, 5.0, 5.0]


@pytest.mark.parametrize("error", [CUT, BUSY, ApiError(0, "silence", reason="Timeout")])
def test_a_watch_that_stood_goes_on_at_once_however_often_it_is_cut(
    retries: Retries, error: ApiError
) -> None:
    assert [retries.after(error, stood_s=1.0) for _ in range(20)] == [
        Retry(0.0, needs_list=False)
    ] * 20


def test_a_watch_that_stood_ends_a_row_of_failures(retries: Retries) -> None:
    delays(retries, CUT, 4)
    retries.after(CUT, stood_s=60.0)

    assert delays(retries, CUT, 1) == [1.0]


def test_a_watch_that_did_not_stand_has_failed(retries: Retries) -> None:
    assert delays(retries, CUT, 2, stood_s=0.9) == [1.0, 2.0]


def test_an_expired_version_is_listed_at_once_also_after_a_row_of_failures(
    retries: Retries,
) -> None:
    delays(retries, CUT, 4)

    assert retries.after(GONE, stood_s=0.0) == Retry(0.5, needs_list=True)


def test_lists_that_expire_again_and_again_wait_like_failures(retries: Retries) -> None:
    assert delays(retries, GONE, 4) == [0.5, 1.0, 2.0, 4.0]


def test_what_went_well_makes_the_next_expiry_a_first_one(retries: Retries) -> None:
    delays(retries, GONE, 3)
    retries.went_well()

    assert delays(retries, GONE, 1) == [0.5]


def test_what_the_server_asks_for_is_waited_though_the_watch_stood(retries: Retries) -> None:
    asked = ApiError(429, "slow down", retry_after_s=3.0)

    assert retries.after(asked, stood_s=60.0).delay_s == 4.0


def test_garbage_leads_to_a_new_list_though_the_watch_stood(retries: Retries) -> None:
    assert retries.after(CUT, stood_s=60.0, is_garbage=True) == Retry(1.0, needs_list=True)


def test_a_server_that_cannot_be_reached_keeps_the_version(retries: Retries) -> None:
    assert not any(retries.after(CUT, stood_s=0.0).needs_list for _ in range(20))


def test_a_version_that_is_refused_again_and_again_is_given_up_now_and_then(
    retries: Retries,
) -> None:
    given_up = [retries.after(BUSY, stood_s=0.0).needs_list for _ in range(10)]

    assert given_up == [False, False, False, False, True] * 2


def test_a_resource_that_is_not_served_is_listed_anew(retries: Retries) -> None:
    assert retries.after(ApiError(404, "no such resource"), stood_s=0.0).needs_list
