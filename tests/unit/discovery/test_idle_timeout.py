from __future__ import annotations

import pytest

from router.discovery.idle_timeout import NEVER, read_idle_timeout


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1800.0), ("45", 45.0), (" 2h ", 7200.0), ("0", NEVER), ("off", NEVER)],
)
def test_it_is_a_duration_as_settings_take_it(text: str, seconds: float) -> None:
    assert read_idle_timeout(text) == (seconds, "")


def test_no_annotation_means_never() -> None:
    assert read_idle_timeout(None) == (NEVER, "")


@pytest.mark.parametrize("value", ["soon", "1_000", "30 m", "-5m", "", 30, ["5m"], "1e3", "1d"])
def test_what_is_no_duration_means_never_and_is_named(value: object) -> None:
    seconds, complaint = read_idle_timeout(value)

    assert seconds == NEVER
    assert repr(value)[:10] in complaint
    assert "write" in complaint


def test_the_complaint_is_short_whatever_was_written() -> None:
    _, complaint = read_idle_timeout("x" * 10_000)

    assert len(complaint) < 200
