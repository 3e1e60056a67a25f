"""Background: the tasks that run as long as a worker does; one that fails is a failure of the whole."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any


class Background:
    """Tasks without an end of their own. Make one with background(), which ends them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def until(self, event: asyncio.Event) -> None:
        """Returns when the event is set. Raises what a task failed with, whenever it was started."""
        wish: asyncio.Task[Any] = asyncio.get_running_loop().create_task(event.wait())
        try:
            await asyncio.wait((wish, self._failure), return_when=asyncio.FIRST_COMPLETED)
        finally:
            wish.cancel()
        if self._failure.done():
            raise self._failure.result()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or self._failure.done():
            return
        error = task.exception()
        if error is not None:
            self._failure.set_result(error)


@contextlib.asynccontextmanager
async def background() -> AsyncIterator[Background]:
    """Yields the owner of background tasks, which are cancelled in the end."""
    tasks = Background()
    try:
        yield tasks
    finally:
        await tasks.close()
