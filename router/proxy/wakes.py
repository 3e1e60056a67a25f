"""Wakes: brings suspended sandboxes back, each once however many ask, at a bounded rate, and without a storm of calls."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final
from weakref import WeakValueDictionary

from router.errors import RouterError, WakeLimited, WakeUnavailable
from router.proxy.ports import Telemetry, WakeFailed, Waker
from router.proxy.token_bucket import TokenBucket
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.tasks import TaskSet

logger = logging.getLogger("sandbox_router.wake")

_CALLS_AT_ONCE: Final = 4
_CALLS_AT_ONCE_PER_NAMESPACE: Final = 2
"""So that one whose calls hang, behind a webhook of its own perhaps, leaves turns for the others."""
_MOST_WAKES: Final = 4096
_MOST_NAMESPACES: Final = 1024
_MOST_TROUBLES: Final = 4096
_LOOK_AGAIN_S: Final = 0.1
_CALL_AGAIN_S: Final = 5.0
"""After so long without a sign of the call's effect it is made again: its tests make that harmless."""
_RATES_ARE_USED_UP: Final = "wake-rate or wake-rate-per-namespace is used up"
_OWN_BACKOFF_S: Final = (1.0, 30.0)
_COMMON_BACKOFF_S: Final = (0.5, 10.0)


class _Trouble:
    """Failures in a row, and until when (clock) nothing is tried again."""

    __slots__ = ("failed_at", "failures", "is_refusal", "reason", "until")

    def __init__(self, *, is_refusal: bool) -> None:
        self.is_refusal = is_refusal
        """What was refused is refused again; what nobody answered may be answered in time."""
        self.failed_at = -math.inf
        self.failures = 0
        self.until = 0.0
        self.reason = ""

    def add(self, now: float, failure: WakeFailed, first_s: float, longest_s: float) -> None:
        """Notes one more failure."""
        if now > self.until + longest_s:
            self.failures = 0
        pause_s = min(longest_s, first_s * 2.0 ** min(self.failures, 16))
        pause_s *= random.uniform(0.75, 1.25)  # noqa: S311 - jitter, not a secret
        self.failures += 1
        self.failed_at = now
        self.reason = failure.reason
        self.until = now + max(pause_s, min(failure.at_least_s, longest_s))


class Ticket:
    """One request's interest in a wake."""

    __slots__ = ("_failed", "_wake", "until")

    def __init__(self, wake: _Wake, until: float, failed: Callable[[RouterError], None]) -> None:
        self._wake = wake
        self._failed = failed
        self.until = until

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
        "endpoint",
        "failure",
        "is_called",
        "since",
        "tickets",
        "wanted_until",
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
        self._own_troubles: dict[str, _Trouble] = {}
        self._troubles_of: dict[str, _Trouble] = {}  # by namespace
        self._common_trouble = _Trouble(is_refusal=False)
        self._went_well_at = -math.inf
        self._turns = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._turns_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._tasks = TaskSet()

    def __len__(self) -> int:
        return len(self._wakes)

    def __repr__(self) -> str:
        return f"<Wakes running={len(self._wakes)} troubles={len(self._own_troubles)}>"

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
        ticket = Ticket(wake, until, failed)
        wake.tickets[ticket] = None
        return ticket

    def outlook(self, endpoint: Endpoint) -> str:
        """Returns what would come of wanting this sandbox now, for people; changes nothing."""
        key, now = _key(endpoint), self._clock()
        trouble = self._trouble_of(endpoint, now)
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
        trouble = self._trouble_of(endpoint, now)
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
            del self._wakes[key]
            self._tell(wake, outcome, reason)

    def _tell(self, wake: _Wake, outcome: str, reason: str) -> None:
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
        did = False
        while True:
            did = await self._call(key, wake) or did
            endpoint = await self._settled(wake)
            if endpoint is None or endpoint.state is State.FINISHED:
                return "gone", "it has finished, or is another one now"
            if endpoint.state is State.READY:
                return "woken" if did else "already", ""
            if endpoint.state is State.STARTING or self._clock() >= wake.wanted_until:
                return "not_ready", endpoint.reason
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
                trouble = self._trouble_of(wake.endpoint, self._clock())
                if trouble is None:
                    wake.is_called = True
                    try:
                        did = await self._waker.wake(wake.endpoint)
                    except WakeFailed as failure:
                        trouble = self._failed(key, wake, failure)
                    else:
                        self._own_troubles.pop(key, None)
                        self._troubles_of.pop(namespace, None)
                        self._common_trouble = _Trouble(is_refusal=False)
                        self._went_well_at = self._clock()
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
        was_up = False
        while True:
            endpoint = self._find(wake.endpoint.ref)
            if endpoint is None or endpoint.sandbox_uid != wake.endpoint.sandbox_uid:
                return None
            state, waited_s = endpoint.state, self._clock() - called_at
            if state is State.STARTING:
                was_up = True
            elif state is not State.SUSPENDED or was_up or waited_s >= _CALL_AGAIN_S:
                return endpoint
            if waited_s >= self._timeout_s:
                return endpoint
            await self._pause(_LOOK_AGAIN_S)

    # --- failures ---------------------------------------------------------------------------

    def _failed(self, key: str, wake: _Wake, failure: WakeFailed) -> _Trouble:
        """Notes a failed call. Returns the trouble that it belongs to."""
        now = self._clock()
        if not failure.concerns_all:
            wake.failure = "refused"
            trouble = _kept(self._own_troubles, key, now, is_refusal=True)
            trouble.add(now, failure, *_OWN_BACKOFF_S)
            return trouble
        wake.failure = "unavailable"
        own = _kept(self._troubles_of, wake.endpoint.ref.namespace, now, is_refusal=False)
        own.add(now, failure, *_COMMON_BACKOFF_S)
        # A webhook may fail for one tenant's objects alone: only when nothing went well since another's failure, all wait.
        is_common = failure.at_least_s > 0.0 or any(
            other is not own and other.failed_at > self._went_well_at
            for other in self._troubles_of.values()
        )
        if not is_common:
            return own
        self._common_trouble.add(now, failure, *_COMMON_BACKOFF_S)
        return self._common_trouble

    def _trouble_of(self, endpoint: Endpoint, now: float) -> _Trouble | None:
        """Returns what keeps this sandbox from being tried now, None when nothing does."""
        own = self._own_troubles.get(_key(endpoint))
        if own is not None and own.until > now:
            return own
        common, others = self._common_trouble, self._troubles_of.get(endpoint.ref.namespace)
        if others is not None and others.until > max(now, common.until):
            return others
        return common if common.until > now else None


def _kept(troubles: dict[str, _Trouble], key: str, now: float, *, is_refusal: bool) -> _Trouble:
    """Returns the trouble of that key; over the bound those that are over are forgotten."""
    if key not in troubles and len(troubles) >= _MOST_TROUBLES:
        for known in [each for each, trouble in troubles.items() if trouble.until <= now]:
            del troubles[known]
    return troubles.setdefault(key, _Trouble(is_refusal=is_refusal))


def _key(endpoint: Endpoint) -> str:
    return endpoint.sandbox_uid or str(endpoint.ref)


def _limited(wait_s: float, reason: str) -> WakeLimited:
    error = WakeLimited(reason=reason)
    error.retry_after_s = max(1, math.ceil(wait_s))
    return error


def _unavailable(trouble: _Trouble, now: float) -> WakeUnavailable:
    error = WakeUnavailable(reason=trouble.reason)
    error.retry_after_s = max(1, math.ceil(trouble.until - now))
    return error


def _again(error: WakeLimited | WakeUnavailable) -> RouterError:
    """Returns another one of the same: one instance raised in many tasks would collect all their tracebacks."""
    other = type(error)(reason=error.reason)
    other.retry_after_s = error.retry_after_s
    return other
