"""Pace: how patient a Reflector is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Durations in seconds."""

    page_size: int = 100
    """Objects a page: decoding one blocks the loop for 2 to 5 ms; ten times as many leave 10 MB of holes in the heap."""
    read_timeout_s: float = 60.0
    """Longest silence within a list."""
    opening_timeout_s: float = 30.0
    """Until a watch is answered at all. A server answers before there is an event, also where a proxy stands in between."""
    marker_timeout_s: float = 15.0
    """Longest silence within a streamed list. A server from before 1.27 that ignores the wish never marks the list's end."""
    watch_timeout_s: float = 120.0
    """After this, a third more or less, the server ends a watch. Bookmarks only come when something anywhere has changed, with
    older etcds every ten minutes: so the end of a quiet watch is what tells that it was alive."""
    silence_limit_s: float = 180.0
    """Longest silence of a watch: longer than its timeout, so only a half-open connection reaches it."""
    first_retry_s: float = 0.25
    retry_limit_s: float = 5.0
    relist_jitter_s: float = 0.5
    """A version that has expired leads to a new list within this time: many routers hear of it at one moment."""
    short_watch_s: float = 1.0
    """A watch that stood for so long has not failed, however it ended."""
    history_check_s: float = 45.0
    """Between two looks, a third more or less, at whether the server's history went back."""
