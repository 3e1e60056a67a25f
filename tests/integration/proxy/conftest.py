"""Both event loops, a router and a pod for each test, and nothing may be left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import uvloop

from router.proxy.options import ProxyOptions
from tests.integration.proxy.clock import Clock
from tests.integration.proxy.pod import Pod, pod_listening
from tests.integration.proxy.running_router import Plan, RunningRouter
from tests.integration.proxy.wire import until

LIMITS = ProxyOptions.__dataclass_fields__.keys() - Plan.__dataclass_fields__.keys()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.SelectorEventLoop}


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> Iterator[None]:
    """Leaves what was there before out of each test's garbage collection, which would take longer than the test."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    clock.install(monkeypatch)
    return clock


@pytest.fixture
async def pod() -> AsyncIterator[Pod]:
    async with pod_listening() as pod:
        yield pod


@pytest.fixture
async def start_router(clock: Clock, pod: Pod) -> AsyncIterator[Any]:
    """Returns what starts a router, which ends before the pod does; keywords replace parts of its Plan or of its ProxyOptions."""
    async with contextlib.AsyncExitStack() as routers:

        async def start(**changes: Any) -> RunningRouter:
            plan = Plan()
            limits = {name: changes.pop(name) for name in LIMITS & changes.keys()}
            plan = replace(plan, limits=replace(plan.limits, **limits), **changes)
            return await routers.enter_async_context(RunningRouter(plan, clock).serving())

        yield start


@pytest.fixture
async def router(start_router: Any, pod: Pod) -> RunningRouter:
    """A router that knows the sandbox `box`, which is the pod."""
    router: RunningRouter = await start_router()
    router.knows(pod)
    return router


@pytest.fixture
def surprises() -> Iterator[list[str]]:
    """Everything that was logged as an error, or raised where the event loop caught it: a failure unless the test takes it away."""
    collected: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            collected.append(self.format(record))

    collector = Collector(level=logging.ERROR)
    logging.getLogger().addHandler(collector)
    try:
        yield collected
    finally:
        logging.getLogger().removeHandler(collector)
    assert collected == []


@pytest.fixture(autouse=True)
async def leaks_nothing(surprises: list[str]) -> AsyncIterator[None]:
    """Fails the test that leaves a task, a connection, or a descriptor of any kind."""
    descriptors = open_descriptors()
    yield
    gc.collect()
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, what="tasks to end")
    left: Counter[str] = Counter()

    def are_closed() -> bool:
        left.clear()
        left.update(open_descriptors() - descriptors)
        return not left

    try:
        await until(are_closed)
    except AssertionError:
        raise AssertionError(f"left open: {dict(left)}") from None


def open_descriptors() -> Counter[str]:
    """Returns how many descriptors of each kind this process has: an event loop exchanges some of its own."""
    found: Counter[str] = Counter()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that listed the directory
            found[os.readlink(f"/proc/self/fd/{descriptor}").partition(":[")[0]] += 1
    del found["/dev/null"]  # libuv opens one for emergencies with its first listener
    return found
