"""Answers that come before their request has ended."""

import asyncio

import pytest

from tests.integration.proxy.conftest import open_descriptors
from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.wire import settled, until

CHUNKED = ("Transfer-Encoding", "chunked")


async def test_an_early_refusal_reaches_a_client_that_still_uploads(router, pod):
    client = await router.connect()
    client.send(request("PUT", "/", ("Content-Length", "50000000")), b"x" * 100_000)
    sandbox = await pod.accept()
    await sandbox.head()
    sandbox.send(answer("413 Content Too Large", body=b"too much"))
    told = await client.answer("PUT")
    assert (told.status, told.body, told.code) == (413, b"too much", "")
    assert await client.end() == "eof"
    await sandbox.rest()
    assert router.pool.idle_count == 0


async def test_a_little_that_is_left_of_an_upload_is_thrown_away_and_the_connection_stays(
    router, pod
):
    client = await router.connect()
    client.send(request("PUT", "/", ("Content-Length", "1000")), b"x" * 10)
    sandbox = await pod.accept()
    await sandbox.head()
    await sandbox.read(10)
    sandbox.send(answer("403 Forbidden", body=b"no"))
    assert (await client.answer("PUT")).body == b"no"
    await sandbox.rest()
    await client.send_apart(b"y" * 500, b"z" * 490 + request("GET", "/next")[:10])
    client.send(request("GET", "/next")[10:])
    fresh = await pod.accept()
    assert (await fresh.request()).target == b"/next"
    fresh.send(answer(body=b"ok"))
    assert (await client.answer()).body == b"ok"


async def test_nothing_left_of_a_chunked_upload_is_read_as_a_request(router, pod):
    client = await router.connect()
    client.send(request("PUT", "/", CHUNKED), b"3\r\nabc\r\n")
    sandbox = await pod.accept()
    await sandbox.head()
    await sandbox.read(8)
    sandbox.send(answer("403 Forbidden", body=b"no"))
    assert (await client.answer("PUT")).body == b"no"
    client.send(request("DELETE", "/smuggled"))
    assert await client.end() in ("eof", "reset")
    assert pod.connections == 1


async def test_an_upload_goes_on_under_a_streaming_answer(router, pod):
    client = await router.connect()
    client.send(request("POST", "/", ("Content-Length", "6")), b"ab")
    sandbox = await pod.accept()
    await sandbox.head()
    assert await sandbox.read(2) == b"ab"
    sandbox.send(answer(200, ("Content-Length", "6")), b"AB")
    assert (await client.head()).status == 200
    assert await client.read(2) == b"AB"
    client.send(b"cdef")
    assert await sandbox.read(4) == b"cdef"
    sandbox.send(b"CDEF")
    assert await client.read(4) == b"CDEF"
    client.send(request("GET", "/next"))
    assert (await sandbox.request()).target == b"/next"
    sandbox.send(answer())
    await client.answer()
    assert pod.connections == 1


async def test_a_client_that_only_uploads_gets_its_answer_before_the_end(router, pod):
    client = await router.connect()
    client.send(request("PUT", "/", ("Content-Length", str(10**9))), b"x" * 1_000_000)
    async with serving(pod, by=_refuse_at_once):
        told = await client.answer("PUT")
        assert told.status == 403
        client.send(b"x" * 1_000_000)
        assert await client.end() in ("eof", "reset")


async def _refuse_at_once(wire):
    await wire.head()
    wire.send(answer("403 Forbidden", ("Connection", "close"), body=b"no"))
    await settled()
    wire.close()


async def test_a_sandbox_that_answers_says_no_more_and_reads_nothing_keeps_no_socket(router, pod):
    before = open_descriptors()["socket"]
    client = await router.connect()
    client.send(request("PUT", "/", ("Content-Length", str(10**9))))
    sandbox = await pod.accept()
    sandbox.stop_reading()
    client.send(b"x" * 30_000_000)
    await _stalls(client)
    sandbox.send(answer(length=False), b"enough")
    sandbox.half_close()
    assert (await client.answer("PUT")).body == b"enough"
    client.reset()
    of_this_test = 1  # the sandbox's end
    await until(lambda: open_descriptors()["socket"] == before + of_this_test)


async def test_a_client_that_goes_on_uploading_for_ever_is_cut_off(router, pod):
    client = await router.connect()
    client.send(request("PUT", "/", ("Content-Length", str(10**12))))
    sandbox = await pod.accept()
    await sandbox.head()
    sandbox.send(answer("403 Forbidden", body=b"no"))
    assert (await client.answer("PUT")).status == 403
    for _ in range(3):
        client.send(b"x" * 1000)
        await settled()
    router.pass_time(3)
    await until(lambda: len(router.clients) == 0)


@pytest.mark.parametrize("size", [10, 60_000, 10**9])
@pytest.mark.parametrize(
    ("changes", "status"), [({"token": "no"}, 401), ({"sandbox": "unknown"}, 404)]
)
async def test_a_refused_upload_leaves_no_byte_that_is_taken_for_a_request(
    router, pod, size, changes, status
):
    client = await router.connect()
    client.send(request("POST", "/", ("Content-Length", str(size)), **changes))
    told = await client.answer("POST")
    assert told.status == status
    smuggled = request("DELETE", "/smuggled") + b"x" * 70_000
    if size <= 65_536:
        client.send(smuggled[:size].ljust(size, b"x"), request("GET", "/real"))
        async with serving(pod):
            assert (await client.answer()).body == b"/real"
    else:
        assert told.get("Connection") == b"close"
        client.send(smuggled)
        await client.rest()
    assert [outcome.method for outcome in router.outcomes if outcome.status == 200] in (
        [],
        [b"GET"],
    )


async def test_an_upload_that_stops_arriving_is_408(start_router, pod):
    router = await start_router(stream_idle_timeout_s=300)
    router.knows(pod)
    client = await router.connect()
    client.send(request("POST", "/", ("Content-Length", "100")), b"some")
    sandbox = await pod.accept()
    await sandbox.head()
    await sandbox.read(4)
    router.pass_time(299)
    client.send(b"more")
    assert await sandbox.read(4) == b"more"
    router.pass_time(299)
    await settled()
    assert client.unread == b""
    router.pass_time(2)
    told = await client.answer("POST")
    assert (told.status, told.code) == (408, "request_timeout")
    assert await client.end() == "eof"
    assert await sandbox.end() in ("eof", "reset")
    outcome = await router.outcome()
    assert (outcome.code, outcome.upstream_error) == ("request_timeout", "")


async def test_an_upload_that_the_sandbox_does_not_take_is_504(start_router, pod):
    router = await start_router(stream_idle_timeout_s=300)
    router.knows(pod)
    client = await router.connect()
    client.send(request("POST", "/", ("Content-Length", str(10**8))))
    sandbox = await pod.accept()
    sandbox.stop_reading()
    client.send(b"x" * 30_000_000)
    await _stalls(client)
    router.pass_time(301)
    told = await client.answer("POST")
    assert (told.status, told.code) == (504, "sandbox_timeout")
    outcome = await router.outcome()
    assert outcome.upstream_error == "response_timeout"


async def _stalls(client) -> None:
    before = -1
    while (left := client.transport.get_write_buffer_size()) != before:
        before = left
        await asyncio.sleep(0.05)


async def test_the_answer_to_an_upload_has_its_time_from_the_uploads_end(start_router, pod):
    router = await start_router(proxy_timeout_s=180)
    router.knows(pod)
    client = await router.connect()
    client.send(request("POST", "/", ("Content-Length", "2")), b"a")
    sandbox = await pod.accept()
    await sandbox.head()
    await sandbox.read(1)
    router.pass_time(170)
    client.send(b"b")
    await sandbox.read(1)
    router.pass_time(170)
    await settled()
    assert client.unread == b""
    router.pass_time(11)
    assert (await client.answer("POST")).status == 504
