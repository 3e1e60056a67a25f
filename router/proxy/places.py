"""Places: how many connections of the pod's limit are taken, here and by other workers."""

from __future__ import annotations

from typing import Final

from router.routing.elsewhere import ALONE, Elsewhere

_TAKEN: Final = "taken"
_SPARE: Final = "spare"


class Places:
    """Counts this worker's connections against a limit that all workers share.

    Any worker may take any place. One that finds the house full, holds less than its part and has nobody of its own to give up takes
    a place on credit, of those beyond another's part that are idle there; the other gives up as many within a moment.
    """

    def __init__(
        self, *, limit: int, here: int = 0, workers: int = 1, elsewhere: Elsewhere = ALONE
    ) -> None:
        """`limit` is the pod's, `here` what this process can have at most; 0 means none."""
        self.limit = limit
        self.taken = 0
        """By connections of this worker."""
        self._here = here
        self._part = -(-limit // workers)
        self._spare = 0
        self._elsewhere = elsewhere
        self.is_shared = elsewhere is not ALONE

    def __repr__(self) -> str:
        return f"<Places taken={self.taken} limit={self.limit}>"

    def take(self) -> None:
        self.taken += 1
        self._elsewhere.add(_TAKEN, 1)

    def free(self) -> None:
        self.taken -= 1
        self._elsewhere.add(_TAKEN, -1)

    def is_full(self) -> bool:
        """Returns True when there is no place for one more."""
        if self._here and self.taken >= self._here:
            return True
        return self.limit > 0 and self._over() >= 0

    def may_borrow(self) -> bool:
        """Returns True when another worker, which has more than its part, can give up what a newcomer takes here."""
        if not self.is_shared or self.taken >= self._part or 0 < self._here <= self.taken:
            return False
        return self._over() < self._elsewhere.others(_SPARE)

    def owed(self) -> int:
        """Returns how many connections this worker has to give up, since others took places on credit."""
        if not self.is_shared or self.taken <= self._part:
            return 0
        return max(0, min(self._over(), self.taken - self._part))

    def offer(self, idle: int) -> None:
        """Tells other workers how many connections could be given up here; none while there are places for all."""
        spare = max(0, min(idle, self.taken - self._part)) if self.is_full() else 0
        if spare != self._spare:
            self._elsewhere.add(_SPARE, spare - self._spare)
            self._spare = spare

    def _over(self) -> int:
        """Returns how many more connections the pod has than its limit; below 0 there are places left."""
        return self.taken + self._elsewhere.others(_TAKEN) - self.limit
