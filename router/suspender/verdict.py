"""The rules: may this Sandbox be suspended? Whatever isn't known for certain says no."""

from __future__ import annotations

import enum

from router.discovery.idle_timeout import NEVER
from router.suspender.candidates import Standing, Watched
from router.suspender.knowledge import Knowledge


class Verdict(enum.Enum):
    """Whether a Sandbox may be suspended, and if not, the first rule that says no."""

    IDLE = "idle"
    """It may."""
    NEVER = "never"
    NOT_AT_WORK = "not_at_work"
    READY_TIME_UNKNOWN = "ready_time_unknown"
    CHANGED_RECENTLY = "changed_recently"
    """It became ready, was claimed or was annotated less than its idle time ago; or the suspender began to watch it then."""
    NOT_WATCHED_LONG_ENOUGH = "not_watched_long_enough"
    """Within its idle time a router started or ended, or the suspender started: activity may have gone unseen."""
    ACTIVE = "active"
    KEPT_AWAKE = "kept_awake"


def judge(watched: Watched, knowledge: Knowledge) -> Verdict:
    """Returns the verdict as of the moment at which the routers were asked."""
    candidate, now = watched.candidate, knowledge.asked_at
    if candidate.idle_timeout_s == NEVER:
        return Verdict.NEVER
    if candidate.standing is not Standing.AT_WORK:
        return Verdict.NOT_AT_WORK
    if candidate.ready_since is None:
        return Verdict.READY_TIME_UNKNOWN
    idle_since = now - candidate.idle_timeout_s
    if watched.unchanged_since > idle_since:
        return Verdict.CHANGED_RECENTLY
    if knowledge.complete_since > idle_since:
        return Verdict.NOT_WATCHED_LONG_ENOUGH
    if knowledge.last_activity(candidate.ref) > idle_since:
        return Verdict.ACTIVE
    if knowledge.awake_until(candidate.ref) > now:
        return Verdict.KEPT_AWAKE
    return Verdict.IDLE
