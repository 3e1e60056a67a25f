"""Puts what is measured before other programs, where that is allowed."""

from __future__ import annotations

import os

REALTIME = os.SCHED_RR
"""Niceness is not enough: many kernels share out time by sessions first, and niceness counts only inside of one (sched(7))."""


def hurry() -> bool:
    """Gives this process, and those it starts from now on, each core whenever they want it. Returns False where only root may.

    The kernel leaves other programs a twentieth.
    """
    try:
        os.sched_setscheduler(0, REALTIME, os.sched_param(1))
    except PermissionError:
        return False
    return True


def is_in_a_hurry() -> bool:
    return os.sched_getscheduler(0) == REALTIME
