"""Reviewer: the one question that this room may ask Kubernetes, and how it is asked sparingly."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from router.errors import AuthUnavailable
from router.tasks import TaskSet

logger = logging.getLogger("sandbox_router.auth")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _NoAnswer(NamedTuple):
    """Why a call has no answer, for the log."""

    reason: str


class Reviewer(Protocol):
    """Creates review objects at the API server."""

    async def review(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the created TokenReview or SubjectAccessReview (`body["kind"]` says which). Raises AuthUnavailable."""
        ...


class SharedCalls(Generic[K, V]):
    """Runs one call per key at a time, however many ask, and a bounded number of calls in all.

    A waiter that goes away leaves the call to the others. No answer within `timeout_s`, waiting for a turn included, or
    too many calls waiting (in all, or of one `share`), is AuthUnavailable for everybody who waits.
    """

    def __init__(
        self,
        *,
        name: str,
        max_running: int = 16,
        max_waiting: int = 512,
        max_per_share: int | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        self._name = name
        self._max_waiting = max_waiting
        self._max_per_share = max_per_share
        self._timeout_s = timeout_s
        self._turns = asyncio.Semaphore(max_running)
        self._calls: dict[K, asyncio.Future[V | _NoAnswer]] = {}
        self._by_share: Counter[Hashable] = Counter()
        self._tasks = TaskSet()
        self.calls_started = 0
        self.calls_failed = 0

    def __repr__(self) -> str:
        return f"<SharedCalls {self._name} running={len(self._calls)} started={self.calls_started}>"

    async def ask(self, key: K, call: Callable[[], Awaitable[V]], *, share: Hashable = None) -> V:
        """Returns what `call` returns, made here or by an earlier asker for the same key. Raises AuthUnavailable.

        `share` is whose part of the places a new call takes, None for nobody's.
        """
        shared = self._calls.get(key)
        if shared is None:
            shared = self._begin(key, call, share)
        answer = await asyncio.shield(shared)
        if isinstance(answer, _NoAnswer):
            # A new one for each waiter: one instance raised in many tasks would collect all their tracebacks.
            raise self._unavailable(answer.reason)
        return answer

    def begin(self, key: K, call: Callable[[], Awaitable[V]]) -> None:
        """Makes the call without waiting for it, unless it runs already or there is no place for it."""
        if key not in self._calls:
            with contextlib.suppress(AuthUnavailable):
                self._begin(key, call, None)

    async def close(self) -> None:
        """Ends what still runs; whoever waits gets AuthUnavailable."""
        await self._tasks.close()

    def _begin(
        self, key: K, call: Callable[[], Awaitable[V]], share: Hashable
    ) -> asyncio.Future[V | _NoAnswer]:
        if len(self._calls) >= self._max_waiting:
            raise self._unavailable("too many calls are waiting")
        limit = self._max_per_share
        if limit is not None and share is not None and self._by_share[share] >= limit:
            raise self._unavailable("too many calls of this caller are waiting")
        shared: asyncio.Future[V | _NoAnswer] = asyncio.get_running_loop().create_future()
        try:
            self._tasks.start(self._run(key, call, shared, share), name=self._name)
        except RuntimeError:
            raise self._unavailable("shutting down") from None
        self._calls[key] = shared
        if share is not None:
            self._by_share[share] += 1
        return shared

    async def _run(
        self,
        key: K,
        call: Callable[[], Awaitable[V]],
        shared: asyncio.Future[V | _NoAnswer],
        share: Hashable,
    ) -> None:
        self.calls_started += 1
        answer: V | _NoAnswer = _NoAnswer("the call ended without an answer")
        try:
            async with asyncio.timeout(self._timeout_s), self._turns:
                answer = await call()
        except TimeoutError:
            answer = _NoAnswer(f"no answer within {self._timeout_s:g} s")
        except AuthUnavailable as error:
            answer = _NoAnswer(error.reason)
        finally:
            self._leave(share)
            self._end(key, shared, answer)

    def _end(self, key: K, shared: asyncio.Future[V | _NoAnswer], answer: V | _NoAnswer) -> None:
        """Hands the answer to everybody who waits; whatever happened, nobody waits for ever."""
        if isinstance(answer, _NoAnswer):
            self.calls_failed += 1
            logger.warning(
                "the API server did not answer a review",
                extra={"fields": {"review": self._name, "error": answer.reason}},
            )
        self._calls.pop(key, None)
        if not shared.done():
            shared.set_result(answer)

    def _leave(self, share: Hashable) -> None:
        if share is not None:
            self._by_share[share] -= 1
            if not self._by_share[share]:
                del self._by_share[share]

    def _unavailable(self, reason: str) -> AuthUnavailable:
        return AuthUnavailable(reason=f"{self._name}: {reason}")
