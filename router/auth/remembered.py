"""RememberedAnswers: what the API server answered about callers, and who still gets an answer while it is slow, flooded or away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from cachetools import LRUCache

from router.auth.review import SharedCalls
from router.errors import AuthUnavailable

PROBE_INTERVAL_S: Final = 1.0
"""How often the API server is asked again while remembered answers serve in its absence."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Answer(NamedTuple, Generic[V]):
    """An answer with how long it is believed, in seconds of the clock that is used."""

    value: V
    is_yes: bool
    until: float
    """Until then it is given without asking."""
    latest: float
    """Nothing makes a yes last longer than this, not even the API server's absence."""


class RememberedAnswers(Generic[K, V]):
    """Remembers answers, yes and no apart, and asks for those that it doesn't know.

    Whoever had a yes lately has a queue apart from strangers', and a memory that strangers' noes can't fill. While the
    API server does not answer, a yes is believed for `stale_s` longer.
    """

    def __init__(
        self,
        *,
        name: str,
        max_yes: int,
        max_no: int,
        stale_s: float,
        timeout_s: float,
        clock: Callable[[], float],
        max_per_share: int | None = None,
    ) -> None:
        self._clock = clock
        self._stale_s = stale_s
        self._yes: LRUCache[K, Answer[V]] = LRUCache(max_yes)
        self._no: LRUCache[K, Answer[V]] = LRUCache(max_no)
        self._known: SharedCalls[K, Answer[V]] = SharedCalls(name=name, timeout_s=timeout_s)
        self._strangers: SharedCalls[K, Answer[V]] = SharedCalls(
            name=name, timeout_s=timeout_s, max_per_share=max_per_share
        )
        self._is_away = False
        self._next_probe_at = 0.0
        self.stale_answers = 0
        """How often a remembered yes stood in for an answer that could not be had."""

    def __repr__(self) -> str:
        return (
            f"<RememberedAnswers yes={len(self._yes)} no={len(self._no)} away={self._is_away}"
            f" {self._known!r} {self._strangers!r}>"
        )

    @property
    def calls_started(self) -> int:
        """How many calls were made."""
        return self._known.calls_started + self._strangers.calls_started

    @property
    def calls_failed(self) -> int:
        """How many of them had no answer."""
        return self._known.calls_failed + self._strangers.calls_failed

    async def close(self) -> None:
        """Ends the calls that still run."""
        await self._known.close()
        await self._strangers.close()

    def fresh(self, key: K) -> Answer[V] | None:
        """Returns the answer that may be given without asking, if there is one."""
        found = self._yes.get(key)
        if found is None:
            found = self._no.get(key)
        return found if found is not None and self._clock() < found.until else None

    def stand_in(self, key: K, call: Callable[[], Awaitable[Answer[V]]]) -> Answer[V] | None:
        """Returns a yes that is believed because the API server was away just now; asks again meanwhile, once a second."""
        if not self._is_away:
            return None
        found = self._still_believed(key)
        if found is not None:
            now = self._clock()
            if now >= self._next_probe_at:
                self._next_probe_at = now + PROBE_INTERVAL_S
                self._known.begin(key, lambda: self._known_call(key, call))
            self.stale_answers += 1
        return found

    async def ask(
        self, key: K, call: Callable[[], Awaitable[Answer[V]]], *, share: Hashable = None
    ) -> V:
        """Returns what `call` answers, made here or by somebody who asked for the same key. Raises AuthUnavailable.

        `share` is whose part of the strangers' queue it takes.
        """
        if key not in self._yes:
            asked = self._strangers.ask(key, lambda: self._call(key, call), share=share)
            return (await asked).value
        try:
            return (await self._known.ask(key, lambda: self._known_call(key, call))).value
        except AuthUnavailable:
            found = self._still_believed(key)
            if found is None:
                raise
            self.stale_answers += 1
            return found.value

    def peek(self, key: K) -> Answer[V] | None:
        """Returns what is remembered, however old, for an explanation; changes nothing."""
        return self._yes.get(key) or self._no.get(key)

    def forget_noes(self) -> None:
        """Forgets every no."""
        self._no.clear()

    def replace(self, decide: Callable[[V], Answer[V] | None]) -> None:
        """Puts what `decide` returns in the place of each yes; None leaves it."""
        for key in list(self._yes):
            answer = decide(self._yes[key].value)
            if answer is not None:
                self._keep(key, answer)

    def _still_believed(self, key: K) -> Answer[V] | None:
        found = self._yes.get(key)
        if found is None:
            return None
        end = min(found.until + self._stale_s, found.latest)
        return found if self._clock() < end else None

    async def _known_call(self, key: K, call: Callable[[], Awaitable[Answer[V]]]) -> Answer[V]:
        """Makes a call that tells whether the API server is away; strangers' calls don't, or a flood of them could say so."""
        try:
            return await self._call(key, call)
        except (AuthUnavailable, asyncio.CancelledError):
            self._is_away = True
            raise

    async def _call(self, key: K, call: Callable[[], Awaitable[Answer[V]]]) -> Answer[V]:
        answer = await call()
        self._is_away = False
        self._keep(key, answer)
        return answer

    def _keep(self, key: K, answer: Answer[V]) -> None:
        self._yes.pop(key, None)
        self._no.pop(key, None)
        (self._yes if answer.is_yes else self._no)[key] = answer
