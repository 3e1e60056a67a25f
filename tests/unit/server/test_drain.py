"""How the router leaves: step by step, within its time. The times are scaled down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from router.server import drain as drain_module
from router.server.drain import drain


class Busy:
    """Connections that end when the test says so; notes what is asked of them."""

    def __init__(self, open_connections: int = 0) -> None:
        self.is_draining = False
        self.open = open_connections
        self.steps: list[str] = []
        self.on_step: dict[str, Callable[[], None]] = {}

    def drain(self) -> int:
        self._step("drain")
        return self.open

    def end_tunnels(self, reason: str) -> None:
        assert "shutting down" in reason
        self._step("end_tunnels")

    def end_now(self) -> None:
        self._step("end_now")

    def stop_accepting(self) -> None:
        self._step("stop_accepting")

    def _step(self, name: str) -> None:
        if not self.steps or self.steps[-1] != name:
            self.steps.append(name)
        self.on_step.get(name, lambda: None)()

    def ends_at(self, step: str) -> None:
        """Lets every connection end when this step is reached."""

        def end() -> None:
            self.open = 0

        self.on_step[step] = end


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "_GOODBYE_S", 0.03)
    monkeypatch.setattr(drain_module, "_POLL_S", 0.002)


async def drained(busy: Busy, *, delay_s: float = 0.0, timeout_s: float = 0.1) -> int:
    async with asyncio.timeout(10):
        return await drain(
            busy,
            stop_accepting=busy.stop_accepting,
            drain_delay_s=delay_s,
            shutdown_timeout_s=timeout_s,
        )


async def test_with_nothing_open_it_stops_accepting_and_is_done() -> None:
    busy = Busy()
    assert await drained(busy) == 0
    assert busy.steps == ["stop_accepting", "drain"]


async def test_it_serves_on_for_the_delay_and_says_close_meanwhile() -> None:
    busy = Busy()
    began_at = time.monotonic()
    stopped_at: list[float] = []
    busy.on_step["stop_accepting"] = lambda: stopped_at.append(time.monotonic())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(drained(busy, delay_s=0.05))
        await asyncio.sleep(0)
        assert busy.is_draining
        assert busy.steps == []
    assert stopped_at[0] - began_at >= 0.05


async def test_requests_may_finish_and_then_nothing_is_cut() -> None:
    busy = Busy(2)
    rounds = 0

    def one_less() -> None:
        nonlocal rounds
        rounds += 1
        busy.open = max(0, 3 - rounds)

    busy.on_step["drain"] = one_less
    assert await drained(busy, timeout_s=10.0) == 0
    assert busy.steps == ["stop_accepting", "drain"]
    assert rounds == 3, "it looks again and again, so idle keep-alives end as they come"


async def test_tunnels_are_told_before_the_time_is_over() -> None:
    busy = Busy(1)
    busy.ends_at("end_tunnels")
    assert await drained(busy) == 0
    assert busy.steps == ["stop_accepting", "drain", "end_tunnels", "drain"]


async def test_what_is_still_open_at_the_end_is_cut() -> None:
    busy = Busy(3)
    began_at = time.monotonic()
    busy.ends_at("end_now")
    assert await drained(busy, timeout_s=0.1) == 3
    assert busy.steps == ["stop_accepting", "drain", "end_tunnels", "drain", "end_now", "drain"]
    assert time.monotonic() - began_at >= 0.1


async def test_without_any_time_everything_is_told_and_cut_at_once() -> None:
    busy = Busy(1)
    busy.ends_at("end_now")
    assert await drained(busy, timeout_s=0.0) == 1
    assert busy.steps == ["stop_accepting", "drain", "end_tunnels", "end_now", "drain"]


async def test_clients_have_a_moment_to_take_what_had_come_of_what_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy, looks = Busy(1), 0

    def look() -> None:
        nonlocal looks
        looks += busy.steps.count("end_now")
        if looks == 3:
            busy.open = 0

    busy.on_step["drain"] = look
    assert await drained(busy, timeout_s=0.0) == 1
    assert looks == 3, "it waits as long as somebody has yet to take something"
    busy, looks = Busy(1), -1_000_000
    monkeypatch.setattr(drain_module, "_LAST_BYTES_S", 0.0)
    busy.on_step["drain"] = look
    assert await drained(busy, timeout_s=0.0) == 1, "and no longer than that moment"
