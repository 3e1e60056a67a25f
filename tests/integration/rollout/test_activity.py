"""What the admin port says of sandboxes' use, by two workers over real sockets."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from router.timestamps import parse_timestamp
from tests.fakes.router_process import RouterProcess, router
from tests.integration.rollout.sandbox import Sandbox, sandbox

HEADERS = {"X-Sandbox-ID": "box"}
MANY = 16
"""Connections, so that each of two workers gets some."""


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[RouterProcess, Sandbox]]:
    async with sandbox() as box:
        flags = (
            *("--auth=none", "--discovery=file", "--workers=2"),
            f"--sandboxes-file={box.write_table(folder)}",
        )
        async with router(*flags) as running:
            await running.until_ready()
            yield running, box


async def activity(running: RouterProcess, query: str = "") -> dict[str, Any]:
    status, text = await running.admin(f"/activity{query}")
    assert status == 200
    told: dict[str, Any] = json.loads(text)
    return told


async def entry(running: RouterProcess) -> dict[str, Any]:
    told = await activity(running)
    assert told["complete"] is True
    (only,) = told["sandboxes"]
    assert (only["namespace"], only["name"]) == ("default", "box")
    return {**only, "idle_s": parse_timestamp(told["now"]) - parse_timestamp(only["last_activity"])}


def used_at(told: dict[str, Any]) -> float:
    return parse_timestamp(told["last_activity"])


async def get(running: RouterProcess, path: str, **headers: str) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            f"http://127.0.0.1:{running.http_port}{path}", headers=HEADERS | headers
        ) as response,
    ):
        await response.read()
        return response.status


async def test_requests_of_all_workers_are_added_up_while_they_are_open_and_after(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (running, box), asyncio.TaskGroup() as tasks:
        assert (await activity(running))["sandboxes"] == []
        holding = [tasks.create_task(get(running, "/hold")) for _ in range(MANY)]
        while box.held < MANY:
            await asyncio.sleep(0.01)
        told = await entry(running)
        assert (told["open_requests"], told["open_tunnels"], told["idle_s"]) == (MANY, 0, 0.0)
        box.let_go.set()
        await asyncio.gather(*holding)
        assert (await entry(running))["open_requests"] == 0
        first = (await entry(running))["last_activity"]
        assert await get(running, "/again") == 200
        assert (await entry(running))["last_activity"] > first


async def test_refused_requests_and_probes_are_no_activity(tmp_path: Path) -> None:
    async with serving(tmp_path) as (running, _):
        assert await get(running, "/", **{"X-Sandbox-ID": "no-such-box"}) == 404
        assert await get(running, "/", **{"X-Sandbox-Port": "1"}) == 502
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{running.http_port}/healthz") as response,
        ):
            assert response.status == 200
        assert (await activity(running))["sandboxes"] == []


async def test_a_websocket_that_only_pings_is_open_and_idle(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as (running, _),
        aiohttp.ClientSession() as session,
        session.ws_connect(
            f"http://127.0.0.1:{running.http_port}/socket", headers=HEADERS, autoping=False
        ) as socket,
    ):
        opened = await entry(running)
        assert (opened["open_requests"], opened["open_tunnels"]) == (0, 1)
        for _ in range(3):
            await socket.ping(b"still there?")
            assert (await socket.receive()).type is aiohttp.WSMsgType.PONG
        pinged = await entry(running)
        assert abs(used_at(pinged) - used_at(opened)) < 0.001, "of two readings of the clock"
        await asyncio.sleep(0.01)
        await socket.send_bytes(b"work")
        await socket.receive()
        moved = await entry(running)
        assert used_at(moved) > used_at(opened) + 0.005
        assert moved["open_tunnels"] == 1


async def test_a_worker_that_died_is_knowledge_that_is_lost_and_that_is_said(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (running, _):
        before = await activity(running)
        parent = running.process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children")
        victim, _ = map(int, children.read_text().split())
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(20):
            while (told := await activity(running))["complete"]:
                await asyncio.sleep(0.01)
            assert told["incomplete_because"].startswith("worker ")
            assert told["complete_since"] == told["now"]
            while not (told := await activity(running))["complete"]:
                await asyncio.sleep(0.05)
        moved_s = parse_timestamp(told["started"]) - parse_timestamp(before["started"])
        assert abs(moved_s) < 0.001, "of two readings of the clock"
        assert told["complete_since"] > before["now"]


async def test_a_wish_to_be_kept_awake_is_told_whichever_worker_took_it_and_outlives_it(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (running, _):
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"http://127.0.0.1:{running.http_port}/.sandbox-router/awake",
                headers=HEADERS,
                json={"seconds": 3600},
            ) as response,
        ):
            assert response.status == 200
            promised = parse_timestamp((await response.json())["awake_until"])
        told = await entry(running)
        assert abs(parse_timestamp(told["awake_until"]) - promised) < 2
        assert told["idle_s"] == 0.0
        parent = running.process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children")
        for victim in children.read_text().split():
            os.kill(int(victim), signal.SIGKILL)
        async with asyncio.timeout(20):
            while not (await activity(running))["complete"]:
                await asyncio.sleep(0.05)
        told = await entry(running)
        assert abs(parse_timestamp(told["awake_until"]) - promised) < 2
        assert told["idle_s"] == 0.0


async def test_a_wish_outlives_workers_that_are_killed_right_behind_its_200(tmp_path: Path) -> None:
    async with serving(tmp_path) as (running, _):
        parent = running.process.pid
        workers = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        body = b'{"seconds": 3600}'
        reader, writer = await asyncio.open_connection("127.0.0.1", running.http_port)
        writer.write(
            b"POST /.sandbox-router/awake HTTP/1.1\r\nHost: router\r\nX-Sandbox-ID: box\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        # Nobody has asked for /activity yet, and nobody can any more before they are gone.
        assert (await reader.readexactly(12)).endswith(b" 200")
        for victim in workers:
            os.kill(int(victim), signal.SIGKILL)
        writer.close()
        async with asyncio.timeout(20):
            while not (told := await activity(running))["complete"]:
                await asyncio.sleep(0.05)
        (only,) = told["sandboxes"]
        assert only["name"] == "box"
        left_s = parse_timestamp(only["awake_until"]) - parse_timestamp(told["now"])
        assert 3500 < left_s <= 3600


async def test_the_command_line_says_what_keeps_a_sandbox_awake(tmp_path: Path) -> None:
    async with serving(tmp_path) as (running, _):
        assert await get(running, "/") == 200
        asking = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "router", "explain", "--awake", "default/box"),
            *("--admin", f"127.0.0.1:{running.admin_port}"),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await asking.communicate()
        assert asking.returncode == 0
        assert said.decode().startswith("default/box  uid=-\nlast activity  ")
