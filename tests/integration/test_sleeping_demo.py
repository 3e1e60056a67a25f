"""The demo of a sandbox that sleeps, as its user runs it: real processes that end and start, and every printed command."""

import asyncio
import os
import re
import shutil
import signal

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
    r"GET / +echo +200 .* ok",
    r"\(it is suspended\) +echo +- +process \d+ has ended, .* ok",
    r"GET / without the right to wake +echo +409 +sandbox_suspended, .* ok",
    r"GET / as a prefetch +echo +409 +sandbox_suspended, .* ok",
    r"WebSocket /ws that reconnects +echo +409 +sandbox_suspended, .* ok",
    r"GET / that wakes it +echo +200 .* ([3-9]\d{3}|\d{5}) ms +ok",
    r"GET / at the same moment +echo +200 +its page; 1 process started for both .* ok",
    r"\(the router's log\) +echo +- +a request woke a sandbox sandbox=default/echo .* outcome=woken .* ok",
    r"GET /metrics .* ok",
]


@pytest.fixture
async def serving():
    async with running("--sleep") as demo:
        await demo.until(r"^Serving until Ctrl-C")
        yield demo


async def test_once_ends_after_the_table_with_every_answer_right_and_nothing_left_running():
    async with running("--sleep", "--once") as demo:
        await demo.until(r"its admin port")
        handles = [os.pidfd_open(pid) for pid in children_of(demo.process.pid)]
        assert len(handles) == 3
        assert await demo.end() == 0, demo.text
    assert_all_end(handles)
    for row in RIGHT_ROWS:
        assert re.search(row, demo.text), demo.text
    assert "Traceback" not in demo.text


@pytest.mark.skipif(shutil.which("curl") is None, reason="the printed commands use curl")
async def test_every_printed_command_works_when_pasted(serving):
    assert len(children_of(serving.process.pid)) == 2, "it sleeps again"
    token, *commands = commands_in(serving.text)
    shown = [await shell(token, command) for command in commands]
    assert [status for status, _ in shown] == [0] * len(commands), shown
    prefetch, guest, route, call, suspend, metrics = (out for _, out in shown)
    assert prefetch.startswith("409 after ")
    assert "x-sandbox-router-error: sandbox_suspended" in guest.lower()
    assert "The request wakes the sandbox" in route
    assert re.match(r"200 after ([3-9]|\d\d)\.", call)
    assert suspend == "echo is suspended\n"
    assert re.search(r'\{outcome="woken"\} 2(\.0)?$', metrics, re.MULTILINE)
    assert len(children_of(serving.process.pid)) == 2


async def test_a_person_sees_who_sleeps_and_the_waiting_page_and_then_the_app(serving):
    link = (await serving.until(r"^  (http://sandbox\.localhost:\S+)"))[1]
    async with Person(link) as person:
        page = await person.begin(link)
        assert named_on(page) == ["echo", "hello"]
        assert 'action="/.sandbox-router/wake?sandbox=default/echo&amp;port=8888"' in page
        status, text = await person.opened("echo")
        assert status == 503
        assert '<meta http-equiv="refresh"' in text
        while status == 503:  # as the page itself does
            status, text = await person.get("echo", "/")
        assert (status, "Sandbox <code>echo</code>" in text) == (200, True)
        async with person.websocket("echo", "/ws") as connection:
            await connection.send_str("hi")
            assert await connection.receive_str() == "hi"


async def test_a_person_wakes_a_sandbox_without_opening_it(serving):
    link = (await serving.until(r"^  (http://sandbox\.localhost:\S+)"))[1]
    async with Person(link) as person:
        await person.begin(link)
        page = await person.submit("/.sandbox-router/wake?sandbox=default/echo&port=8888")
        async with asyncio.timeout(30):
            while "suspended" in page:
                await asyncio.sleep(0.2)
                page = await person.home()
        assert len(children_of(serving.process.pid)) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_with_0_and_every_process_with_it(serving, number):
    handles = [os.pidfd_open(pid) for pid in children_of(serving.process.pid)]
    assert len(handles) == 2, "one sandbox and the router; the other sandbox sleeps"
    serving.process.send_signal(number)
    assert await serving.end() == 0, serving.text
    assert_all_end(handles)
    assert "Traceback" not in serving.text


async def test_ctrl_c_while_a_sandbox_wakes_leaves_nothing_behind():
    async with running("--sleep") as demo:
        await demo.until(r"its admin port")
        before = set(children_of(demo.process.pid))
        while not (woken := set(children_of(demo.process.pid)) - before):
            await asyncio.sleep(0.02)
        handles = [os.pidfd_open(pid) for pid in children_of(demo.process.pid)]
        demo.process.send_signal(signal.SIGINT)
        assert await demo.end() == 130, demo.text
    assert woken
    assert_all_end(handles)
    assert "Traceback" not in demo.text


async def test_no_process_outlives_a_demo_that_was_killed(serving):
    handles = [os.pidfd_open(pid) for pid in children_of(serving.process.pid)]
    serving.process.kill()
    await serving.end()
    assert_all_end(handles)
