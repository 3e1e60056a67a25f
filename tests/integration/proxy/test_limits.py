"""Limits of sizes, counts and times."""

import pytest

from tests.integration.proxy.messages import answer, chunked, request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.upgrades import opened
from tests.integration.proxy.wire import CutShortError, settled, until

CHUNKED = ("Transfer-Encoding", "chunked")


async def test_a_body_that_is_too_long_by_its_length_is_413_before_the_sandbox_hears_of_it(
    start_router, pod
):
    router = await start_router(max_body_bytes=1000)
    router.knows(pod)
    client = await router.connect()
    client.send(request("POST", "/", body=b"x" * 1001))
    told = await client.answer("POST")
    assert (told.status, told.code) == (413, "body_too_large")
    async with serving(pod):
        client.send(request("POST", "/next", body=b"x" * 1000))
        assert (await client.answer("POST")).body == b"/next"
    assert pod.connections == 1


async def test_a_chunked_body_that_is_too_long_is_413_and_never_complete_at_the_sandbox(
    start_router, pod
):
    router = await start_router(max_body_bytes=1000)
    router.knows(pod)
    client = await router.connect()
    client.send(request("POST", "/", CHUNKED), b"1f4\r\n" + b"x" * 500 + b"\r\n")
    sandbox = await pod.accept()
    await sandbox.head()
    await sandbox.read(5 + 500 + 2)
    client.send(b"1f5\r\n" + b"x" * 501 + b"\r\n0\r\n\r\n", request("DELETE", "/behind"))
    told = await client.answer("POST")
    assert (told.status, told.code, told.get("Connection")) == (413, "body_too_large", b"close")
    rest, _ = await sandbox.rest()
    assert b"0\r\n\r\n" not in rest
    assert await client.end() == "eof"
    assert (await router.outcome()).bytes_from_client > 1000


async def test_a_chunked_body_of_exactly_the_limit_passes(start_router, pod):
    router = await start_router(max_body_bytes=1000)
    router.knows(pod)
    async with serving(pod):
        told = await router.ask(request("POST", "/", CHUNKED, body=chunked(b"x" * 999, b"y")))
    assert told.status == 200


async def test_a_limit_on_bodies_is_none_on_answers_or_tunnels(start_router, pod):
    router = await start_router(max_body_bytes=10)
    router.knows(pod)
    client, sandbox = await opened(router, pod, protocol="other")
    client.send(b"x" * 10_000)
    assert await sandbox.read(10_000) == b"x" * 10_000
    async with serving(pod, lambda _: answer(body=b"y" * 10_000)):
        assert len((await router.ask(request())).body) == 10_000


async def test_a_sandbox_has_no_more_open_requests_than_allowed(start_router, pod):
    router = await start_router(max_requests_per_sandbox=2)
    router.knows(pod)
    router.knows(pod, name="other", uid="pod-2")
    busy = [await router.connect() for _ in range(2)]
    for client in busy:
        client.send(request())
    sandboxes = [await pod.accept() for _ in busy]
    refused = await router.connect()
    refused.send(request())
    told = await refused.answer()
    assert (told.status, told.code, told.get("Retry-After")) == (429, "too_many_requests", b"1")
    async with serving(pod):
        assert (await router.ask(request(sandbox="other"))).status == 200
        await sandboxes[0].request()
        sandboxes[0].send(answer(200, ("Connection", "close")))
        await busy[0].answer()
        refused.send(request())
        assert (await refused.answer()).status == 200


@pytest.mark.parametrize("how", ["answered", "client left", "sandbox crashed", "refused"])
async def test_a_place_is_given_back_however_a_request_ends(start_router, pod, how):
    router = await start_router(max_requests_per_sandbox=1, max_tunnels_per_client=1)
    router.knows(pod)
    for _ in range(3):
        client = await router.connect()
        client.send(request("GET", "/", ("X-Sandbox-UID", "wrong" if how == "refused" else "")))
        if how != "refused":
            sandbox = await pod.accept()
            await sandbox.request()
        if how == "answered":
            sandbox.send(answer(200, ("Connection", "close")))
        elif how == "client left":
            client.reset()
            await sandbox.rest()
            sandbox.close()
            await until(lambda: not router.admission.slots.requests_by_sandbox._taken)
            continue
        elif how == "sandbox crashed":
            sandbox.reset()
        assert (await client.answer()).status in (200, 404, 502)
    assert not router.admission.slots.requests_by_sandbox._taken


async def test_over_max_connections_a_client_is_told_and_closed_when_all_are_busy(
    start_router, pod
):
    router = await start_router(max_connections=2)
    router.knows(pod)
    busy = [await router.connect() for _ in range(2)]
    for client in busy:
        client.send(request())
        await (await pod.accept()).request()
    third = await router.connect()
    check = await router.connect()
    check.send(request("GET", "/healthz", sandbox=None))
    assert (await check.answer()).status == 200
    told = await third.answer()
    assert (told.status, told.code, told.get("Retry-After")) == (503, "overloaded", b"1")
    assert told.get("Connection") == b"close"
    assert await third.end() == "eof"
    assert router.metric("connections_refused_total") == 1, "the check was answered"
    for client in busy:
        client.close()


async def test_silent_connections_make_room_for_whoever_asks(start_router, pod):
    router = await start_router(max_connections=2)
    router.knows(pod)
    silent = [await router.connect() for _ in range(2)]
    async with serving(pod):
        assert (await router.ask(request())).status == 200
    await until(lambda: any(client.ended for client in silent))


async def test_a_connection_that_never_asks_lives_for_the_header_timeout(start_router):
    router = await start_router(header_timeout_s=10, keepalive_timeout_s=600)
    silent = await router.connect()
    await until(lambda: len(router.clients) == 1)
    router.pass_time(11)
    assert await silent.end() == "eof"


async def test_a_refused_client_that_stays_is_cut_off(start_router, pod):
    router = await start_router(max_connections=1)
    router.knows(pod)
    busy = await router.connect()
    busy.send(request())
    await (await pod.accept()).request()
    refused = await router.connect()
    await refused.answer()
    refused.send(request() * 10)
    await settled()
    router.pass_time(3)
    await until(lambda: len(router.deadlines._watched) == 1)
    busy.close()


async def test_a_request_line_of_the_limit_passes_and_one_byte_more_is_414(start_router, pod):
    router = await start_router(max_request_line_bytes=200)
    router.knows(pod)
    target = "/" + "x" * (200 - len("GET / HTTP/1.1"))
    async with serving(pod):
        assert (await router.ask(request("GET", target))).status == 200
    told = await router.ask(request("GET", target + "x"))
    assert (told.status, told.code, told.get("Connection")) == (414, "uri_too_long", b"close")


async def test_a_head_of_the_limit_passes_and_one_byte_more_is_431(start_router, pod):
    router = await start_router(max_header_bytes=1000)
    router.knows(pod)
    bare = len(request("GET", "/", ("X-Fill", "")))
    async with serving(pod):
        fill = "x" * (1000 - bare)
        assert (await router.ask(request("GET", "/", ("X-Fill", fill)))).status == 200
    told = await router.ask(request("GET", "/", ("X-Fill", fill + "x")))
    assert (told.status, told.code) == (431, "headers_too_large")


async def test_an_endless_head_is_refused_before_it_ends(start_router):
    router = await start_router(max_header_bytes=1000, max_request_line_bytes=500)
    client = await router.connect()
    client.send(b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 200)
    assert (await client.answer()).status == 431
    client = await router.connect()
    client.send(b"GET /" + b"x" * 600)
    assert (await client.answer()).status == 414


async def test_an_answer_that_does_not_come_is_504(start_router, pod):
    router = await start_router(proxy_timeout_s=180)
    router.knows(pod)
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    router.pass_time(179)
    await settled()
    assert client.unread == b""
    router.pass_time(2)
    told = await client.answer()
    assert (told.status, told.code) == (504, "sandbox_timeout")
    assert told.detail == "Timed out waiting for the backend sandbox: box"
    await sandbox.rest()
    sandbox.close()
    async with serving(pod):
        client.send(request("GET", "/next"))
        assert (await client.answer()).body == b"/next"
    assert (await router.outcome()).upstream_error == "response_timeout"


@pytest.mark.parametrize(
    ("asked", "limit_s"),
    [("10", 10), ("2.5", 2.5), ("1000", 180), ("junk", 180), ("-1", 180), ("0", 180), ("1e9", 180)],
)
async def test_a_client_may_shorten_the_time_for_its_answer(start_router, pod, asked, limit_s):
    router = await start_router(proxy_timeout_s=180)
    router.knows(pod)
    client = await router.connect()
    client.send(request("GET", "/", ("X-Sandbox-Timeout", asked)))
    sandbox = await pod.accept()
    assert (await sandbox.request()).get("X-Sandbox-Timeout") is None
    router.pass_time(limit_s - 1)
    await settled()
    assert client.unread == b""
    router.pass_time(1.1)
    assert (await client.answer()).status == 504


async def test_interim_answers_give_no_more_time(start_router, pod):
    router = await start_router(proxy_timeout_s=180)
    router.knows(pod)
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    router.pass_time(179)
    sandbox.send(b"HTTP/1.1 102 Processing\r\n\r\n")
    await client.head()
    router.pass_time(2)
    assert (await client.answer()).status == 504


async def test_an_answer_in_which_nothing_moves_is_cut(start_router, pod):
    router = await start_router(proxy_timeout_s=180, stream_idle_timeout_s=300)
    router.knows(pod)
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(200, CHUNKED))
    assert (await client.head()).status == 200
    for number in range(5):
        router.pass_time(299)
        sandbox.send(b"1\r\n%d\r\n" % number)
        assert await client.read(6) == b"1\r\n%d\r\n" % number
    router.pass_time(301)
    with pytest.raises(CutShortError) as cut:
        await client.read(1)
    assert cut.value.how == "eof"
    await sandbox.rest()
    outcome = await router.outcome()
    assert (outcome.code, outcome.upstream_error) == ("response_cut", "response_timeout")


async def test_a_client_that_stops_reading_is_not_the_sandboxes_fault(start_router, pod):
    router = await start_router(stream_idle_timeout_s=300)
    router.knows(pod)
    router.shrink_buffers()
    client = await router.connect(buffers=8192)
    client.stop_reading()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(200, ("Content-Length", "8000000")), b"x" * 8_000_000)
    await settled()
    await settled()
    router.pass_time(301)
    router.pass_time(31)
    outcome = await router.outcome()
    assert (outcome.code, outcome.upstream_error) == ("response_cut", "")
    assert 0 < outcome.bytes_to_client < 8_000_000, "what was given to the kernel, and no more"


async def test_no_limit_means_none(start_router, pod):
    router = await start_router(connect_budget_s=float("inf"))
    router.knows(pod)
    client = await router.connect()
    router.pass_time(10**6)
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    router.pass_time(10**6)
    sandbox.send(answer(200, ("Content-Length", "1")))
    await client.head()
    router.pass_time(10**6)
    sandbox.send(b"x")
    assert await client.read(1) == b"x"
