"""The sandbox that sleeps: its process ends and another one starts, and the sandboxes file says which."""

import asyncio
import os
import socket
from contextlib import asynccontextmanager

import aiohttp
import pytest
import yaml

from router.demo import sleeper as sleeper_module
from router.demo.child import StepFailed
from router.demo.sleeper import Sleeper, open_switch
from router.demo.stage import Stage, port_of, write_sandboxes_file


def ignore(_line: str) -> None:
    pass


@pytest.fixture(autouse=True)
def _starts_at_once(monkeypatch):
    monkeypatch.setattr(sleeper_module, "BOOT_S", 0)


@asynccontextmanager
async def sleeping():
    """Yields a stage, and a sandbox on it that runs."""
    async with Stage(environment=os.environ, on_router_line=ignore) as stage:
        child = await stage.start_sandbox("echo")
        ports = {"echo": await port_of(child), "hello": 1}
        write_sandboxes_file(stage.sandboxes_file, ports)
        yield stage, Sleeper("echo", stage=stage, child=child, ports=ports)


def entry(stage, name="echo"):
    (found,) = [
        each
        for each in yaml.safe_load(stage.sandboxes_file.read_text())["sandboxes"]
        if each["name"] == name
    ]
    return found


async def until_awake(stage):
    async with asyncio.timeout(30):
        while "state" in entry(stage):
            await asyncio.sleep(0.02)
    return entry(stage)["ports"][8888]


async def test_to_suspend_it_ends_its_process_and_not_the_demo():
    async with sleeping() as (stage, sleeper):
        port = entry(stage)["ports"][8888]
        assert await sleeper.suspend() is True
        assert entry(stage)["state"] == "suspended"
        assert "state" not in entry(stage, "hello")
        assert repr(sleeper) == "<Sleeper echo pid=None starts=0>"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        assert await sleeper.suspend() is False
        assert not stage.ending.is_set()


async def test_to_wake_it_starts_one_process_however_many_ask():
    async with sleeping() as (stage, sleeper):
        first = sleeper.pid
        await sleeper.suspend()
        assert sorted(await asyncio.gather(sleeper.wake(), sleeper.wake())) == [False, True]
        assert (sleeper.starts, sleeper.pid == first) == (1, False)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{await until_awake(stage)}/") as response,
        ):
            assert "Sandbox <code>echo</code>" in await response.text()
        assert await sleeper.wake() is False
        assert sleeper.starts == 1


async def test_one_that_is_suspended_while_it_starts_stays_so(monkeypatch):
    monkeypatch.setattr(sleeper_module, "BOOT_S", 60)
    async with sleeping() as (stage, sleeper):
        await sleeper.suspend()
        await sleeper.wake()
        await sleeper.suspend()
        async with asyncio.timeout(30):
            while len(stage.tasks):
                await asyncio.sleep(0.01)
        assert entry(stage)["state"] == "suspended"
        assert not stage.ending.is_set()


async def test_one_that_ends_by_itself_ends_the_demo():
    async with sleeping() as (stage, sleeper):
        await sleeper.suspend()
        await sleeper.wake()
        await until_awake(stage)
        os.kill(sleeper.pid, 9)
        with pytest.raises(StepFailed, match="keep sandbox echo running: it ended with -9"):
            await stage.until_ending()


async def test_the_switch_suspends_wakes_and_knows_no_other_sandbox():
    async with sleeping() as (stage, sleeper):
        path = stage.folder / "switch"
        async with (
            open_switch(sleeper, path),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=str(path))) as session,
        ):

            async def post(target: str) -> tuple[int, str]:
                async with session.post(f"http://demo{target}") as response:
                    return response.status, await response.text()

            assert await post("/wake/default/echo") == (200, "running\n")
            assert await post("/suspend") == (200, "echo is suspended\n")
            assert await post("/suspend") == (200, "echo was asleep\n")
            assert await post("/wake/default/hello") == (404, "This sandbox never sleeps.\n")
            assert await post("/wake/default/echo") == (200, "started\n")
            await until_awake(stage)


async def test_a_process_that_can_not_be_started_is_said_and_not_counted(monkeypatch):
    async with sleeping() as (stage, sleeper):
        await sleeper.suspend()

        async def fail(name: str, *, boot_s: int) -> None:
            raise StepFailed("start sandbox echo", "no memory")

        monkeypatch.setattr(stage, "start_sandbox", fail)
        path = stage.folder / "switch"
        async with (
            open_switch(sleeper, path),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=str(path))) as session,
            session.post("http://demo/wake/default/echo") as response,
        ):
            assert (response.status, await response.text()) == (
                503,
                "start sandbox echo: no memory\n",
            )
        assert repr(sleeper) == "<Sleeper echo pid=None starts=0>"
