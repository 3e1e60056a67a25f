"""WakeTroubles: which calls that wake sandboxes failed, for whom that counts, and until when none is tried again."""

from __future__ import annotations

import math
import random
from typing import Final

from router.proxy.ports import WakeFailed

_MOST_TROUBLES: Final = 4096
_OWN_BACKOFF_S: Final = (1.0, 30.0)
_COMMON_BACKOFF_S: Final = (0.5, 10.0)


class Trouble:
    """Failures in a row, and until when (clock) nothing is tried again."""

    __slots__ = ("failed_at", "failures", "is_refusal", "reason", "until")

    def __init__(self, *, is_refusal: bool) -> None:
        self.is_refusal = is_refusal
        """What was refused is refused again; what nobody answered may be answered in time."""
        self.failed_at = -math.inf
        self.failures = 0
        self.until = 0.0
        self.reason = ""

    def add(self, now: float, failure: WakeFailed, first_s: float, longest_s: float) -> None:
        """Notes one more failure."""
        if now > self.until + longest_s:
            self.failures = 0
        pause_s = min(longest_s, first_s * 2.0 ** min(self.failures, 16))
        pause_s *= random.uniform(0.75, 1.25)  # noqa: S311 - jitter, not a secret
        self.failures += 1
        self.failed_at = now
        self.reason = failure.reason
        self.until = now + max(pause_s, min(failure.at_least_s, longest_s))


class WakeTroubles:
    """A refusal concerns its sandbox, a server that fails concerns a namespace, or all when others fail there too."""

    def __init__(self) -> None:
        self._of_sandboxes: dict[str, Trouble] = {}
        self._of_namespaces: dict[str, Trouble] = {}
        self._common = Trouble(is_refusal=False)
        self._went_well_at = -math.inf

    def __len__(self) -> int:
        return len(self._of_sandboxes)

    def find(self, sandbox: str, namespace: str, now: float) -> Trouble | None:
        """Returns what keeps this sandbox from being tried now, None when nothing does."""
        own = self._of_sandboxes.get(sandbox)
        if own is not None and own.until > now:
            return own
        common, others = self._common, self._of_namespaces.get(namespace)
        if others is not None and others.until > max(now, common.until):
            return others
        return common if common.until > now else None

    def went_well(self, sandbox: str, namespace: str, now: float) -> None:
        """Forgets what stood in this sandbox's way."""
        self._of_sandboxes.pop(sandbox, None)
        self._of_namespaces.pop(namespace, None)
        self._common = Trouble(is_refusal=False)
        self._went_well_at = now

    def failed(self, sandbox: str, namespace: str, now: float, failure: WakeFailed) -> Trouble:
        """Notes a failed call. Returns the trouble that it belongs to."""
        if not failure.concerns_all:
            trouble = _kept(self._of_sandboxes, sandbox, now, is_refusal=True)
            trouble.add(now, failure, *_OWN_BACKOFF_S)
            return trouble
        own = _kept(self._of_namespaces, namespace, now, is_refusal=False)
        own.add(now, failure, *_COMMON_BACKOFF_S)
        # A webhook may fail for one tenant's objects alone: only when nothing went well since another's failure, all wait.
        is_common = failure.at_least_s > 0.0 or any(
            other is not own and other.failed_at > self._went_well_at
            for other in self._of_namespaces.values()
        )
        if not is_common:
            return own
        self._common.add(now, failure, *_COMMON_BACKOFF_S)
        return self._common


def _kept(troubles: dict[str, Trouble], key: str, now: float, *, is_refusal: bool) -> Trouble:
    """Returns the trouble of that key; over the bound those that are over are forgotten."""
    if key not in troubles and len(troubles) >= _MOST_TROUBLES:
        for known in [each for each, trouble in troubles.items() if trouble.until <= now]:
            del troubles[known]
    return troubles.setdefault(key, Trouble(is_refusal=is_refusal))
