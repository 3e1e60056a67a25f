"""Resolver: remembers names for seconds, asks one question per name at a time, and lets no tenant's slow names delay another's."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from router.discovery.name_servers import Answer
from router.routing.addresses import is_never_a_sandbox
from router.routing.names import NameNotResolved, Unresolved
from router.tasks import TaskSet

_MAX_REMEMBERED: Final = 4096
_MAX_QUESTIONS: Final = 256
"""Each takes two sockets."""
_SHORTEST_S: Final = 1.0
_LONGEST_S: Final = 5.0
"""A pod that is replaced has another address: what DNS allows longer than this is not taken."""
_FAILURE_S: Final = 1.0
"""A sandbox that is just being made must not stay unknown, nor a server in trouble be asked by every request."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of asking for a name: addresses, or a failure."""

    addresses: tuple[str, ...]
    failure: Unresolved | None
    detail: str
    keep_s: float

    @property
    def kind(self) -> str:
        """`answered`, or the value of an Unresolved."""
        return "answered" if self.failure is None else self.failure.value

    def told(self) -> list[str]:
        if self.failure is not None:
            raise NameNotResolved(self.failure, self.detail)
        return list(self.addresses)


class _Question:
    """One name that is being asked for; everyone who wants it waits for the same answer."""

    __slots__ = ("began_at", "name", "outcome", "tenant")

    def __init__(self, name: str, tenant: str) -> None:
        self.name = name
        self.tenant = tenant
        self.began_at = time.monotonic()
        self.outcome: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()

    def settle(self, outcome: _Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class CachingResolver:
    """A routing.names.Resolver in front of name servers."""

    def __init__(
        self,
        *,
        ask: Callable[[str], Awaitable[Answer]],
        allow_loopback: bool,
        on_lookup: Callable[[str, float], None] = lambda how, took_s: None,
        max_questions: int = _MAX_QUESTIONS,
        max_remembered: int = _MAX_REMEMBERED,
    ) -> None:
        """`allow_loopback` is for names that the operator wrote; a name that a client chose must not lead to this host.

        `on_lookup` hears how each lookup ended (`answered`, an Unresolved's value, or `given_up`) and how many seconds it took.
        """
        self._on_lookup = on_lookup
        self._ask = ask
        self._allow_loopback = allow_loopback
        self._max_questions = max_questions
        self._max_remembered = max_remembered
        self._remembered: OrderedDict[str, tuple[float, _Outcome]] = OrderedDict()
        """Outcomes with the time at which they were learnt."""
        self._open: dict[str, _Question] = {}
        self._tenants: dict[str, dict[str, asyncio.Task[None]]] = {}
        """The questions under way by tenant, the oldest first."""
        self._tasks = TaskSet()

    def __repr__(self) -> str:
        return f"<CachingResolver remembered={len(self._remembered)} asking={len(self._open)}>"

    async def close(self) -> None:
        """Gives up what is being asked."""
        await self._tasks.close()

    async def resolve(self, name: str, *, deadline: float) -> list[str]:
        """Returns the name's addresses, all of them fit to be dialled. Raises NameNotResolved.

        Takes until `deadline` (seconds of time.monotonic()) at most; the question itself goes on, for those who ask next.
        """
        now = time.monotonic()
        remembered = self._remembered.get(name)
        if remembered is not None and now < remembered[0] + remembered[1].keep_s:
            return remembered[1].told()
        question = self._open.get(name) or self._begin(name)
        try:
            async with asyncio.timeout(deadline - now):
                outcome = await asyncio.shield(question.outcome)
        except TimeoutError as exc:
            raise NameNotResolved(
                Unresolved.UNANSWERED, f"{name}: the name servers did not answer in time"
            ) from exc
        return outcome.told()

    def forget(self, name: str) -> None:
        """Drops what is remembered of a name whose address did not answer, unless it was learnt within a second."""
        remembered = self._remembered.get(name)
        if remembered is not None and time.monotonic() >= remembered[0] + _SHORTEST_S:
            del self._remembered[name]

    def _begin(self, name: str) -> _Question:
        if len(self._open) >= self._max_questions:
            self._give_up_one()
        question = _Question(name, _tenant_of(name))
        self._open[name] = question
        task = self._tasks.start(self._answer(question), name=f"resolve {name}")
        self._tenants.setdefault(question.tenant, {})[name] = task
        return question

    def _give_up_one(self) -> None:
        """Makes room: whoever has most questions under way loses the oldest of them."""
        tenant = max(self._tenants, key=lambda each: len(self._tenants[each]))
        name = next(iter(self._tenants[tenant]))
        self._tenants[tenant][name].cancel()
        question = self._open[name]
        self._ended(question, "given_up")
        question.settle(
            _Outcome((), Unresolved.UNANSWERED, f"{name}: too many names are being asked for", 0)
        )

    async def _answer(self, question: _Question) -> None:
        outcome = _Outcome((), Unresolved.UNANSWERED, f"{question.name}: asking for it failed", 0)
        try:
            outcome = await self._outcome(question.name)
            self._remember(question.name, outcome)
        finally:
            if self._open.get(question.name) is question:
                self._ended(question, outcome.kind)
            question.settle(outcome)

    async def _outcome(self, name: str) -> _Outcome:
        try:
            answer = await self._ask(name)
        except NameNotResolved as exc:
            return _Outcome((), exc.why, str(exc), _FAILURE_S)
        keep_s = min(max(answer.ttl_s, _SHORTEST_S), _LONGEST_S)
        for address in answer.addresses:
            if is_never_a_sandbox(address, allow_loopback=self._allow_loopback):
                detail = f"{name} resolves to {address}, which can't be a sandbox's address"
                return _Outcome((), Unresolved.REFUSED, detail, keep_s)
        return _Outcome(answer.addresses, None, "", keep_s)

    def _remember(self, name: str, outcome: _Outcome) -> None:
        self._remembered[name] = (time.monotonic(), outcome)
        self._remembered.move_to_end(name)
        if len(self._remembered) > self._max_remembered:
            self._remembered.popitem(last=False)

    def _ended(self, question: _Question, how: str) -> None:
        self._on_lookup(how, time.monotonic() - question.began_at)
        del self._open[question.name]
        questions = self._tenants[question.tenant]
        del questions[question.name]
        if not questions:
            del self._tenants[question.tenant]


def _tenant_of(name: str) -> str:
    """Returns whose name it is: all after the first label, which in a cluster is the namespace's domain."""
    return name.partition(".")[2]
