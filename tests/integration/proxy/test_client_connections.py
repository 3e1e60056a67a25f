"""Clients' connections: kept, closed, and how long each may last."""

import asyncio

import pytest

from tests.integration.proxy.messages import answer, chunked, request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.wire import settled


async def test_a_connection_carries_one_request_after_another(router, pod):
    client = await router.connect()
    async with serving(pod):
        for number in range(10):
            client.send(request("GET", f"/{number}"))
            told = await client.answer()
            assert (told.status, told.body) == (200, b"/%d" % number)
            assert told.get("Connection") is None


async def test_a_request_that_says_close_is_the_last(router, pod):
    client = await router.connect()
    async with serving(pod):
        client.send(request("GET", "/", ("Connection", "close")))
        assert (await client.answer()).get("Connection") == b"close"
    assert await client.end() == "eof"


async def test_the_sandbox_closing_its_connection_is_no_reason_to_close_the_clients(router, pod):
    client = await router.connect()
    async with serving(pod, lambda _: answer(200, ("Connection", "close"), body=b"a")):
        for _ in range(3):
            client.send(request())
            told = await client.answer()
            assert (told.body, told.get("Connection")) == (b"a", None)


async def test_an_http_1_0_connection_ends_after_its_answer(router, pod):
    client = await router.connect()
    async with serving(pod):
        client.send(request(version="HTTP/1.0"))
        assert (await client.answer()).body == b"/"
    assert await client.end() == "eof"


async def test_an_http_1_0_connection_stays_when_the_client_asks_for_it(router, pod):
    client = await router.connect()
    async with serving(pod):
        for _ in range(3):
            client.send(request("GET", "/", ("Connection", "keep-alive"), version="HTTP/1.0"))
            told = await client.answer()
            assert (told.body, told.get("Connection")) == (b"/", b"keep-alive")


async def test_an_http_1_0_connection_ends_when_the_answer_has_no_length(router, pod):
    client = await router.connect()
    body = chunked(b"ab", b"cd")
    async with serving(pod, lambda _: answer(200, ("Transfer-Encoding", "chunked"), body=body)):
        client.send(request("GET", "/", ("Connection", "keep-alive"), version="HTTP/1.0"))
        told = await client.answer()
    assert told.body == b"abcd"
    assert told.get("Transfer-Encoding") is None


async def test_an_idle_connection_is_closed_after_keepalive_timeout(start_router, pod):
    router = await start_router(keepalive_timeout_s=620)
    router.knows(pod)
    client = await router.connect()
    async with serving(pod):
        router.pass_time(600)
        client.send(request())
        await client.answer()
        router.pass_time(600)
        await settled()
        assert client.ended == ""
        router.pass_time(21)
        assert await client.end() == "eof"


async def test_a_connection_that_asks_no_more_is_closed_after_keepalive_timeout(start_router):
    router = await start_router(header_timeout_s=10, keepalive_timeout_s=600)
    client = await router.connect()
    client.send(request("GET", "/healthz", sandbox=None))
    assert (await client.answer()).status == 200
    router.pass_time(599)
    await settled()
    assert client.ended == ""
    router.pass_time(2)
    assert await client.end() == "eof"


async def test_a_head_that_does_not_end_is_refused_after_header_timeout_while_others_are_served(
    start_router, pod
):
    router = await start_router(header_timeout_s=10)
    router.knows(pod)
    slow = await router.connect()
    slow.send(request()[:-2])
    await settled()
    async with serving(pod):
        assert (await router.ask(request())).status == 200
        router.pass_time(9)
        slow.send(b"X-Late: yes\r\n")
        assert (await router.ask(request())).status == 200
        router.pass_time(2)
        told = await slow.answer()
        assert (told.status, told.code) == (408, "request_timeout")
        assert await slow.end() == "eof"
        assert (await router.ask(request())).status == 200
    assert (await router.outcome(3)).code == "request_timeout"


async def test_a_head_that_comes_byte_by_byte_is_served(router, pod):
    client = await router.connect()
    client.without_delay()
    async with serving(pod):
        for byte in request("POST", "/slow", body=b"hello"):
            client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.answer("POST")).body == b"/slow"


@pytest.mark.parametrize("ending", [[b"\r\n"], [b"\r", b"\n"], [b"\r\n\r", b"\n"], [b"\r\n\r\n"]])
async def test_empty_lines_between_requests_are_ignored(start_router, pod, ending):
    router = await start_router(header_timeout_s=10)
    router.knows(pod)
    client = await router.connect()
    async with serving(pod):
        client.send(request())  # who has never asked gains no time by empty lines
        await client.answer()
        for number in range(3):
            await client.send_apart(*ending)
            router.pass_time(11)
            client.send(request("GET", f"/{number}"))
            assert (await client.answer()).body == b"/%d" % number


async def test_an_empty_connection_leaves_nothing_behind(router):
    for _ in range(3):
        client = await router.connect()
        client.half_close()
        assert await client.end() == "eof"
