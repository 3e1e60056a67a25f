"""What is remembered of names, who waits for whom, and what one tenant can take from another."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from router.discovery import resolver as module
from router.discovery.name_servers import Answer
from router.discovery.resolver import CachingResolver
from router.routing.names import NameNotResolved, Unresolved

BOX = "box.team-a.svc.cluster.local"
FAR = time.monotonic() + 1e6


class Time:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Servers:
    """Name servers that answer what they are given, at once, or when a name is released."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.answers: dict[str, Answer | NameNotResolved] = {}
        self.hanging: dict[str, asyncio.Event] = {}

    def hangs(self, name: str) -> None:
        self.hanging[name] = asyncio.Event()

    async def ask(self, name: str) -> Answer:
        self.asked[name] += 1
        if name in self.hanging:
            await self.hanging[name].wait()
        answer = self.answers.get(name, Answer(("10.0.0.5",), 5.0))
        if isinstance(answer, NameNotResolved):
            raise answer
        return answer


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(module, "time", clock)
    return clock


Make = Callable[..., CachingResolver]


@pytest.fixture
async def make(servers: Servers) -> AsyncIterator[Make]:
    made: list[CachingResolver] = []

    def resolver(**changes: Any) -> CachingResolver:
        made.append(CachingResolver(ask=servers.ask, **{"allow_loopback": False, **changes}))
        return made[-1]

    yield resolver
    for each in made:
        await each.close()


async def failure(resolver: CachingResolver, name: str, deadline: float = FAR) -> NameNotResolved:
    with pytest.raises(NameNotResolved) as caught:
        await resolver.resolve(name, deadline=deadline)
    return caught.value


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# --- remembering ----------------------------------------------------------------------------


@pytest.mark.parametrize(("ttl_s", "kept_s"), [(0, 1.0), (3, 3.0), (30, 5.0)])
async def test_an_answer_is_remembered_as_long_as_dns_allows_within_one_to_five_seconds(
    make: Make, servers: Servers, now: Time, ttl_s: int, kept_s: float
) -> None:
    servers.answers[BOX] = Answer(("10.0.0.5",), ttl_s)
    resolver = make()
    assert await resolver.resolve(BOX, deadline=FAR) == ["10.0.0.5"]
    servers.answers[BOX] = Answer(("10.0.0.6",), ttl_s)
    now.now_s += kept_s - 0.01
    assert await resolver.resolve(BOX, deadline=FAR) == ["10.0.0.5"]
    now.now_s += 0.02
    assert await resolver.resolve(BOX, deadline=FAR) == ["10.0.0.6"]
    assert servers.asked[BOX] == 2


@pytest.mark.parametrize("why", [Unresolved.UNKNOWN, Unresolved.UNANSWERED])
async def test_a_failure_is_remembered_for_a_second(
    make: Make, servers: Servers, now: Time, why: Unresolved
) -> None:
    servers.answers[BOX] = NameNotResolved(why, "as it is")
    resolver = make()
    errors = [await failure(resolver, BOX) for _ in range(3)]
    assert [(error.why, str(error)) for error in errors] == [(why, "as it is")] * 3
    assert servers.asked[BOX] == 1
    del servers.answers[BOX]
    now.now_s += 1.01
    assert await resolver.resolve(BOX, deadline=FAR) == ["10.0.0.5"]


async def test_an_address_that_did_not_answer_is_asked_for_again_but_not_by_each_attempt(
    make: Make, servers: Servers, now: Time
) -> None:
    resolver = make()
    for _ in range(5):
        await resolver.resolve(BOX, deadline=FAR)
        resolver.forget(BOX)
    assert servers.asked[BOX] == 1
    now.now_s += 1.0
    resolver.forget(BOX)
    await resolver.resolve(BOX, deadline=FAR)
    assert servers.asked[BOX] == 2


async def test_forgetting_what_was_never_asked_for_is_no_matter(make: Make) -> None:
    make().forget("10.0.0.5")


async def test_what_is_remembered_is_bounded(make: Make, servers: Servers, now: Time) -> None:
    resolver = make(max_remembered=3)
    for number in range(10):
        await resolver.resolve(f"box-{number}.team-a", deadline=FAR)
    assert repr(resolver) == "<CachingResolver remembered=3 asking=0>"
    await resolver.resolve("box-9.team-a", deadline=FAR)
    assert servers.asked["box-9.team-a"] == 1


# --- refusing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "::ffff:127.0.0.1",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fe80::1",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "fd00:ec2::254",
        "64:ff9b::7f00:1",
    ],
)
async def test_a_name_that_leads_where_no_sandbox_can_be_is_refused_with_the_reason(
    make: Make, servers: Servers, address: str
) -> None:
    servers.answers[BOX] = Answer(("10.0.0.5", address), 5.0)
    error = await failure(make(), BOX)
    assert error.why is Unresolved.REFUSED
    assert BOX in str(error)
    assert address in str(error)


async def test_a_refusal_is_remembered(make: Make, servers: Servers) -> None:
    servers.answers[BOX] = Answer(("127.0.0.1",), 5.0)
    resolver = make()
    for _ in range(3):
        assert (await failure(resolver, BOX)).why is Unresolved.REFUSED
    assert servers.asked[BOX] == 1


async def test_loopback_is_allowed_where_the_operator_wrote_the_name(
    make: Make, servers: Servers
) -> None:
    servers.answers["localhost"] = Answer(("127.0.0.1", "::1"), 0.0)
    resolver = make(allow_loopback=True)
    assert await resolver.resolve("localhost", deadline=FAR) == ["127.0.0.1", "::1"]
    servers.answers["metadata"] = Answer(("169.254.169.254",), 0.0)
    assert (await failure(resolver, "metadata")).why is Unresolved.REFUSED


# --- waiting --------------------------------------------------------------------------------


async def test_a_name_is_asked_for_once_however_many_want_it(make: Make, servers: Servers) -> None:
    servers.hangs(BOX)
    resolver = make()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(resolver.resolve(BOX, deadline=FAR)) for _ in range(50)]
        await settle()
        servers.hanging[BOX].set()
    assert {task.result()[0] for task in waiting} == {"10.0.0.5"}
    assert servers.asked[BOX] == 1


async def test_nobody_waits_beyond_their_own_deadline(make: Make, servers: Servers) -> None:
    servers.hangs(BOX)
    error = await failure(make(), BOX, deadline=time.monotonic())
    assert error.why is Unresolved.UNANSWERED
    assert BOX in str(error)


async def test_a_late_answer_is_there_for_the_next_and_harms_no_one(
    make: Make, servers: Servers
) -> None:
    servers.hangs(BOX)
    resolver = make()
    await failure(resolver, BOX, deadline=time.monotonic())
    servers.hanging[BOX].set()
    await settle()
    assert repr(resolver) == "<CachingResolver remembered=1 asking=0>"
    assert await resolver.resolve(BOX, deadline=time.monotonic()) == ["10.0.0.5"]
    assert servers.asked[BOX] == 1


async def test_one_who_leaves_takes_nothing_from_the_others(make: Make, servers: Servers) -> None:
    servers.hangs(BOX)
    resolver = make()
    async with asyncio.TaskGroup() as tasks:
        leaves = tasks.create_task(resolver.resolve(BOX, deadline=FAR))
        stays = tasks.create_task(resolver.resolve(BOX, deadline=FAR))
        await settle()
        leaves.cancel()
        await settle()
        servers.hanging[BOX].set()
    assert stays.result() == ["10.0.0.5"]


async def test_a_failure_that_nobody_foresaw_fails_one_name_and_no_waiter_hangs(
    make: Make, servers: Servers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(name: str) -> Answer:
        raise RuntimeError("a bug")

    monkeypatch.setattr(servers, "ask", broken)
    assert (await failure(make(), BOX)).why is Unresolved.UNANSWERED
    await settle()
    assert "a bug" in caplog.text


# --- one tenant and another -------------------------------------------------------------------


def slow(servers: Servers, tenant: str, number: int) -> str:
    name = f"slow-{number}.{tenant}.svc.cluster.local"
    servers.hangs(name)
    return name


async def test_a_tenants_hanging_names_do_not_delay_anothers(make: Make, servers: Servers) -> None:
    resolver = make(max_questions=8)
    async with asyncio.TaskGroup() as tasks:
        hanging = [
            tasks.create_task(failure(resolver, slow(servers, "evil", number)))
            for number in range(100)
        ]
        await settle()
        async with asyncio.timeout(10):
            assert await resolver.resolve(BOX, deadline=FAR) == ["10.0.0.5"]
        for event in servers.hanging.values():
            event.set()
        servers.answers = {
            name: NameNotResolved(Unresolved.UNKNOWN, "gone") for name in servers.hanging
        }
    given_up = [task.result() for task in hanging if task.result().why is Unresolved.UNANSWERED]
    assert len(given_up) == 93
    assert "too many names" in str(given_up[0])
    assert repr(resolver).endswith("asking=0>")


# --- what is told ----------------------------------------------------------------------------


async def test_each_lookup_is_told_once_with_how_it_ended_and_how_long_it_took(
    make: Make, servers: Servers, now: Time
) -> None:
    told: list[tuple[str, float]] = []
    resolver = make(on_lookup=lambda how, took_s: told.append((how, took_s)))
    servers.hangs(BOX)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(resolver.resolve(BOX, deadline=FAR))
        await settle()
        now.now_s += 0.25
        servers.hanging[BOX].set()
    await resolver.resolve(BOX, deadline=FAR)
    assert told == [("answered", 0.25)]

    servers.answers = {
        "no.team-a": NameNotResolved(Unresolved.UNKNOWN, "no"),
        "late.team-a": NameNotResolved(Unresolved.UNANSWERED, "late"),
        "here.team-a": Answer(("127.0.0.1",), 5.0),
    }
    for name in servers.answers:
        await failure(resolver, name)
    assert [how for how, _ in told[1:]] == ["unknown", "unanswered", "refused"]


async def test_a_lookup_that_had_to_make_room_is_told_as_given_up(
    make: Make, servers: Servers
) -> None:
    told: list[str] = []
    resolver = make(max_questions=1, on_lookup=lambda how, took_s: told.append(how))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(failure(resolver, slow(servers, "loud", 0)))
        await settle()
        assert await resolver.resolve(BOX, deadline=FAR) == ["10.0.0.5"]
        await settle()

    assert told == ["given_up", "answered"]


async def test_who_asks_for_most_gives_up_the_oldest(make: Make, servers: Servers) -> None:
    resolver = make(max_questions=4)
    async with asyncio.TaskGroup() as tasks:
        quiet = tasks.create_task(resolver.resolve(slow(servers, "quiet", 0), deadline=FAR))
        await settle()
        loud = [
            tasks.create_task(failure(resolver, slow(servers, "loud", number)))
            for number in range(3)
        ]
        await settle()
        assert await resolver.resolve(BOX, deadline=FAR) == ["10.0.0.5"]
        await settle()
        assert [task.done() for task in loud] == [True, False, False]
        servers.answers = {
            name: NameNotResolved(Unresolved.UNKNOWN, "gone")
            for name in servers.hanging
            if ".loud." in name
        }
        for event in servers.hanging.values():
            event.set()
    assert quiet.result() == ["10.0.0.5"]
    assert [task.result().why for task in loud] == [
        Unresolved.UNANSWERED,
        Unresolved.UNKNOWN,
        Unresolved.UNKNOWN,
    ]
