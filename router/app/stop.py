"""Stop: the wish that the router ends, and work that it cuts short."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any


class Stop:
    """The wish to stop: first gently, then at once."""

    def __init__(self) -> None:
        self.gently = asyncio.Event()
        self.at_once = asyncio.Event()

    def ask(self) -> None:
        """A first call drains, a second one ends."""
        (self.at_once if self.gently.is_set() else self.gently).set()

    def insist(self) -> None:
        """Ends at once, whatever was asked before."""
        self.gently.set()
        self.at_once.set()


async def unless_stopped(building: Coroutine[Any, Any, None], stop: Stop) -> bool:
    """Returns True when it was built, False when the wish to stop came first: some of it waits for other programs."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(building)
    wish = loop.create_task(stop.gently.wait())
    try:
        await asyncio.wait((task, wish), return_when=asyncio.FIRST_COMPLETED)
    finally:
        wish.cancel()
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return not task.cancelled() and not stop.gently.is_set()
