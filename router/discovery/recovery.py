"""Recovery: what one watch learns of the API server's return, the others that wait for it know at once."""

from __future__ import annotations

import asyncio
import random

SPREAD_S = 0.25
"""Who is woken comes within this time, so that hundreds of namespaces don't ask at one moment."""


class Recovery:
    """Shared by the watches of one API server; each waits here for its next try."""

    def __init__(self) -> None:
        self._told = asyncio.Event()

    def tell(self) -> None:
        """Notes that the server answers again."""
        told, self._told = self._told, asyncio.Event()
        told.set()

    async def wait(self, limit_s: float) -> None:
        """Returns after `limit_s`, or soon after tell()."""
        told = self._told
        try:
            async with asyncio.timeout(limit_s):
                await told.wait()
                await asyncio.sleep(random.uniform(0.0, SPREAD_S))  # noqa: S311 - jitter, not a secret
        except TimeoutError:
            pass
