"""TokenBucket: so many a second, with bursts; whoever comes too early is told when its turn is."""

from __future__ import annotations


class TokenBucket:
    """Holds tokens that come back at `rate` a second, up to `burst`; they may be taken in advance, each for its own time.

    One number is all it keeps: the time at which it will be full again. All times are seconds of the caller's clock.
    """

    __slots__ = ("_full_at", "_interval_s", "_slack_s")

    def __init__(self, *, rate: float, burst: float) -> None:
        self._interval_s = 1.0 / rate
        self._slack_s = (max(1.0, burst) - 1.0) * self._interval_s
        self._full_at = 0.0

    def __repr__(self) -> str:
        return f"<TokenBucket rate={1 / self._interval_s:g} full_at={self._full_at:g}>"

    def next_at(self, now: float) -> float:
        """Returns when the next token is there: `now`, or later."""
        return max(now, self._full_at - self._slack_s)

    def take(self, now: float) -> float:
        """Takes the next token. Returns when it is there, which is what whoever took it has to wait for."""
        at = self.next_at(now)
        self._full_at = max(self._full_at, now) + self._interval_s
        return at

    def is_full(self, now: float) -> bool:
        """Returns True when it is as good as new."""
        return self._full_at <= now
