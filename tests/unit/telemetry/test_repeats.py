import logging

import pytest

from router.telemetry.repeats import Repeats


@pytest.fixture
def repeats():
    return Repeats(first=3, window_s=10.0)


def record(message, *, level=logging.WARNING, logger="sandbox_router.tests"):
    return logging.LogRecord(logger, level, "", 0, message, None, None)


def admitted(repeats, message, times, now=0.0):
    return sum(repeats.admits(record(message), now) for _ in range(times))


def test_the_first_of_a_kind_are_written_and_the_rest_is_counted(repeats):
    assert admitted(repeats, "lost", 343) == 3
    assert repeats.left_out == 340


def test_kinds_do_not_share_their_places(repeats):
    admitted(repeats, "lost", 100)

    assert repeats.admits(record("found"), 0.0)
    assert repeats.admits(record("lost", level=logging.ERROR), 0.0)
    assert repeats.admits(record("lost", logger="sandbox_router.other"), 0.0)


def test_a_count_is_due_at_the_end_of_its_window_and_not_before(repeats):
    admitted(repeats, "lost", 5, now=100.0)

    assert repeats.next_at() == 110.0
    assert repeats.due(109.9) == []
    [count] = repeats.due(110.0)
    assert count.getMessage() == "lost ... and 2 more in the last 10 s"
    assert count.fields == {"more": 2, "within_s": 10}
    assert (count.name, count.levelno) == ("sandbox_router.tests", logging.WARNING)


def test_a_count_is_said_once(repeats):
    admitted(repeats, "lost", 5)
    repeats.due(10.0)

    assert repeats.due(20.0) == []
    assert repeats.rest(20.0) == []
    assert repeats.next_at() is None


def test_while_it_goes_on_there_is_one_example_and_one_count_a_window(repeats):
    admitted(repeats, "lost", 100)
    repeats.due(10.0)

    assert admitted(repeats, "lost", 100, now=11.0) == 1
    [count] = repeats.due(20.0)
    assert count.getMessage() == "lost ... and 99 more in the last 10 s"


def test_after_a_quiet_window_the_first_ones_are_written_again(repeats):
    admitted(repeats, "lost", 100)
    repeats.due(10.0)
    repeats.due(20.0)

    assert admitted(repeats, "lost", 100, now=30.0) == 3


def test_a_late_count_says_the_time_that_it_is_about(repeats):
    admitted(repeats, "lost", 5)

    [count] = repeats.due(64.0)
    assert count.getMessage() == "lost ... and 2 more in the last 64 s"


def test_at_the_end_the_rest_is_said_before_its_time(repeats):
    admitted(repeats, "lost", 5)
    admitted(repeats, "seldom", 1)

    [count] = repeats.rest(2.0)
    assert count.getMessage() == "lost ... and 2 more in the last 2 s"


def test_a_library_that_puts_strangers_words_into_its_messages_cannot_fill_the_memory():
    repeats = Repeats(first=3, max_kinds=5)

    written = sum(repeats.admits(record(f"message {number}"), 0.0) for number in range(1000))

    assert repr(repeats) == "<Repeats kinds=6 left_out=992>"
    assert written == 5 + 3
    [count] = repeats.due(10.0)
    assert count.getMessage() == "further messages ... and 992 more in the last 10 s"
