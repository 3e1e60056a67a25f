"""The demo as its user runs it: real processes, real requests, and every printed command pasted into a shell."""

import os
import re
import shutil
import signal
import socket

import pytest

from tests.integration.demo_process import (
    assert_all_end,
    children_of,
    commands_in,
    running,
    shell,
)
from tests.integration.person import Person, named_on

RIGHT_ROWS = [
    r"GET / +hello +200 .* ok",
    r"GET /events\?count=3 +ticker +200 .* ok",
    r"WebSocket /ws +echo +101 .* ok",
    r"GET / without token +hello +401 .* ok",
]


@pytest.fixture
async def serving():
    async with running() as demo:
        await demo.until(r"^Serving until Ctrl-C")
        yield demo


async def test_once_ends_after_the_table_with_every_answer_right():
    async with running("--once") as demo:
        assert await demo.end() == 0, demo.text
    for row in RIGHT_ROWS:
        assert re.search(row, demo.text), demo.text


@pytest.mark.skipif(shutil.which("curl") is None, reason="the printed commands use curl")
async def test_every_printed_command_works_when_pasted(serving):
    lines = commands_in(serving.text)
    token, *commands = lines
    shown = [await shell(token, command) for command in commands]
    assert [status for status, _ in shown] == [0] * len(commands), shown
    by_header, by_path, stream, websocket, refusal, route, metrics = (out for _, out in shown)
    assert by_header.startswith("Hello from sandbox hello.")
    assert "<title>Sandbox echo</title>" in by_path
    assert stream.count("event: tick") == 5
    assert websocket == "Hello from the shell\n"
    assert "401" in refusal.splitlines()[0]
    assert "x-sandbox-router-error: unauthenticated" in refusal.lower()
    assert '"outcome"' in route
    assert "sandbox_router_requests_total{" in metrics


async def test_the_token_and_the_routing_headers_stay_with_the_router(serving):
    lines = commands_in(serving.text)
    _, told = await shell(lines[0], lines[1])
    assert "authorization" not in told.lower()
    assert "x-sandbox" not in told.lower()


async def test_the_link_shows_a_person_their_sandboxes_and_lets_them_in(serving):
    link = (await serving.until(r"^  (http://sandbox\.localhost:\S+)"))[1]
    async with Person(link) as person:
        assert named_on(await person.begin(link)) == ["echo", "hello", "ticker"]
        assert "Sandbox <code>echo</code>" in await person.open("echo")
        async with person.websocket("echo", "/ws") as connection:
            await connection.send_str("hi")
            assert await connection.receive_str() == "hi"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the printed commands use curl")
async def test_another_link_is_made_by_the_printed_command(serving):
    command = (await serving.until(r"^  (\S+ -m router token home-link .*)"))[1]
    status, link = await shell(":", command)
    assert status == 0
    async with Person(link) as person:
        assert named_on(await person.begin(link.strip())) == ["echo", "hello", "ticker"]


async def test_the_router_log_is_shown_while_it_serves(serving):
    lines = commands_in(serving.text)
    await shell(lines[0], lines[1] + "seen-in-the-log")
    await serving.until("/seen-in-the-log")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_with_0_and_every_process_with_it(serving, number):
    handles = [os.pidfd_open(pid) for pid in children_of(serving.process.pid)]
    assert len(handles) == 4
    serving.process.send_signal(number)
    assert await serving.end() == 0, serving.text
    assert_all_end(handles)
    assert "Traceback" not in serving.text


async def test_no_process_outlives_a_demo_that_was_killed(serving):
    handles = [os.pidfd_open(pid) for pid in children_of(serving.process.pid)]
    serving.process.kill()
    await serving.end()
    assert_all_end(handles)


async def test_a_process_that_ends_by_itself_ends_the_demo_with_1(serving):
    os.kill(children_of(serving.process.pid)[0], signal.SIGKILL)
    assert await serving.end() == 1
    assert "FAILED to keep sandbox hello running: it ended with -9" in serving.text


async def test_a_taken_port_is_said_and_another_one_used():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        async with running("--once", "--port", str(taken)) as demo:
            assert await demo.end() == 0, demo.text
    assert f"(port {taken} is taken)" in demo.text
