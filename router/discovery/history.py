"""History: notices that the API server's store was restored from a backup, also when the server keeps silent about it.

A watch from a version that the server doesn't know yet is no error to Kubernetes: it stays open and silent until the new
history has grown past it, and then goes on with the wrong one. Only asking for the newest version tells.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from router.kube.api_client import ApiError

logger = logging.getLogger("sandbox_router.discovery")


class Watch(Protocol):
    """One watch, as far as it is looked after here (a Reflector)."""

    newest_version: int

    async def current_version(self) -> int:
        """Asks the server for its newest version, 0 when that is no number. Raises ApiError."""
        ...

    def distrust(self, reason: str) -> None:
        """Has a new list come next."""


class HistoryCheck:
    """Looks at one resource's watches: all of them if it is watched in several namespaces, for versions are the store's."""

    def __init__(
        self,
        *,
        watches: Sequence[Watch],
        interval_s: float,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._watches = watches
        self._interval_s = interval_s
        self._uniform = uniform

    def __repr__(self) -> str:
        return f"<HistoryCheck of {len(self._watches)} watches>"

    async def run(self) -> None:
        """Looks every `interval_s` seconds, a third more or less, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s * self._uniform(0.67, 1.33))
            await self.look()

    async def look(self) -> None:
        """Distrusts each watch that has seen a higher version than the server is at."""
        seen = [(watch, watch.newest_version) for watch in self._watches if watch.newest_version]
        if not seen:
            return
        try:
            current = await seen[0][0].current_version()
        except ApiError as error:
            # The watch itself tells of a server that is away.
            logger.debug("history not checked", extra={"fields": {"reason": str(error)}})
            return
        for watch, version in seen:
            if 0 < current < version:
                watch.distrust(went_back(current, version))


def went_back(current: int, seen: int) -> str:
    """Returns the words for a server that is at an older version than was seen before."""
    return f"the server's history went back: it is at version {current}, {seen} was seen"
