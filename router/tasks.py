"""TaskSet: an owner for tasks that begin one at a time and must never be forgotten."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger("sandbox_router.tasks")


class TaskSet:
    """Holds running tasks, logs the ones that fail, and ends them all in close().

    A TaskGroup ends as a whole when one child fails; here one failed request must not end the others.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        return f"<TaskSet running={len(self._tasks)} closed={self._closed}>"

    def start(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Returns the running task. Raises RuntimeError once the set is closed."""
        if self._closed:
            coroutine.close()
            raise RuntimeError("the task set is closed")
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancels what still runs and waits until it has ended."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("task failed", exc_info=error, extra={"fields": {"task": task.get_name()}})
