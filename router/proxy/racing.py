"""Several addresses of one sandbox, tried side by side; the first that answers wins (RFC 8305)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from router.errors import RouterError
from router.routing.names import Unresolved

STAGGER_S: Final = 0.25
"""How long an address has for itself before the next one is tried too (RFC 8305 §5)."""
T = TypeVar("T")


class ConnectFailed(Exception):
    """One round of dialling an endpoint's addresses failed.

    `reason` is from UPSTREAM_ERRORS. `dead_address` is the address of a host that does not answer at all, "" when the
    host is alive (a refused port) or was not given its time.
    """

    def __init__(
        self,
        reason: str,
        detail: str,
        *,
        dead_address: str = "",
        unresolved: Unresolved | None = None,
    ) -> None:
        self.unresolved = unresolved
        """Why the sandbox's name has no address to dial, where that is what failed."""
        self.reason = reason
        self.detail = detail
        self.dead_address = dead_address
        super().__init__(detail)


async def first_of(
    dials: Sequence[Callable[[], Awaitable[T]]], *, stagger_s: float, discard: Callable[[T], None]
) -> T:
    """Returns what the first dial to succeed returns; each begins `stagger_s` after the one before, or when that has failed.

    What others return later is given to `discard`. Raises the failure that says most when all fail, and a RouterError at once.
    """
    if len(dials) == 1:
        return await dials[0]()
    race = _Race(discard)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = []
            for dial in dials:
                tasks.append(group.create_task(race.run(dial)))
                await race.news(stagger_s)
                if race.is_over:
                    break
            while not race.is_over and race.failed_count < len(tasks):
                await race.news(None)
            for task in tasks:
                task.cancel()
    except BaseException:
        for result in race.results:
            discard(result)
        raise
    return race.outcome()


class _Race(Generic[T]):
    """Dials that run side by side, and how they ended."""

    def __init__(self, discard: Callable[[T], None]) -> None:
        self._discard = discard
        self._news = asyncio.Event()
        self.results: list[T] = []
        self._failure: ConnectFailed | None = None
        self._refusal: RouterError | None = None
        self.failed_count = 0

    @property
    def is_over(self) -> bool:
        return bool(self.results) or self._refusal is not None

    async def run(self, dial: Callable[[], Awaitable[T]]) -> None:
        try:
            result = await dial()
        except ConnectFailed as exc:
            self.failed_count += 1
            if self._failure is None or not (
                exc.reason == "connect_timeout" and self._failure.dead_address
            ):
                self._failure = exc
        except RouterError as exc:
            self._refusal = exc
        else:
            if self.results:
                self._discard(result)
            else:
                self.results.append(result)
        self._news.set()

    async def news(self, timeout_s: float | None) -> None:
        """Waits until a dial has ended, or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    def outcome(self) -> T:
        if self.results:
            return self.results[0]
        raise (
            self._refusal or self._failure or ConnectFailed("connect_error", "nothing was dialled")
        )


async def done_within(changed: asyncio.Future[None], limit_s: float) -> bool:
    """Returns True when the future is done by then. Raises its error."""
    try:
        async with asyncio.timeout(limit_s):
            await changed
    except TimeoutError:
        pass
    return changed.done() and not changed.cancelled()
