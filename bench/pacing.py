"""Calls back on a fixed schedule, by a kernel timer finer than an event loop's."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Pacer:
    """A timerfd in the event loop: due(moment_ns) is called once for every slot of the schedule.

    A loop that comes late gets the missed slots at once, each with the moment it was due.
    """

    def __init__(self, rate_per_s: int, due: Callable[[int], None]) -> None:
        self._interval_ns = 1_000_000_000 // rate_per_s
        self._due = due
        self._fd = -1
        self._next_ns = 0

    def start(self) -> None:
        self._fd = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        step = _Timespec(*divmod(self._interval_ns, 1_000_000_000))
        self._next_ns = time.monotonic_ns() + self._interval_ns
        if _libc.timerfd_settime(self._fd, 0, ctypes.byref(_Itimerspec(step, step)), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        asyncio.get_running_loop().add_reader(self._fd, self._on_expired)

    def stop(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _on_expired(self) -> None:
        for _ in range(int.from_bytes(os.read(self._fd, 8), "little")):
            moment_ns = self._next_ns
            self._next_ns += self._interval_ns
            self._due(moment_ns)
