"""Requests that are sent before the answers of earlier ones: served in order, held in bounded memory."""

import asyncio

import pytest

from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.wire import settled, until

FLOOD = 16 * 1024 * 1024
HELD_AT_MOST = 2 * 1024 * 1024
"""What the router and the kernel's buffers may hold of a flood, generously."""


async def test_pipelined_requests_are_answered_in_order(router, pod):
    client = await router.connect()
    async with serving(pod):
        client.send(*(request("POST", f"/{n}", body=b"x" * n) for n in range(200)))
        for number in range(200):
            assert (await client.answer("POST")).body == b"/%d" % number
    assert pod.connections == 1


async def test_a_pipelined_request_reaches_the_sandbox_only_after_the_answer_before_it(router, pod):
    client = await router.connect()
    client.send(request("GET", "/1"), request("GET", "/2"))
    sandbox = await pod.accept()
    assert (await sandbox.request()).target == b"/1"
    await settled()
    assert sandbox.unread == b""
    assert pod.connections == 1
    sandbox.send(answer(body=b"one"))
    assert (await sandbox.request()).target == b"/2"
    sandbox.send(answer(body=b"two"))
    assert [(await client.answer()).body, (await client.answer()).body] == [b"one", b"two"]


async def test_errors_and_answers_keep_their_order(router, pod):
    client = await router.connect()
    async with serving(pod):
        client.send(
            request("GET", "/1"),
            request("GET", "/2", sandbox="unknown"),
            request("GET", "/3", token="wrong"),
            request("GET", "/healthz", sandbox=None),
            request("POST", "/4", sandbox="UPPER", body=b"refused"),
            request("GET", "/5"),
        )
        statuses = [(await client.answer()).status for _ in range(6)]
    assert statuses == [200, 404, 401, 200, 400, 200]


async def test_a_malformed_request_behind_good_ones_ends_the_connection_after_their_answers(
    router, pod
):
    client = await router.connect()
    async with serving(pod):
        client.send(request("GET", "/1"), b"NOT HTTP\r\n\r\n", request("GET", "/2"))
        assert (await client.answer()).body == b"/1"
        assert (await client.answer()).status == 400
        assert await client.end() == "eof"


async def test_what_follows_a_request_that_says_close_is_never_served(router, pod):
    client = await router.connect()
    async with serving(pod):
        client.send(request("GET", "/1", ("Connection", "close")), request("DELETE", "/2"))
        assert (await client.answer()).body == b"/1"
        assert await client.end() == "eof"
    assert [outcome.method for outcome in router.outcomes] == [b"GET"]


async def test_requests_behind_one_that_waits_are_held_in_bounded_memory(router, pod):
    router.shrink_buffers()
    client = await router.connect(buffers=8192)
    client.send(request("GET", "/first"))
    sandbox = await pod.accept()
    await sandbox.request()
    one = request("GET", "/" + "x" * 1000)
    client.send(one * (FLOOD // len(one)))
    await settled()
    unsent = client.transport.get_write_buffer_size()
    assert FLOOD - unsent < HELD_AT_MOST


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (request("GET", "/healthz", sandbox=None), 200),
        (request("GET", "/", token="wrong"), 401),
        (request("GET", "/", sandbox="unknown"), 404),
        (request("POST", "/", sandbox="unknown", body=b"x" * 1000), 404),
        (request("GET", "/" + "x" * 100), 200),
    ],
    ids=["health", "unauthenticated", "unknown", "unknown with a body", "served"],
)
async def test_a_client_that_sends_and_never_reads_is_read_no_further(router, pod, one, expected):
    router.shrink_buffers()
    client = await router.connect(buffers=8192)
    client.stop_reading()
    async with serving(pod):
        client.send(one * (FLOOD // len(one)))
        before = -1
        while len(router.outcomes) != before:
            before = len(router.outcomes)
            await asyncio.sleep(0.1)
        assert FLOOD - client.transport.get_write_buffer_size() < HELD_AT_MOST
        client.start_reading()
        for _ in range(before + 100):
            assert (await client.answer()).status == expected


@pytest.mark.parametrize("last", [b"", b"No Header\r\n\r\n"], ids=["waiting", "closing"])
async def test_a_client_that_never_reads_its_refusals_is_given_up_before_an_idle_one(
    start_router, last
):
    router = await start_router(keepalive_timeout_s=600)
    router.shrink_buffers()
    idle, client = await router.connect(), await router.connect(buffers=8192)
    idle.send(request("GET", "/healthz", sandbox=None))
    await idle.answer()
    client.stop_reading()
    client.send(request("GET", "/", token="wrong") * 2000 + last)
    before = -1
    while len(router.outcomes) != before:
        before = len(router.outcomes)
        await asyncio.sleep(0.1)
    router.pass_time(2)  # by then it was looked at
    router.pass_time(31)
    await until(lambda: len(router.clients) == 1)
    idle.send(request("GET", "/healthz", sandbox=None))
    assert (await idle.answer()).status == 200


async def test_a_client_that_reads_late_gets_every_answer(router, pod):
    client = await router.connect(buffers=8192)
    client.stop_reading()
    requests = [request("GET", "/healthz", sandbox=None)] * 5000
    client.send(*requests)
    await settled()
    client.start_reading()
    for _ in requests:
        assert (await client.answer()).status == 200
    async with serving(pod):
        client.send(request("GET", "/after"))
        assert (await client.answer()).body == b"/after"
    await until(lambda: len(router.outcomes) == len(requests) + 1)
