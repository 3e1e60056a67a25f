"""One process's data plane: built, serving, draining, and what it says about itself at each moment."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from router.admin.activity import ActivityFilter
from router.admin.explain import Question
from router.admin.sandbox_listing import Filter
from router.app.sockets import Sockets
from router.app.stop import Stop
from router.app.worker import Worker
from router.errors import Overloaded
from router.routing.endpoint import Endpoint
from router.server.listeners import addresses_of, bind, close_all
from router.settings import Address, Settings
from router.telemetry.activity import Use
from tests.unit.app.conftest import MakeSettings

QUESTION = Question(
    headers=((b"Host", b"router"),),
    method=b"GET",
    path=b"/",
    namespace=None,
    name=b"box-a",
    port=None,
)


@pytest.fixture(autouse=True)
def _garbage_as_before() -> Iterator[None]:
    """A worker tunes the garbage collector of its whole process."""
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


class Running:
    """A worker that serves, in this process."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        address = settings.listeners.http_bind
        assert address is not None
        self.sockets = bind(address, setting="http-bind")
        self.address = addresses_of(self.sockets)[0]
        sockets = Sockets(http=self.sockets, own=[self.address])
        self.worker = Worker(settings, sockets, **options)
        self.stop = Stop()
        self.listening = asyncio.Event()
        self.code: int | None = None

    async def run(self) -> None:
        self.code = await self.worker.run(self.stop, on_listening=self.listening.set)

    async def ask(self, request: bytes) -> bytes:
        """Returns the answer of a connection of its own, which ends it."""
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def running(settings: Settings, **options: Any) -> AsyncIterator[Running]:
    async with asyncio.timeout(30):
        place = Running(settings, **options)
        try:
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(place.run())
                tasks.create_task(_listening_or_failed(place, task))
                await place.listening.wait()
                yield place
                place.stop.insist()
        finally:
            close_all(place.sockets)


async def _listening_or_failed(place: Running, task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])
    place.listening.set()


def request(*lines: str, target: str = "/") -> bytes:
    head = [f"GET {target} HTTP/1.1", "Host: router", "Connection: close", *lines]
    return "\r\n".join([*head, "", ""]).encode()


# --- serving --------------------------------------------------------------------------------


async def test_it_serves_what_its_table_knows(
    make_settings: MakeSettings, sandboxes_file: Path
) -> None:
    async def sandbox(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(sandbox, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, running(make_settings()) as place:
        answer = await place.ask(request("X-Sandbox-ID: box-a", f"X-Sandbox-Port: {port}"))
        assert answer.endswith(b"\r\n\r\nhello")
        assert place.worker.missing() == []
    assert place.code == 0


async def test_it_never_dials_where_the_router_itself_listens(make_settings: MakeSettings) -> None:
    async with running(make_settings()) as place:
        own = place.address[1]
        answer = await place.ask(request("X-Sandbox-ID: box-a", f"X-Sandbox-Port: {own}"))
    assert answer.startswith(b"HTTP/1.1 403 ")


async def test_a_waker_of_its_own_wakes_what_kubernetes_knows_nothing_of(
    make_settings: MakeSettings, sandboxes_file: Path
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    class Rewriting:
        """Wakes a sandbox by a new line in the file."""

        woken: ClassVar[list[str]] = []

        async def wake(self, endpoint: Endpoint) -> bool:
            self.woken.append(str(endpoint.ref))
            sandboxes_file.write_text(f"sandboxes: [{{{entry}, state: ready}}]")
            return True

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as sandbox:
        port = sandbox.sockets[0].getsockname()[1]
        entry = f"name: box-a, host: 127.0.0.1, ports: {{8888: {port}}}"
        sandboxes_file.write_text(f"sandboxes: [{{{entry}, state: suspended}}]")
        settings = make_settings()
        settings = replace(settings, waking=replace(settings.waking, wake="all"))
        async with running(settings, waker=Rewriting()) as place:
            asked = request("X-Sandbox-ID: box-a")
            assert (await place.ask(asked)).startswith(b"HTTP/1.1 204 ")
    assert Rewriting.woken == ["default/box-a"]


async def test_it_lists_and_explains_what_it_knows(make_settings: MakeSettings) -> None:
    async with running(make_settings()) as place:
        listed = await place.worker.list_sandboxes(Filter())
        explanation = await place.worker.explain(QUESTION)
    assert [(each["namespace"], each["name"]) for each in listed["sandboxes"]] == [
        ("default", "box-a"),
        ("team-b", "box-b"),
    ]
    assert "box-a" in str(explanation)


async def test_it_tells_of_the_use_of_what_is_open_and_what_has_ended(
    make_settings: MakeSettings,
) -> None:
    let_go = asyncio.Event()

    async def sandbox(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await let_go.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    def uses() -> list[Use]:
        return [use for part in place.worker.activity(ActivityFilter()).slices() for use in part]

    server = await asyncio.start_server(sandbox, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, running(make_settings()) as place, asyncio.TaskGroup() as tasks:
        assert uses() == []
        asking = tasks.create_task(
            place.ask(request("X-Sandbox-ID: box-a", f"X-Sandbox-Port: {port}"))
        )
        while not uses():
            await asyncio.sleep(0.01)
        (use,) = uses()
        assert (use.name, use.open_requests) == ("box-a", 1)
        let_go.set()
        await asking
        (use,) = uses()
        assert (use.name, use.open_requests) == ("box-a", 0)
        assert use.used_at >= place.worker.started_at


async def test_it_explains_with_what_works_less_well_and_what_stands_out_about_the_sandbox(
    make_settings: MakeSettings,
) -> None:
    async with running(make_settings()) as place:
        place.worker.sandboxes.notes = lambda: ["routing by pods alone"]
        place.worker.sandboxes.notes_about = lambda ref: (f"{ref} is odd",)
        explanation = await place.worker.explain(QUESTION)
        assert place.worker.notes() == ["routing by pods alone"]
    assert explanation["notes"] == ["routing by pods alone", "default/box-a is odd"]


# --- before and after -----------------------------------------------------------------------


async def test_before_anything_is_built_it_is_not_ready_and_knows_nothing(
    make_settings: MakeSettings,
) -> None:
    worker = Worker(make_settings(), Sockets())
    assert worker.missing() == ["the listeners are not open yet"]
    assert worker.notes() == []
    assert (await worker.list_sandboxes(Filter()))["sandboxes"] == []
    assert list(worker.activity(ActivityFilter()).slices()) == [[]]
    with pytest.raises(Overloaded, match="starting"):
        await worker.explain(QUESTION)
    assert "listening=False stopping=False" in repr(worker)


@pytest.mark.parametrize(
    ("key", "content"),
    [("sandboxes_file", "sandboxes: [{name: BOX}]"), ("policy_file", "rules: 5")],
)
async def test_a_file_that_cannot_be_used_stops_the_start_and_leaves_nothing_open(
    make_settings: MakeSettings, tmp_path: Path, key: str, content: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    worker = Worker(make_settings(**{key: path}), Sockets())
    with pytest.raises(ValueError, match=str(path)):
        await worker.run(Stop())
    assert worker.missing() != []


# --- stopping -------------------------------------------------------------------------------


def test_a_first_wish_is_gentle_and_a_second_one_is_not() -> None:
    stop = Stop()
    stop.ask()
    assert (stop.gently.is_set(), stop.at_once.is_set()) == (True, False)
    stop.ask()
    assert stop.at_once.is_set()


def test_who_insists_needs_no_second_time() -> None:
    stop = Stop()
    stop.insist()
    assert (stop.gently.is_set(), stop.at_once.is_set()) == (True, True)


async def test_while_draining_it_is_not_ready_but_serves(make_settings: MakeSettings) -> None:
    async with running(make_settings(drain_delay="20s")) as place:
        place.stop.ask()
        await until(lambda: place.worker.missing() == ["the router is shutting down"])
        answer = await place.ask(request("X-Sandbox-ID: BOX"))
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"Connection: close" in answer


async def test_a_second_wish_ends_what_is_open_at_once(
    make_settings: MakeSettings, caplog: pytest.LogCaptureFixture
) -> None:
    settings = make_settings(drain_delay="0", shutdown_timeout="20s", wait_for_ready="20s")
    with caplog.at_level(logging.WARNING):
        async with running(settings) as place:
            waiting = "X-Sandbox-ID: box-b", "X-Sandbox-Namespace: team-b"
            async with asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(place.ask(request(*waiting)))
                index = place.worker.sandboxes.index
                assert index is not None
                await until(lambda: index.waiting())
                place.stop.ask()
                await until(lambda: place.worker.missing() != [])
                place.stop.ask()
                answer = await asking
                assert answer.startswith(b"HTTP/1.1 503 ")
                assert b'"code":"draining"' in answer
    assert place.code == 0
    assert "asked again to stop: ending at once" in caplog.messages


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


# --- odds and ends --------------------------------------------------------------------------


def test_a_worker_may_listen_on_several_sockets(make_settings: MakeSettings) -> None:
    sockets = [
        *bind(Address("127.0.0.1", 0), setting="http-bind"),
        *bind(Address("127.0.0.1", 0), setting="http-bind"),
    ]

    async def serve() -> None:
        worker = Worker(make_settings(), Sockets(http=sockets))
        stop = Stop()
        answers: list[bytes] = []

        async def ask_both() -> None:
            for address in addresses_of(sockets):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(request(target="/healthz"))
                answers.append(await reader.read())
                writer.close()
            stop.ask()

        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            await worker.run(stop, on_listening=lambda: _start(tasks, ask_both()))
        assert [answer[:15] for answer in answers] == [b"HTTP/1.1 200 OK"] * 2

    try:
        asyncio.run(serve())
    finally:
        close_all(sockets)
    assert all(sock.fileno() == -1 for sock in sockets)


def _start(tasks: asyncio.TaskGroup, coroutine: Any) -> None:
    tasks.create_task(coroutine)
