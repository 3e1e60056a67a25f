from __future__ import annotations

from router.discovery.pace import Pace


def test_the_server_ends_a_quiet_watch_before_its_silence_counts_as_a_dead_connection() -> None:
    assert Pace().watch_timeout_s * 1.33 < Pace().silence_limit_s


def test_failures_in_a_row_wait_at_most_five_seconds() -> None:
    assert Pace().retry_limit_s == 5.0


def test_an_expired_version_is_listed_anew_in_less_than_a_second() -> None:
    assert Pace().relist_jitter_s < 1.0


def test_a_watch_that_stood_for_a_second_has_not_failed() -> None:
    assert Pace().short_watch_s == 1.0


def test_a_history_that_went_back_is_noticed_within_two_minutes_however_slowly_the_server_answers() -> (
    None
):
    assert Pace().history_check_s * 1.33 + Pace().opening_timeout_s < 120.0
