"""The demo's sandboxes, asked directly."""

import json
import signal
import subprocess
import sys
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from router.demo.sandboxes import LISTENING, SANDBOXES, echo_app, hello_app, ticker_app


def client(app: web.Application) -> TestClient:
    return TestClient(TestServer(app))


async def test_hello_tells_what_reached_it():
    async with client(hello_app("box")) as sandbox:
        response = await sandbox.put("/some/path?q=1", data=b"12345", headers={"X-Mine": "yes"})
        text = await response.text()
    assert text.startswith(
        "Hello from sandbox box.\nPUT /some/path?q=1 came with a body of 5 bytes"
    )
    assert "  X-Mine: yes\n" in text


async def test_ticker_ends_after_the_count_asked_for():
    async with client(ticker_app("box")) as sandbox:
        response = await sandbox.get("/events?count=2")
        events = (await response.text()).split("\n\n")
    assert response.content_type == "text/event-stream"
    assert events == [
        'id: 1\nevent: tick\ndata: {"sandbox": "box", "tick": 1}',
        'id: 2\nevent: tick\ndata: {"sandbox": "box", "tick": 2}',
        "",
    ]


@pytest.mark.parametrize("query", ["", "?count=x", "?count=-1"])
async def test_ticker_without_a_count_sends_an_event_at_a_time_for_ever(query):
    async with client(ticker_app("box")) as sandbox, sandbox.get(f"/events{query}") as response:
        first = await response.content.readuntil(b"\n\n")
        assert not response.content.at_eof()
    assert json.loads(first.splitlines()[2].removeprefix(b"data: "))["tick"] == 1


async def test_echo_returns_text_and_bytes_as_they_came():
    async with client(echo_app("box")) as sandbox, sandbox.ws_connect("/ws") as connection:
        await connection.send_str("grüezi")
        assert await connection.receive_str() == "grüezi"
        await connection.send_bytes(b"\x00\xff")
        assert await connection.receive_bytes() == b"\x00\xff"


async def test_the_page_shows_the_sandbox_name_as_text():
    async with client(echo_app("<b>")) as sandbox:
        response = await sandbox.get("/")
        page = await response.text()
    assert response.content_type == "text/html"
    assert "<title>Sandbox &lt;b&gt;</title>" in page
    assert "{{" not in page


@pytest.mark.parametrize("name", SANDBOXES)
def test_each_sandbox_is_a_process_that_says_its_port_and_ends_on_sigterm(name):
    command = [sys.executable, "-m", "router.demo.sandboxes", name, "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
    assert line.startswith(LISTENING)
    assert 0 < int(line.removeprefix(LISTENING)) < 65536
    assert (process.returncode, rest) == (0, "")


def test_a_sandbox_that_takes_its_time_listens_only_then():
    began = time.monotonic()
    command = [sys.executable, "-m", "router.demo.sandboxes", "hello", "0", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(LISTENING)
        assert time.monotonic() - began >= 1
        process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["hello"],
        ["unknown", "0"],
        ["hello", "x"],
        ["hello", "0", "-1"],
        ["hello", "0", "1", "1"],
    ],
)
def test_wrong_arguments_are_answered_with_the_usage(arguments):
    command = [sys.executable, "-m", "router.demo.sandboxes", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert (
        ended.stderr == "usage: python -m router.demo.sandboxes hello|ticker|echo PORT [SECONDS]\n"
    )
