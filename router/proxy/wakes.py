"""Wakes: brings suspended sandboxes back, each once however many ask, at a bounded rate, and without a storm of calls."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final
from weakref import WeakValueDictionary

from router.errors import RouterError, WakeLimited, WakeUnavailable
from router.proxy.ports import Telemetry, WakeFailed, Waker
from router.proxy.token_bucket import TokenBucket
from router.proxy.wake_troubles import Trouble, WakeTroubles
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.tasks import TaskSet

logger = logging.getLogger("sandbox_router.wake")

_CALLS_AT_ONCE: Final = 4
_CALLS_AT_ONCE_PER_NAMESPACE: Final = 2
"""So that one whose calls hang, behind a webhook of its own perhaps, leaves turns for the others."""
_MOST_WAKES: Final = 4096
_MOST_NAMESPACES: Final = 1024
_LOOK_AGAIN_S: Final = 0.1
_CALL_AGAIN_S: Final = 5.0
"""After so long without a sign of the call's effect it is made again: its tests make that harmless."""
_RATES_ARE_USED_UP: Final = "wake-rate or wake-rate-per-namespace is used up"


class Ticket:
    """One request's interest in a wake."""

    __slots__ = ("_failed", "_wake", "_wakes", "until")

    def __init__(
        self, wakes: Wakes, wake: _Wake, until: float, failed: Callable[[RouterError], None]
    ) -> None:
        self._wakes = wakes
        self._wake = wake
        self._failed = failed
        self.until = until

    def changed(self) -> None:
        """Says that the sandbox changed: the wake looks at it now, since it may not stay as it is."""
        self._wakes._look(self._wake)

    def cancel(self) -> None:
        """Gives it up; the wake goes on."""
        self._wake.tickets.pop(self, None)

    def fail(self, error: RouterError) -> None:
        """Tells the request that it waits in vain."""
        self.cancel()
        self._failed(error)


class _Wake:
    """One sandbox on its way back."""

    __slots__ = (
        "begins_at",
        "by",
        "did",
        "endpoint",
        "failure",
        "is_called",
        "since",
        "tickets",
        "wanted_until",
        "was_ready",
        "was_up",
    )

    def __init__(
        self, endpoint: Endpoint, by: str, since: float, begins_at: float, until: float
    ) -> None:
        self.endpoint = endpoint
        self.by = by
        self.since = since
        self.begins_at = begins_at
        self.wanted_until = until
        self.is_called = False
        self.did: bool | None = None
        """Whether a call of this wake changed something, None until the first has been answered."""
        self.was_up = self.was_ready = False
        self.failure = "unavailable"
        self.tickets: dict[Ticket, None] = {}


class Wakes:
    """Takes each sandbox from the first request that wants it until it is ready; requests come, leave, and join.

    A wake is wanted for as long as the most patient request could wait, whether that stays or not: a person's browser leaves
    with a page and comes back. All times are seconds of `clock`; `pause` sleeps.
    """

    def __init__(
        self,
        *,
        waker: Waker,
        find: Callable[[SandboxRef], Endpoint | None],
        rate: float,
        rate_per_namespace: float,
        timeout_s: float,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`find` gives a sandbox as it is known now; rates are wakes a second, with bursts of twice as many."""
        self._waker = waker
        self._find = find
        self._bucket = TokenBucket(rate=rate, burst=2 * rate)
        self._rate_per_namespace = rate_per_namespace
        self._by_namespace: dict[str, TokenBucket] = {}
        self._timeout_s = timeout_s
        self._telemetry = telemetry
        self._clock = clock
        self._pause = pause
        self._wakes: dict[str, _Wake] = {}
        self._troubles = WakeTroubles()
        self._turns = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._turns_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._tasks = TaskSet()

    def __len__(self) -> int:
        return len(self._wakes)

    def __repr__(self) -> str:
        return f"<Wakes running={len(self._wakes)} troubles={len(self._troubles)}>"

    async def close(self) -> None:
        """Ends what still runs."""
        await self._tasks.close()

    # --- for requests -----------------------------------------------------------------------

    def want(
        self, endpoint: Endpoint, *, by: str, until: float, failed: Callable[[RouterError], None]
    ) -> Ticket:
        """Begins to wake the sandbox, or joins who does. Raises WakeLimited, WakeUnavailable when it can't be before `until`."""
        key = _key(endpoint)
        wake = self._wakes.get(key)
        if wake is None:
            wake = self._begin(key, endpoint, by, until)
        else:
            if not wake.is_called:
                self._check(endpoint, until, wake.begins_at)
            wake.wanted_until = max(wake.wanted_until, until)
            if wake.was_ready:
                # It was, before the call was answered, and is suspended again.
                wake.was_ready, wake.was_up = False, True
        ticket = Ticket(self, wake, until, failed)
        wake.tickets[ticket] = None
        return ticket

    def outlook(self, endpoint: Endpoint) -> str:
        """Returns what would come of wanting this sandbox now, for people; changes nothing."""
        key, now = _key(endpoint), self._clock()
        trouble = self._troubles.find(key, endpoint.ref.namespace, now)
        if trouble is not None:
            return f"the last wake failed ({trouble.reason}); the next try is in {trouble.until - now:.3g} s"
        wake = self._wakes.get(key)
        if wake is not None:
            return f"it is being woken since {now - wake.since:.3g} s, for {wake.by}"
        wait_s = self._turn_at(endpoint.ref.namespace, now) - now
        return (
            f"it would wait {wait_s:.3g} s for its turn (wake-rate)"
            if wait_s > 0
            else "it would be woken at once"
        )

    def _begin(self, key: str, endpoint: Endpoint, by: str, until: float) -> _Wake:
        now = self._clock()
        namespace = endpoint.ref.namespace
        self._check(endpoint, until, self._turn_at(namespace, now))
        if len(self._wakes) >= _MOST_WAKES:
            self._telemetry.wake_ended("limited", None)
            raise _limited(1.0, "too many wakes are under way")
        begins_at = self._bucket_of(namespace, now).take(now)
        wake = _Wake(endpoint, by, now, begins_at, until)
        try:
            self._tasks.start(self._run(key, wake), name="wake")
        except RuntimeError:
            raise WakeUnavailable(reason="shutting down") from None
        self._wakes[key] = wake
        return wake

    def _check(self, endpoint: Endpoint, until: float, turn_at: float) -> None:
        """Raises WakeUnavailable, WakeLimited when nothing can be tried before `until`."""
        now = self._clock()
        trouble = self._troubles.find(_key(endpoint), endpoint.ref.namespace, now)
        if trouble is not None and (trouble.is_refusal or trouble.until > until):
            raise _unavailable(trouble, now)
        if turn_at > until:
            self._telemetry.wake_ended("limited", None)
            raise _limited(turn_at - now, _RATES_ARE_USED_UP)

    # --- turns ------------------------------------------------------------------------------

    def _turn_at(self, namespace: str, now: float) -> float:
        return max(self._bucket.next_at(now), self._bucket_of(namespace, now).next_at(now))

    def _bucket_of(self, namespace: str, now: float) -> TokenBucket:
        bucket = self._by_namespace.get(namespace)
        if bucket is None:
            if len(self._by_namespace) >= _MOST_NAMESPACES:
                self._by_namespace = {
                    name: known
                    for name, known in self._by_namespace.items()
                    if not known.is_full(now)
                }
            rate = self._rate_per_namespace
            bucket = self._by_namespace[namespace] = TokenBucket(rate=rate, burst=2 * rate)
        return bucket

    async def _until(self, at: float) -> None:
        wait_s = at - self._clock()
        if wait_s > 0:
            await self._pause(wait_s)

    # --- one wake ---------------------------------------------------------------------------

    async def _run(self, key: str, wake: _Wake) -> None:
        outcome, reason = "not_ready", "the router shut down meanwhile"
        try:
            # A namespace's own turn comes before a turn of all is taken, so that a long queue holds up nobody else.
            await self._until(wake.begins_at)
            outcome, reason = await self._bring_back(key, wake)
        except (WakeLimited, WakeUnavailable) as error:
            is_limited = isinstance(error, WakeLimited)
            outcome, reason = "limited" if is_limited else wake.failure, error.reason
            for ticket in list(wake.tickets):
                ticket.fail(_again(error))
        finally:
            self._end(key, wake, outcome, reason)

    def _look(self, wake: _Wake) -> None:
        """Notes what has become of the sandbox; that it is ready is told before anybody is served."""
        endpoint = self._find(wake.endpoint.ref)
        if endpoint is None or endpoint.sandbox_uid != wake.endpoint.sandbox_uid:
            return
        if endpoint.state is State.READY:
            wake.was_ready = True
            if wake.did is not None:
                self._end(_key(wake.endpoint), wake, "woken" if wake.did else "already", "")
        elif endpoint.state is State.STARTING:
            wake.was_up = True

    def _end(self, key: str, wake: _Wake, outcome: str, reason: str) -> None:
        """Ends it, once: who wants the sandbox from now on begins another."""
        if self._wakes.get(key) is not wake:
            return
        del self._wakes[key]
        duration_s = self._clock() - wake.since
        is_up = outcome in ("woken", "already")
        self._telemetry.wake_ended(outcome, duration_s if is_up else None)
        fields = {
            "sandbox": str(wake.endpoint.ref),
            "for": wake.by,
            "outcome": outcome,
            "duration_s": round(duration_s, 3),
        }
        if is_up:
            logger.info("a request woke a sandbox", extra={"fields": fields})
        else:
            fields["reason"] = reason
            logger.warning("a sandbox was not woken", extra={"fields": fields})

    async def _bring_back(self, key: str, wake: _Wake) -> tuple[str, str]:
        """Calls until the sandbox is ready. Returns the outcome with its reason. Raises WakeLimited, WakeUnavailable."""
        while True:
            wake.was_up = False
            wake.did = await self._call(key, wake) or bool(wake.did)
            endpoint = await self._settled(wake)
            if wake.was_ready:
                return "woken" if wake.did else "already", ""
            if endpoint is None or endpoint.state is State.FINISHED:
                return "gone", "it has finished, or is another one now"
            if endpoint.state is State.STARTING or self._clock() >= wake.wanted_until:
                return "not_ready", endpoint.reason
            if wake.was_up and not wake.tickets:
                return "not_ready", "it was suspended again, and no request waits for it"
            # Suspended again, or the watch is late. Who makes it so again and again pays for each time.
            bucket = self._bucket_of(wake.endpoint.ref.namespace, self._clock())
            await self._until(bucket.take(self._clock()))

    async def _call(self, key: str, wake: _Wake) -> bool:
        """Makes the call, and again with back-off. Returns what it came to. Raises WakeLimited, WakeUnavailable."""
        namespace, now = wake.endpoint.ref.namespace, self._clock()
        own_turns = self._turns_of.setdefault(
            namespace, asyncio.Semaphore(_CALLS_AT_ONCE_PER_NAMESPACE)
        )
        wake.begins_at = self._bucket.next_at(now)
        if wake.begins_at > wake.wanted_until:
            raise _limited(wake.begins_at - now, _RATES_ARE_USED_UP)
        await self._until(self._bucket.take(now))
        while True:
            async with own_turns, self._turns:
                trouble = self._troubles.find(key, namespace, self._clock())
                if trouble is None:
                    wake.is_called = True
                    try:
                        did = await self._waker.wake(wake.endpoint)
                    except WakeFailed as failure:
                        wake.failure = "unavailable" if failure.concerns_all else "refused"
                        trouble = self._troubles.failed(key, namespace, self._clock(), failure)
                    else:
                        self._troubles.went_well(key, namespace, self._clock())
                        return did
            wake.is_called = False
            now = self._clock()
            if trouble.is_refusal or trouble.until > wake.wanted_until:
                raise _unavailable(trouble, now)
            for ticket in [each for each in wake.tickets if each.until < trouble.until]:
                ticket.fail(_unavailable(trouble, now))
            await self._until(trouble.until)

    async def _settled(self, wake: _Wake) -> Endpoint | None:
        """Returns the sandbox once something can be said about it: ready, gone, suspended again, or the time is over."""
        called_at = self._clock()
        while True:
            self._look(wake)
            endpoint = self._find(wake.endpoint.ref)
            if (
                wake.was_ready
                or endpoint is None
                or endpoint.sandbox_uid != wake.endpoint.sandbox_uid
            ):
                return None
            state, waited_s = endpoint.state, self._clock() - called_at
            is_suspended = state is State.SUSPENDED and not wake.was_up
            if state is not State.STARTING and not (is_suspended and waited_s < _CALL_AGAIN_S):
                return endpoint
            if waited_s >= self._timeout_s:
                return endpoint
            await self._pause(_LOOK_AGAIN_S)


def _key(endpoint: Endpoint) -> str:
    return endpoint.sandbox_uid or str(endpoint.ref)


def _limited(wait_s: float, reason: str) -> WakeLimited:
    error = WakeLimited(reason=reason)
    error.retry_after_s = max(1, math.ceil(wait_s))
    return error


def _unavailable(trouble: Trouble, now: float) -> WakeUnavailable:
    error = WakeUnavailable(reason=trouble.reason)
    error.retry_after_s = max(1, math.ceil(trouble.until - now))
    return error


def _again(error: WakeLimited | WakeUnavailable) -> RouterError:
    """Returns another one of the same: one instance raised in many tasks would collect all their tracebacks."""
    other = type(error)(reason=error.reason)
    other.retry_after_s = error.retry_after_s
    return other
