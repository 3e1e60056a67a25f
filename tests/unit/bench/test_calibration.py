"""The fixed piece of work."""

from __future__ import annotations

from bench import calibration


def test_a_calibration_is_this_threads_time_in_microseconds(monkeypatch) -> None:
    clock = iter((5_000_000, 5_200_000))
    monkeypatch.setattr(calibration.time, "thread_time_ns", lambda: next(clock))

    assert calibration.calibrate() == 200.0
