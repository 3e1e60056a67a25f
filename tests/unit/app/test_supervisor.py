"""Several workers as real processes behind one door: a dead one is replaced, and totals never go back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from router.admin.explain import Question
from router.admin.sandbox_listing import Filter
from router.app import supervisor as supervisor_module
from router.app.stop import Stop
from router.app.supervisor import Supervisor, WorkersKeepDying
from router.errors import Overloaded
from router.server.listeners import BindError, bind, close_all
from router.settings import Address, Settings
from router.telemetry.snapshot import Snapshot
from tests.fakes.links import PLATFORM_SECRET, SESSION_SECRET, session
from tests.unit.app.conftest import MakeSettings

QUESTION = Question(
    headers=((b"Host", b"router"),),
    method=b"GET",
    path=b"/",
    namespace=None,
    name=b"box-a",
    port=None,
)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Place:
    """A running supervisor."""

    def __init__(self, settings: Settings) -> None:
        self.supervisor = Supervisor(settings, own_admin=[("127.0.0.1", 1)])
        ((_, self.port),) = self.supervisor.bind()
        self.stop = Stop()
        self.code: int | None = None

    async def run(self) -> None:
        self.code = await self.supervisor.run(self.stop)

    async def until_ready(self) -> None:
        await until(self.supervisor.missing, lambda missing: missing == [])

    async def get_health(self) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(HEALTH)
            return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()

    async def requests_counted(self) -> float:
        return total(await self.supervisor.snapshot(), "sandbox_router_requests_total")

    def pids(self) -> list[int]:
        return [slot.process.pid for slot in self.supervisor._slots if slot.process is not None]


def total(snapshot: Snapshot, name: str) -> float:
    return sum(series[0] for _, series in snapshot.get(name, []))


async def until(ask: Callable[[], Any], condition: Callable[[Any], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition(await ask()):
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Place]:
    place = Place(settings)
    async with asyncio.timeout(100), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(place.run())
        try:
            yield place
        except BaseException:
            task.cancel()
            raise
        place.stop.insist()
        await task


async def test_workers_share_a_port_one_that_is_killed_is_replaced_and_no_count_is_lost(
    make_settings: MakeSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """One long story, because a process takes its time to start."""
    async with running(make_settings(workers=2)) as place:
        supervisor = place.supervisor
        await place.until_ready()
        first, second = place.pids()
        assert repr(supervisor) == "<Supervisor workers=2 listening=2>"
        for _ in range(4):
            assert (await place.get_health()).startswith(b"HTTP/1.1 200 OK")
        assert await place.requests_counted() == 4
        listing = await supervisor.sandboxes(Filter())
        assert listing["total"] == 2
        explanation = await supervisor.explain(QUESTION)
        assert explanation["endpoint"]["name"] == "box-a", explanation

        with caplog.at_level(logging.ERROR):
            os.kill(first, signal.SIGKILL)
            await until(supervisor.missing, lambda missing: missing != [])
            await place.until_ready()
        (record,) = [r for r in caplog.records if r.message == "a worker died and is replaced"]
        assert record.fields["exit_code"] == -signal.SIGKILL  # type: ignore[attr-defined]
        pids = place.pids()
        assert first not in pids
        assert second in pids
        assert await place.requests_counted() == 4, "what the dead one had counted stays"
        assert (await place.get_health()).startswith(b"HTTP/1.1 200 OK")
        assert await place.requests_counted() == 5

        place.stop.ask()
        await until(supervisor.missing, lambda missing: missing != [])
    assert place.code == 0
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_sign_out_is_one_in_every_worker_and_in_those_that_begin_later(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    keys = tmp_path / "session-keys"
    keys.write_bytes(SESSION_SECRET)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as nobodys:
        nobodys_port = nobodys.getsockname()[1]
    settings = make_settings(
        workers=2,
        auth="jwt",
        jwt_secret_file=_platform(tmp_path),
        session_key_file=keys,
        base_domain="localhost",
    )
    host = f"{nobodys_port}-box-a--default.localhost"
    cookie = session(namespace="default", name="box-a", port=nobodys_port)

    async with running(settings) as place:
        origin = f"http://{host}:{place.port}"

        async def ask(line: str) -> int:
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            head = f"{line} HTTP/1.1\r\nHost: {host}:{place.port}\r\nOrigin: {origin}\r\nConnection: close\r\n"
            writer.write(f"{head}Cookie: sandbox-router={cookie}\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            return int(answer.split()[1])

        async def statuses() -> set[int]:
            """Returns what many connections get, which the kernel gives to either worker."""
            return set(await asyncio.gather(*(ask("GET /") for _ in range(16))))

        await place.until_ready()
        assert await statuses() == {502}, "its person is let in, and nobody listens there"
        assert await ask("POST /.sandbox-router/logout") == 200
        await until(statuses, lambda found: found == {401})

        for pid in place.pids():
            os.kill(pid, signal.SIGKILL)
        await until(place.supervisor.missing, lambda missing: missing != [])
        await place.until_ready()
        await until(statuses, lambda found: found == {401})


def _platform(tmp_path: Path) -> Path:
    path = tmp_path / "platform-secret"
    path.write_bytes(PLATFORM_SECRET)
    return path


async def test_what_all_workers_note_is_said_once(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(make_settings(workers=2)) as place:
        await place.until_ready()
        assert await place.supervisor.notes() == []

        async def told(slot: object, question: str, argument: object) -> list[str]:
            return ["routing by pods alone", "sandboxes: 403"] if question == "notes" else []

        monkeypatch.setattr(place.supervisor, "_ask", told)
        assert await place.supervisor.notes() == ["routing by pods alone", "sandboxes: 403"]


async def test_a_worker_that_hangs_is_told_of_at_once_and_replaced(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("router.app.slot._SILENT_AFTER_S", 0.5)
    monkeypatch.setattr(supervisor_module, "_HUNG_AFTER_S", 6.0)
    async with running(make_settings(workers=2)) as place:
        supervisor = place.supervisor
        await place.until_ready()
        for _ in range(4):
            assert (await place.get_health()).startswith(b"HTTP/1.1 200 OK")
        counted = await place.requests_counted()
        first, second = place.pids()
        os.kill(first, signal.SIGSTOP)

        began_at = time.monotonic()
        assert await supervisor.missing() == ["worker 0 does not answer"]
        assert await place.requests_counted() == counted, "its last known counts stand in"
        assert (await supervisor.sandboxes(Filter()))["total"] == 2
        assert time.monotonic() - began_at < supervisor_module._HUNG_AFTER_S
        await until(supervisor.health, lambda ailing: ailing != [])
        (ailing,) = await supervisor.health()
        assert ailing.startswith("worker 0 has not answered for ")

        await place.until_ready()
        assert first not in place.pids()
        assert second in place.pids()
        assert await supervisor.health() == []
        assert await place.requests_counted() == counted
    assert "a worker hangs and is killed" in caplog.messages


async def test_a_worker_that_hangs_does_not_hold_up_the_end(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "_LEFT_AFTER_S", 0.1)
    settings = make_settings(workers=1, drain_delay="0", shutdown_timeout="0.1s")
    async with running(settings) as place:
        await place.until_ready()
        (pid,) = place.pids()
        os.kill(pid, signal.SIGSTOP)
        place.stop.ask()
        await until(_is_gone(pid), lambda gone: gone)
    assert place.code == 0


def _is_gone(pid: int) -> Callable[[], Any]:
    async def gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    return gone


async def test_a_worker_that_does_not_finish_its_start_is_replaced(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor_module, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(supervisor_module, "_START_WITHIN_S", 0.1)
    monkeypatch.setattr(supervisor_module, "_RESPAWN_PAUSE_S", 0.0)
    monkeypatch.setattr(supervisor_module, "_WORKER_PROGRAM", "import time; time.sleep(1000)")
    place = Place(make_settings(workers=1))
    with pytest.raises(WorkersKeepDying):
        await place.run()
    assert "a worker does not finish its start and is killed" in caplog.messages


async def test_a_second_wish_ends_a_long_drain_at_once(make_settings: MakeSettings) -> None:
    settings = make_settings(workers=1, drain_delay="60s", shutdown_timeout="60s")
    async with running(settings) as place:
        await place.until_ready()
        place.stop.ask()
        await until(place.supervisor.missing, lambda missing: len(missing) == 2)
        place.stop.ask()
    assert place.code == 0


@pytest.fixture
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "_RESPAWN_PAUSE_S", 0.0)


@pytest.mark.usefixtures("_no_pause")
async def test_workers_that_keep_dying_end_the_whole(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor_module, "_WORKER_PROGRAM", "import sys; sys.exit(3)")
    place = Place(make_settings(workers=2))
    with caplog.at_level(logging.ERROR), pytest.raises(WorkersKeepDying, match="5 workers died"):
        async with asyncio.timeout(60):
            await place.run()
    codes = [record.fields["exit_code"] for record in caplog.records]  # type: ignore[attr-defined]
    assert len(codes) >= 5
    assert set(codes) == {3}


@pytest.mark.usefixtures("_no_pause")
async def test_workers_that_die_now_and_then_are_replaced_for_ever(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "_WORKER_PROGRAM", "import sys; sys.exit(3)")
    monkeypatch.setattr(supervisor_module, "_DEATHS_WITHIN_S", 0.0)
    place = Place(make_settings(workers=1))
    deaths = 0
    one_life = place.supervisor._one_life

    async def noted(slot: Any) -> int:
        nonlocal deaths
        code = await one_life(slot)
        deaths += 1
        if deaths == 7:
            place.stop.ask()
        return code

    monkeypatch.setattr(place.supervisor, "_one_life", noted)
    async with asyncio.timeout(60):
        await place.run()
    assert place.code == 0


async def test_a_stop_that_comes_while_a_worker_is_started_is_not_missed(
    make_settings: MakeSettings,
) -> None:
    place = Place(make_settings(workers=1, drain_delay="60s"))
    place.stop.ask()
    async with asyncio.timeout(60):
        await place.run()
    assert place.code == 0


# --- without any worker -----------------------------------------------------------------------


async def test_without_a_worker_questions_are_refused_clearly(make_settings: MakeSettings) -> None:
    place = Place(make_settings(workers=2))
    supervisor = place.supervisor
    try:
        assert await supervisor.missing() == [
            "worker 0 is not running",
            "worker 1 is not running",
        ]
        assert await supervisor.snapshot() == {}
        with pytest.raises(Overloaded):
            await supervisor.sandboxes(Filter())
        with pytest.raises(Overloaded):
            await supervisor.explain(QUESTION)
    finally:
        supervisor.close()


def test_every_worker_has_sockets_of_its_own_on_one_port(make_settings: MakeSettings) -> None:
    supervisor = Supervisor(make_settings(workers=3), own_admin=[])
    try:
        addresses = supervisor.bind()
        assert addresses == supervisor.addresses()
        ports = {slot.http[0].getsockname()[1] for slot in supervisor._slots}
        assert ports == {addresses[0][1]}
        assert len({slot.http[0].fileno() for slot in supervisor._slots}) == 3
    finally:
        supervisor.close()


def test_a_port_that_cannot_be_had_stops_the_start(make_settings: MakeSettings) -> None:
    sockets = bind(Address("127.0.0.1", 0), setting="http-bind")
    try:
        sockets[0].listen()
        port = sockets[0].getsockname()[1]
        supervisor = Supervisor(
            make_settings(workers=2, http_bind=f"127.0.0.1:{port}"), own_admin=[]
        )
        with pytest.raises(BindError, match="http-bind"):
            supervisor.bind()
    finally:
        close_all(sockets)
