"""A bucket lets a burst through at once and then one after the other, whenever its tokens are taken."""

from __future__ import annotations

import pytest

from router.proxy.token_bucket import TokenBucket


def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    bucket = TokenBucket(rate=10, burst=3)
    assert [bucket.take(100.0) for _ in range(5)] == pytest.approx(
        [100.0, 100.0, 100.0, 100.1, 100.2]
    )


def test_tokens_come_back_with_time_and_never_more_than_the_burst() -> None:
    bucket = TokenBucket(rate=10, burst=2)
    for _ in range(2):
        bucket.take(0.0)
    assert not bucket.is_full(0.05)
    assert bucket.next_at(0.1) == pytest.approx(0.1)
    assert bucket.is_full(1000.0)
    assert [bucket.take(1000.0) for _ in range(3)] == pytest.approx([1000.0, 1000.0, 1000.1])


def test_looking_takes_nothing() -> None:
    bucket = TokenBucket(rate=1, burst=1)
    assert bucket.next_at(5.0) == bucket.next_at(5.0) == 5.0
    assert bucket.take(5.0) == 5.0
    assert bucket.next_at(5.0) == 6.0


def test_a_rate_below_one_a_second_still_has_one_token() -> None:
    bucket = TokenBucket(rate=0.25, burst=0.5)
    assert [bucket.take(0.0), bucket.take(0.0)] == [0.0, 4.0]


def test_it_says_what_it_is() -> None:
    assert "rate=2" in repr(TokenBucket(rate=2, burst=4))
