from __future__ import annotations

from router.discovery.backoff import Backoff


def highest(low: float, high: float) -> float:
    return high


def lowest(low: float, high: float) -> float:
    return low


def test_waits_double_up_to_the_limit() -> None:
    backoff = Backoff(initial_s=0.5, limit_s=4.0, uniform=highest)

    assert [backoff.next_s() for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_the_first_wait_may_be_none_and_later_ones_at_least_half() -> None:
    backoff = Backoff(initial_s=0.5, limit_s=4.0, uniform=lowest)

    assert [backoff.next_s() for _ in range(4)] == [0.0, 0.5, 1.0, 2.0]


def test_success_starts_over() -> None:
    backoff = Backoff(initial_s=0.5, limit_s=4.0, uniform=highest)
    backoff.next_s()
    backoff.next_s()

    backoff.reset()

    assert backoff.next_s() == 0.5


def test_what_the_server_asks_for_is_waited_and_then_spread() -> None:
    backoff = Backoff(initial_s=0.5, limit_s=4.0, uniform=highest)

    assert backoff.next_s(at_least_s=7.0) == 7.5


def test_an_absurd_request_of_the_server_is_bounded() -> None:
    backoff = Backoff(initial_s=0.5, limit_s=4.0, uniform=lowest)

    assert backoff.next_s(at_least_s=86_400.0) == 120.0


def test_a_thousand_failures_do_not_overflow() -> None:
    backoff = Backoff(initial_s=0.5, limit_s=30.0, uniform=highest)

    assert [backoff.next_s() for _ in range(1000)][-1] == 30.0
