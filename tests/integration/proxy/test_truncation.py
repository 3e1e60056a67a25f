"""A message cut short never looks complete, on either side."""

import pytest

from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.wire import CutShortError, settled, until

CHUNKED = ("Transfer-Encoding", "chunked")
CUT = {
    "length": answer(200, ("Content-Length", "100")) + b"only this",
    "chunked": answer(200, CHUNKED, body=b"9\r\nonly this\r\n"),
    "inside a chunk": answer(200, CHUNKED, body=b"99\r\nonly this"),
    "before the last empty line": answer(200, CHUNKED, body=b"9\r\nonly this\r\n0\r\n"),
}


@pytest.mark.parametrize("how", ["leaves", "crashes"])
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("framing", CUT)
async def test_an_answer_cut_short_reaches_the_client_cut_short(router, pod, framing, version, how):
    async def cut(wire):
        await wire.request()
        wire.send(CUT[framing])
        await settled()
        wire.close() if how == "leaves" else wire.reset()

    client = await router.connect()
    async with serving(pod, by=cut):
        client.send(request(version=version))
        with pytest.raises(CutShortError) as short:
            await client.answer()
    # Without chunks or a length the end alone would make the body whole.
    is_delimited = framing == "length" or version == "HTTP/1.1"
    assert short.value.how == ("eof" if is_delimited else "reset")
    assert short.value.message.body == b"only this"
    outcome = await router.outcome()
    assert (outcome.status, outcome.code) == (200, "response_cut")
    assert outcome.upstream_error == "response_cut"


async def test_a_crash_inside_an_answer_without_a_length_is_visible(router, pod):
    for version in ("HTTP/1.1", "HTTP/1.0"):

        async def crash(wire):
            await wire.request()
            wire.send(answer(length=False), b"only this")
            await settled()
            wire.reset()

        client = await router.connect()
        async with serving(pod, by=crash):
            client.send(request(version=version))
            with pytest.raises(CutShortError) as short:
                await client.answer()
        assert short.value.how == ("eof" if version == "HTTP/1.1" else "reset")
        assert short.value.message.body == b"only this"


async def test_what_came_before_a_cut_is_delivered_to_a_slow_client_too(router, pod):
    body = b"x" * 40_000
    router.shrink_buffers()
    for number, version in enumerate(("HTTP/1.1", "HTTP/1.0"), 1):

        async def crash(wire):
            await wire.request()
            wire.send(answer(length=False), body)
            await settled()
            wire.reset()

        client = await router.connect(buffers=4096)
        client.stop_reading()
        async with serving(pod, by=crash):
            client.send(request(version=version))
            await until(lambda: not router.pool.active_count)
            client.start_reading()
            with pytest.raises(CutShortError) as short:
                await client.answer()
        assert (await router.outcome(number)).code == "response_cut"
        assert short.value.how == ("eof" if version == "HTTP/1.1" else "reset")
        assert short.value.message.body == body


@pytest.mark.parametrize(
    "broken",
    [
        answer(200, CHUNKED, body=b"9\r\nonly this\r\nZZ\r\n"),
        answer(200, CHUNKED, body=b"9\r\nonly this!\r\n0\r\n\r\n"),
        answer(200, CHUNKED, body=b"9\r\nonly this\r\n0\r\nno colon\r\n\r\n"),
        answer(200, CHUNKED, body=b"9\r\nonly this\n0\r\n\r\n"),
    ],
)
async def test_an_answer_that_breaks_its_framing_is_cut(router, pod, broken):
    async def say(wire):
        await wire.request()
        at = broken.index(b"only this") + 9
        wire.send(broken[:at])
        await settled()
        wire.send(broken[at:])
        assert await wire.end() in ("eof", "reset")

    client = await router.connect()
    async with serving(pod, by=say):
        client.send(request())
        with pytest.raises(CutShortError) as short:
            await client.answer()
        await settled()
    assert short.value.how == "eof"
    assert short.value.message.body == b"only this"


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("how", ["close", "half_close", "reset"])
async def test_a_request_cut_short_never_looks_complete_to_the_sandbox(router, pod, framing, how):
    client = await router.connect()
    if framing == "length":
        client.send(request("POST", "/", ("Content-Length", "100")), b"only this")
    else:
        client.send(request("POST", "/", CHUNKED), b"9\r\nonly this\r\n")
    sandbox = await pod.accept()
    await sandbox.head()
    await sandbox.read_through(b"only this")
    getattr(client, how)()
    rest, ended = await sandbox.rest()
    assert rest in (b"", b"\r\n")
    assert ended in ("eof", "reset")


async def test_a_broken_chunk_in_a_request_is_400_and_never_complete_at_the_sandbox(router, pod):
    client = await router.connect()
    client.send(request("POST", "/", CHUNKED), b"3\r\nabc\r\n")
    sandbox = await pod.accept()
    await sandbox.head()
    assert await sandbox.read(8) == b"3\r\nabc\r\n"
    client.send(b"nonsense\r\n", request("GET", "/smuggled"))
    told = await client.answer("POST")
    assert (told.status, told.code, told.get("Connection")) == (400, "bad_request", b"close")
    assert await client.end() == "eof"
    assert await sandbox.end() in ("eof", "reset")
    assert pod.connections == 1


async def test_a_half_closed_http_1_0_client_is_not_told_that_a_cut_answer_is_whole(router, pod):
    client = await router.connect()
    client.send(request(version="HTTP/1.0"))
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(length=False), b"the first half")
    assert (await client.head()).status == 200
    await client.read_through(b"half")
    client.half_close()
    assert await client.end() == "reset"
    assert await sandbox.end() in ("eof", "reset")


async def test_a_slow_reader_whose_time_is_up_sees_that_its_answer_is_cut(start_router, pod):
    router = await start_router(stream_idle_timeout_s=60)
    router.knows(pod)
    router.shrink_buffers()
    client = await router.connect(buffers=8192)
    client.stop_reading()
    client.send(request(version="HTTP/1.0"))

    async def say_much(wire):
        await wire.request()
        wire.send(answer(length=False), b"x" * 500_000)
        wire.close()

    async with serving(pod, by=say_much):
        await settled()
        await settled()
        router.pass_time(61)
        client.start_reading()
        with pytest.raises(CutShortError) as short:
            await client.answer()
    assert short.value.how == "reset"


async def test_a_slow_reader_of_the_last_bytes_sees_that_they_are_cut(router, pod):
    router.shrink_buffers()
    client = await router.connect(buffers=8192)
    client.stop_reading()
    body = b"x" * 24_000  # more than the kernel holds, and the router still reads on

    async def say_and_leave(wire):
        await wire.request()
        wire.send(answer(length=False), body)
        wire.close()

    async with serving(pod, by=say_and_leave):
        client.send(request(version="HTTP/1.0"))
        await router.outcome()
        await settled()
        router.pass_time(31)
        router.pass_time(31)
        client.start_reading()
        with pytest.raises(CutShortError) as short:
            await client.answer()
    assert short.value.how == "reset"
    assert len(short.value.message.body) < len(body)
