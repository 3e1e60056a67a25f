"""Wakes on a clock that the test moves: one call for each sandbox, at a bounded rate, with back-off, whoever comes and leaves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from router.errors import RouterError, WakeLimited, WakeUnavailable
from router.proxy.ports import WakeFailed
from router.proxy.wakes import Wakes
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex


class VirtualTime:
    """A clock, and sleeps on it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._sleeps: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleeps, (self.now + seconds, next(self._numbers), done))
        await done

    async def pass_by(self, seconds: float) -> None:
        """Lets everything happen that is due by then, in its order."""
        end = self.now + seconds
        await _settled()
        while self._sleeps and self._sleeps[0][0] <= end:
            at, _, done = heapq.heappop(self._sleeps)
            self.now = max(self.now, at)
            if not done.done():
                done.set_result(None)
            await _settled()
        self.now = end


async def _settled() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


class Cluster:
    """A Waker, and the table in which its effect shows after a while."""

    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.index = EndpointIndex(waiting_room=9, waiting_room_per_namespace=9)
        self.takes_s = 0.0
        self.takes_in: dict[str, float] = {}
        """By namespace, where it is more."""
        self.fails_in: dict[str, WakeFailed] = {}
        self.starts_s = 1.0
        self.failures: list[WakeFailed] = []
        self.calls: list[tuple[float, str]] = []
        self.at_once = self.most_at_once = 0
        self.is_faster = False
        """Someone else woke it a moment ago."""
        self.has_effect = True
        self.starting: set[asyncio.Task[None]] = set()

    def put(self, state: State, name: str = "box", namespace: str = "default") -> Endpoint:
        endpoint = Endpoint(SandboxRef(namespace, name), "", state, sandbox_uid=f"uid-{name}")
        if state is State.READY:
            endpoint = Endpoint(
                endpoint.ref, "pod", state, ("10.0.0.1",), sandbox_uid=endpoint.sandbox_uid
            )
        self.index.upsert(endpoint)
        return endpoint

    async def wake(self, endpoint: Endpoint) -> bool:
        self.calls.append((self.time.now, endpoint.ref.name))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            takes_s = self.takes_in.get(endpoint.ref.namespace, self.takes_s)
            if takes_s:
                await self.time.sleep(takes_s)
            if endpoint.ref.namespace in self.fails_in:
                raise self.fails_in[endpoint.ref.namespace]
            if self.failures:
                raise self.failures.pop(0)
        finally:
            self.at_once -= 1
        if self.has_effect:
            task = asyncio.get_running_loop().create_task(self._start(endpoint))
            self.starting.add(task)
        return not self.is_faster

    async def _start(self, endpoint: Endpoint) -> None:
        self.put(State.STARTING, endpoint.ref.name, endpoint.ref.namespace)
        await self.time.sleep(self.starts_s)
        self.put(State.READY, endpoint.ref.name, endpoint.ref.namespace)


class Told:
    """A Telemetry that keeps what wakes tell."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.durations: list[float | None] = []

    def wake_ended(self, outcome: str, duration_s: float | None) -> None:
        self.outcomes.append(outcome)
        self.durations.append(duration_s)


class Scene:
    """Wakes with everything around them."""

    def __init__(self, *, rate: float = 20, rate_per_namespace: float = 5) -> None:
        self.time = VirtualTime()
        self.cluster = Cluster(self.time)
        self.told = Told()
        self.failed: list[RouterError] = []
        telemetry: Any = self.told
        self.wakes = Wakes(
            waker=self.cluster,
            find=self.cluster.index.find,
            rate=rate,
            rate_per_namespace=rate_per_namespace,
            timeout_s=60.0,
            telemetry=telemetry,
            clock=self.time,
            pause=self.time.sleep,
        )

    def want(self, name: str = "box", *, for_s: float = 60.0, namespace: str = "default") -> Any:
        endpoint = self.cluster.index.find(SandboxRef(namespace, name))
        if endpoint is None:
            endpoint = self.cluster.put(State.SUSPENDED, name, namespace)
        return self.wakes.want(
            endpoint, by="alice", until=self.time.now + for_s, failed=self.failed.append
        )


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Scene]]:
    scenes: list[Scene] = []

    def made(**rates: float) -> Scene:
        scenes.append(Scene(**rates))
        return scenes[-1]

    yield made
    for scene in scenes:
        await scene.wakes.close()
        for task in scene.cluster.starting:
            task.cancel()
        await asyncio.gather(*scene.cluster.starting, return_exceptions=True)


@pytest.fixture
def scene(make: Callable[..., Scene]) -> Scene:
    return make()


async def test_one_call_brings_it_back_however_many_want_it(scene: Scene) -> None:
    for _ in range(50):
        scene.want()
    await scene.time.pass_by(5)
    assert len(scene.cluster.calls) == 1
    assert scene.told.outcomes == ["woken"]
    assert scene.told.durations == [pytest.approx(1.0, abs=0.2)]
    assert len(scene.wakes) == 0


async def test_it_goes_on_when_everyone_leaves(scene: Scene) -> None:
    scene.cluster.takes_s = 3.0
    ticket = scene.want()
    await scene.time.pass_by(1)
    ticket.cancel()
    await scene.time.pass_by(10)
    assert scene.told.outcomes == ["woken"]


async def test_a_wake_that_waits_for_its_turn_goes_on_too(make: Callable[..., Scene]) -> None:
    scene = make(rate_per_namespace=1)
    for number in range(3):
        scene.want(f"box-{number}").cancel()
    await scene.time.pass_by(0.5)
    assert len(scene.cluster.calls) == 2
    await scene.time.pass_by(5)
    assert scene.told.outcomes == ["woken"] * 3


async def test_someone_else_was_faster(scene: Scene) -> None:
    scene.cluster.is_faster = True
    scene.want()
    await scene.time.pass_by(5)
    assert scene.told.outcomes == ["already"]


async def test_without_any_effect_it_is_called_again_after_a_while(scene: Scene) -> None:
    scene.cluster.has_effect = False
    scene.want()
    await scene.time.pass_by(4)
    assert len(scene.cluster.calls) == 1
    scene.cluster.has_effect = True
    await scene.time.pass_by(8)
    assert len(scene.cluster.calls) == 2
    assert scene.told.outcomes == ["woken"]


async def test_what_is_suspended_again_meanwhile_is_woken_again(scene: Scene) -> None:
    scene.cluster.starts_s = 2.0
    scene.want()
    await scene.time.pass_by(1)
    scene.cluster.put(State.SUSPENDED)
    scene.cluster.starting.pop().cancel()
    await scene.time.pass_by(5)
    assert len(scene.cluster.calls) == 2
    assert scene.told.outcomes == ["woken"]


async def test_what_was_ready_for_a_moment_and_is_suspended_again_is_not_woken_again(
    scene: Scene,
) -> None:
    ticket = scene.want()
    await scene.time.pass_by(0.05)
    scene.cluster.starting.pop().cancel()
    scene.cluster.put(State.READY)
    ticket.changed()
    assert scene.told.outcomes == ["woken"], "it counts before the request is served"
    ticket.cancel()
    scene.cluster.put(State.SUSPENDED)
    await scene.time.pass_by(20)
    assert len(scene.cluster.calls) == 1
    assert scene.told.outcomes == ["woken"]
    assert len(scene.wakes) == 0


async def test_a_sandbox_that_is_ready_before_the_call_is_answered_counts_once(
    scene: Scene,
) -> None:
    scene.cluster.takes_s = 1.0
    scene.cluster.is_faster = True
    ticket = scene.want()
    await scene.time.pass_by(0.5)
    scene.cluster.put(State.READY)
    ticket.changed()
    scene.cluster.put(State.SUSPENDED)
    assert scene.told.outcomes == []
    await scene.time.pass_by(20)
    assert len(scene.cluster.calls) == 1
    assert scene.told.outcomes == ["already"]


@pytest.mark.parametrize("call_takes_s", [0.0, 1.0], ids=["a call at once", "a slow call"])
async def test_who_wants_it_after_it_was_ready_and_suspended_again_has_it_woken_again(
    scene: Scene, call_takes_s: float
) -> None:
    scene.cluster.takes_s = call_takes_s
    scene.cluster.has_effect = False
    first = scene.want()
    await scene.time.pass_by(0.05)
    scene.cluster.put(State.READY)
    first.changed()
    first.cancel()
    scene.cluster.put(State.SUSPENDED)
    scene.cluster.has_effect = True
    scene.want()
    await scene.time.pass_by(4)
    assert len(scene.cluster.calls) == 2, "again, since nobody knows what came first"
    assert scene.told.outcomes[-1] == "woken"
    assert len(scene.wakes) == 0


async def test_what_is_suspended_again_while_nobody_waits_for_it_stays_so(scene: Scene) -> None:
    scene.cluster.starts_s = 2.0
    scene.want().cancel()
    await scene.time.pass_by(1)
    scene.cluster.put(State.SUSPENDED)
    scene.cluster.starting.pop().cancel()
    await scene.time.pass_by(20)
    assert len(scene.cluster.calls) == 1
    assert scene.told.outcomes == ["not_ready"]


@pytest.mark.parametrize("end", ["finished", "deleted", "replaced"])
async def test_what_is_gone_meanwhile_is_given_up(scene: Scene, end: str) -> None:
    scene.cluster.starts_s = 30.0
    scene.want()
    await scene.time.pass_by(1)
    ref = SandboxRef("default", "box")
    if end == "deleted":
        scene.cluster.index.remove(ref)
    else:
        uid = "uid-box" if end == "finished" else "uid-2"
        scene.cluster.index.upsert(Endpoint(ref, "", State.FINISHED, sandbox_uid=uid))
    await scene.time.pass_by(1)
    assert scene.told.outcomes == ["gone"]


async def test_what_does_not_start_in_time_is_given_up(scene: Scene) -> None:
    scene.cluster.starts_s = 500.0
    scene.want()
    await scene.time.pass_by(70)
    assert scene.told.outcomes == ["not_ready"]
    assert len(scene.cluster.calls) == 1
    assert scene.failed == [], "each request has its own time"


# --- rates ----------------------------------------------------------------------------------


async def test_the_rates_hold_and_no_namespace_waits_for_another(
    make: Callable[..., Scene],
) -> None:
    scene = make(rate=20, rate_per_namespace=5)
    for number in range(100):
        scene.want(f"a-{number}", namespace="team-a")
    scene.want("b", namespace="team-b")
    await scene.time.pass_by(1.01)
    called = [name for _, name in scene.cluster.calls]
    assert "b" in called
    assert len(called) == 1 + 10 + 5, "a burst of twice the rate, and the rate"
    await scene.time.pass_by(10.0)
    assert len(scene.cluster.calls) == 1 + 10 + 55


async def test_all_namespaces_together_are_limited_as_well(make: Callable[..., Scene]) -> None:
    scene = make(rate=10, rate_per_namespace=5)
    for number in range(100):
        scene.want(f"box-{number}", namespace=f"team-{number}")
    await scene.time.pass_by(1.0)
    assert len(scene.cluster.calls) == pytest.approx(30, abs=1)
    await scene.time.pass_by(30.0)
    assert len(scene.cluster.calls) == 100


async def test_who_cannot_wait_for_a_turn_is_told_when_there_is_one(
    make: Callable[..., Scene],
) -> None:
    scene = make(rate_per_namespace=1)
    for number in range(8):
        scene.want(f"box-{number}")
    with pytest.raises(WakeLimited) as told:
        scene.want("another", for_s=3.0)
    assert told.value.retry_after_s == 7
    assert scene.told.outcomes == ["limited"]
    scene.want("another", for_s=60.0)


async def test_who_joins_a_wake_that_comes_too_late_is_told_as_well(
    make: Callable[..., Scene],
) -> None:
    scene = make(rate_per_namespace=1)
    for number in range(8):
        scene.want(f"box-{number}")
    with pytest.raises(WakeLimited):
        scene.want("box-7", for_s=3.0)
    scene.want("box-0", for_s=3.0)


async def test_few_calls_run_at_once(make: Callable[..., Scene]) -> None:
    scene = make(rate=1000, rate_per_namespace=1000)
    scene.cluster.takes_s = 0.2
    for number in range(100):
        scene.want(f"box-{number}", namespace=f"team-{number % 4}")
    await scene.time.pass_by(30)
    assert len(scene.cluster.calls) == 100
    assert scene.cluster.most_at_once == 4


async def test_a_namespace_whose_calls_hang_leaves_turns_for_the_others(
    make: Callable[..., Scene],
) -> None:
    scene = make(rate=1000, rate_per_namespace=1000)
    scene.cluster.takes_in = {"slow": 10.0}
    for number in range(20):
        scene.want(f"slow-{number}", namespace="slow")
    await scene.time.pass_by(0.1)
    scene.want("box", namespace="team")
    await scene.time.pass_by(3)
    assert scene.told.outcomes == ["woken"]


async def test_what_it_keeps_of_namespaces_is_bounded(make: Callable[..., Scene]) -> None:
    scene = make(rate=10_000, rate_per_namespace=5)
    for number in range(1500):
        scene.want(f"box-{number}", namespace=f"team-{number}")
        await scene.time.pass_by(1.0)
    assert len(scene.wakes._by_namespace) <= 1025


# --- failures -------------------------------------------------------------------------------


def away(**how: Any) -> WakeFailed:
    return WakeFailed("HTTP 503", concerns_all=True, **how)


def refused() -> WakeFailed:
    return WakeFailed("HTTP 403 Forbidden: no", concerns_all=False)


async def test_an_api_that_is_away_for_a_moment_costs_nobody_an_error(scene: Scene) -> None:
    scene.cluster.failures = [away(), away(), away()]
    for _ in range(20):
        scene.want()
    await scene.time.pass_by(15)
    assert len(scene.cluster.calls) == 4
    assert scene.told.outcomes == ["woken"]
    assert scene.failed == []


async def test_who_cannot_wait_for_the_next_try_is_told_once(scene: Scene) -> None:
    scene.cluster.failures = [away() for _ in range(100)]
    scene.want(for_s=60.0)
    for _ in range(5):
        scene.want(for_s=4.0)
    await scene.time.pass_by(5)
    assert [type(error) for error in scene.failed] == [WakeUnavailable] * 5
    assert len({id(error) for error in scene.failed}) == 5
    await scene.time.pass_by(70)
    assert len(scene.failed) == 6
    assert scene.told.outcomes == ["unavailable"]
    assert len(scene.cluster.calls) < 15, "back-off"


async def test_an_api_that_is_away_is_not_tried_for_each_sandbox(
    make: Callable[..., Scene],
) -> None:
    scene = make(rate=1000, rate_per_namespace=1000)
    scene.cluster.failures = [away() for _ in range(1000)]
    for number in range(200):
        scene.want(f"box-{number}")
    await scene.time.pass_by(10)
    assert len(scene.cluster.calls) < 30


async def test_a_server_that_fails_for_one_namespace_delays_no_other(scene: Scene) -> None:
    # As behind a webhook that is broken for one tenant's objects.
    scene.cluster.fails_in = {"broken": away()}
    for number in range(9):
        scene.want(f"broken-{number}", namespace="broken")
    await scene.time.pass_by(30)
    calls = len(scene.cluster.calls)
    assert calls < 30, "back-off"

    scene.want("box", namespace="team")
    await scene.time.pass_by(1.5)

    assert scene.told.outcomes == ["woken"]


async def test_a_namespace_whose_sandbox_is_suspended_again_and_again_pays_for_each_call(
    make: Callable[..., Scene],
) -> None:
    scene = make(rate=1000, rate_per_namespace=1)
    scene.cluster.starts_s = 1000.0
    scene.want()
    for _ in range(100):
        await scene.time.pass_by(0.2)
        scene.cluster.put(State.SUSPENDED)
    # A burst of two, and one a second; not one at each look.
    assert 5 < len(scene.cluster.calls) <= 22


async def test_a_throttling_api_is_left_alone_for_as_long_as_it_says(scene: Scene) -> None:
    scene.cluster.failures = [away(at_least_s=7.0)]
    scene.want()
    await scene.time.pass_by(6.5)
    assert len(scene.cluster.calls) == 1
    await scene.time.pass_by(3)
    assert len(scene.cluster.calls) == 2


async def test_a_refusal_is_told_at_once_and_remembered_for_this_sandbox_alone(
    scene: Scene,
) -> None:
    scene.cluster.failures = [refused()]
    scene.want()
    await scene.time.pass_by(0.1)
    [error] = scene.failed
    assert isinstance(error, WakeUnavailable)
    assert error.reason == "HTTP 403 Forbidden: no"
    for _ in range(10):
        with pytest.raises(WakeUnavailable) as told:
            scene.want()
        assert told.value.retry_after_s is not None
        assert 1 <= told.value.retry_after_s <= 2
    assert len(scene.cluster.calls) == 1
    scene.want("other")
    await scene.time.pass_by(3)
    assert scene.told.outcomes == ["refused", "woken"]
    scene.want()
    await scene.time.pass_by(3)
    assert scene.told.outcomes == ["refused", "woken", "woken"]


async def test_refusals_in_a_row_are_asked_about_ever_more_rarely(scene: Scene) -> None:
    scene.cluster.failures = [refused() for _ in range(100)]
    for _ in range(120):
        try:
            scene.want()
        except WakeUnavailable:
            pass
        await scene.time.pass_by(1.0)
    assert 4 <= len(scene.cluster.calls) <= 10


# --- for people -----------------------------------------------------------------------------


async def test_the_outlook_says_what_would_come_of_it(make: Callable[..., Scene]) -> None:
    scene = make(rate_per_namespace=1)
    box = scene.cluster.put(State.SUSPENDED)
    assert scene.wakes.outlook(box) == "it would be woken at once"
    scene.cluster.failures = [refused()]
    scene.want()
    assert "is being woken since 0 s, for alice" in scene.wakes.outlook(box)
    await scene.time.pass_by(0.1)
    assert "the last wake failed (HTTP 403 Forbidden: no)" in scene.wakes.outlook(box)
    await scene.time.pass_by(10)
    for number in range(5):
        scene.want(f"box-{number}")
    assert "would wait 4 s for its turn" in scene.wakes.outlook(box)
    assert "running=5" in repr(scene.wakes)


async def test_after_the_end_nothing_begins(scene: Scene) -> None:
    await scene.wakes.close()
    with pytest.raises(WakeUnavailable):
        scene.want()
