"""A router whose log nobody reads: its pipe is full, and it answers as before."""

import asyncio
import json
import os
import sys

import pytest

SANDBOXES = "sandboxes:\n  - {{name: box, host: 127.0.0.1, ports: {{8888: {port}}}}}\n"
GET = (
    b"GET /"
    + b"x" * 200
    + b" HTTP/1.1\r\nHost: x\r\nX-Sandbox-ID: box\r\nConnection: close\r\n\r\n"
)
PIPE_BYTES = 64 * 1024
DEADLINE_S = 30.0


async def answer_ok(reader, writer):
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def ask(port, request):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.fixture
async def router(tmp_path):
    """Yields a router's process and its two ports. One pipe takes both its logs, of which only the beginning is read."""
    sandbox = await asyncio.start_server(answer_ok, "127.0.0.1", 0)
    table = tmp_path / "sandboxes.yaml"
    table.write_text(SANDBOXES.format(port=sandbox.sockets[0].getsockname()[1]))
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "serve", "--discovery=file", "--auth=none"),
        *("--http-bind=127.0.0.1:0", "--admin-bind=127.0.0.1:0", f"--sandboxes-file={table}"),
        *("--drain-delay=0", "--log-level=debug"),
        stdout=writing,
        stderr=writing,
    )
    os.close(writing)
    try:
        async with asyncio.timeout(DEADLINE_S):
            http, admin = await asyncio.to_thread(ports_said_in, reading)
        yield process, http, admin
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(reading)
        sandbox.close()


def ports_said_in(descriptor):
    said = b""
    while b'"listening"' not in said or not said.endswith(b"\n"):
        said += os.read(descriptor, 4096)
    for line in said.splitlines():
        told = json.loads(line)
        if told["message"] == "listening":
            return [int(told[which][0].rpartition(":")[2]) for which in ("http", "admin")]
    raise AssertionError("it said no ports")


async def fill_the_log(http, admin):
    """Asks until twice as much was logged as the pipe holds: a line of the log, one of the access log each time."""
    logged = 0
    while logged < 2 * PIPE_BYTES:
        assert b" 400 " in await ask(admin, b"BREW / HTTP/9\r\n\r\n")
        assert (await ask(http, GET)).endswith(b"ok")
        logged += len(GET)


async def test_requests_and_probes_are_answered_while_nobody_reads_the_log(router):
    _, http, admin = router

    await fill_the_log(http, admin)

    assert (await ask(http, GET)).endswith(b"ok")
    health = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert b'"ok"' in await ask(admin, health)


async def test_it_ends_when_it_is_told_to_though_nobody_reads_its_last_lines(router):
    process, http, admin = router
    await fill_the_log(http, admin)

    process.terminate()

    async with asyncio.timeout(DEADLINE_S):
        assert await process.wait() == 0
