"""Connections to sandboxes: kept, reused, and never across pods."""

import asyncio

import pytest

from tests.integration.proxy.messages import answer, chunked, request
from tests.integration.proxy.pod import pod_listening, serving
from tests.integration.proxy.wire import settled, until

SETTLED_S = 0.12
"""A little longer than a connection rests after a response that had to be without a body."""


async def test_requests_of_many_clients_share_one_connection(router, pod):
    async with serving(pod):
        for number in range(20):
            told = await router.ask(request("GET", f"/{number}"))
            assert told.body == b"/%d" % number
    assert pod.connections == 1


async def test_requests_of_one_client_share_one_connection(router, pod):
    client = await router.connect()
    async with serving(pod):
        for method, body in (
            ("GET", b""),
            ("POST", b"x" * 100_000),
            ("DELETE", b""),
            ("PUT", b"y"),
        ):
            client.send(request(method, "/a", body=body))
            assert (await client.answer(method)).body == b"/a"
    assert pod.connections == 1
    assert router.pool.idle_count == 1


@pytest.mark.parametrize(
    "said",
    [
        answer(200, ("Transfer-Encoding", "chunked"), body=chunked(b"a", b"b")),
        answer(200, ("Transfer-Encoding", "chunked"), body=chunked(trailers=(("Sum", "1"),))),
        answer(204, length=False),
        answer(304, ("Content-Length", "5")),
        answer(200, ("Connection", "keep-alive"), body=b"ab", version="HTTP/1.0"),
        answer("103 Early Hints", ("Link", "</a>"), length=False) + answer(200, body=b"ab"),
    ],
)
async def test_a_connection_is_reused_after_any_answer_with_an_end(router, pod, said):
    async with serving(pod, lambda _: said):
        for _ in range(3):
            await router.ask(request())
            await asyncio.sleep(SETTLED_S)
    assert pod.connections == 1


async def test_a_head_answer_with_a_length_leaves_its_connection_usable(router, pod):
    async with serving(pod, lambda _: answer(200, ("Content-Length", "1000"))):
        for _ in range(3):
            assert (await router.ask(request("HEAD"))).get("Content-Length") == b"1000"
            await asyncio.sleep(SETTLED_S)
    assert pod.connections == 1


@pytest.mark.parametrize(
    ("method", "said"),
    [("GET", answer(304, ("ETag", '"x"'), length=False)), ("HEAD", answer(200, body=b"ab"))],
)
async def test_a_connection_rests_after_a_response_without_a_body_as_one_may_follow(
    router, pod, method, said
):
    async with serving(pod, lambda _: said):
        for _ in range(2):
            await router.ask(request(method))
    assert pod.connections == 2


@pytest.mark.parametrize(
    "said",
    [
        answer(200, ("Connection", "close"), body=b"ab"),
        answer(200, ("Connection", "Close, X-Other"), body=b"ab"),
        answer(200, body=b"ab", version="HTTP/1.0"),
        answer(200, body=b"ab") + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray",
        answer(204, length=False) + b"x",
    ],
)
async def test_a_connection_is_not_reused_after_an_answer_that_says_or_shows_its_end(
    router, pod, said
):
    async with serving(pod, lambda _: said):
        for number in range(1, 4):
            told = await router.ask(request())
            assert told.body in (b"ab", b"")
            assert pod.connections == number
    assert router.pool.idle_count == 0


async def test_bytes_that_nobody_asked_for_close_an_idle_connection(router, pod):
    client = await router.connect()
    client.send(request("GET", "/1"))
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(body=b"one"))
    assert (await client.answer()).body == b"one"
    sandbox.send(answer(body=b"poison"))
    await sandbox.end()
    client.send(request("POST", "/2", body=b"x"))
    fresh = await pod.accept()
    await fresh.request()
    fresh.send(answer(body=b"two"))
    assert (await client.answer()).body == b"two"


async def test_each_port_of_a_sandbox_has_connections_of_its_own(router, pod):
    async with pod_listening() as other, serving(pod), serving(other):
        await router.ask(request())
        await router.ask(request("GET", "/", ("X-Sandbox-Port", str(other.port))))
        await router.ask(request("GET", "/", ("X-Sandbox-Port", str(other.port))))
    assert (pod.connections, other.connections) == (1, 1)


async def test_two_sandboxes_at_one_address_never_share_a_connection(router, pod):
    router.knows(pod, name="neighbour", uid="pod-2")
    async with serving(pod):
        for name in ("box", "neighbour", "box", "neighbour"):
            await router.ask(request(sandbox=name))
    assert pod.connections == 2


async def test_a_pod_that_leaves_the_table_loses_its_idle_connections_at_once(router, pod):
    async with serving(pod):
        await router.ask(request())
    router.forgets()
    assert await pod.wires[0].end() == "eof"
    assert router.pool.idle_count == 0


async def test_a_connection_in_use_is_not_used_again_once_its_pod_has_left(router, pod):
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    router.forgets()
    sandbox.send(answer(body=b"done"))
    assert (await client.answer()).body == b"done"
    assert await sandbox.end() == "eof"


async def test_an_inherited_address_is_reached_by_a_new_connection_alone(router, pod):
    async with serving(pod):
        await router.ask(request())
        router.knows(pod, uid="pod-2")
        assert await pod.wires[0].end() == "eof"
        await router.ask(request())
    assert pod.connections == 2


async def test_an_answer_in_progress_outlives_the_replacement_of_its_pod(router, pod):
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(200, ("Content-Length", "4")), b"ab")
    await client.head()
    router.knows(pod, uid="pod-2")
    async with serving(pod):
        assert (await router.ask(request("GET", "/new"))).body == b"/new"
    sandbox.send(b"cd")
    assert await client.read(4) == b"abcd"
    assert await sandbox.end() == "eof"
    assert router.pool.idle_count == 1


async def test_no_more_connections_stay_idle_than_allowed(start_router, pod):
    router = await start_router(max_idle_total=2)
    router.knows(pod)
    clients = [await router.connect() for _ in range(5)]
    for client in clients:
        client.send(request())
    sandboxes = [await pod.accept() for _ in clients]
    for sandbox in sandboxes:
        await sandbox.request()
        sandbox.send(answer())
    for client in clients:
        await client.answer()
    assert router.pool.idle_count == 2
    await until(lambda: sum(wire.ended != "" for wire in pod.wires) == 3)


async def test_a_pool_of_none_closes_every_connection_after_its_answer(start_router, pod):
    router = await start_router(max_idle=0)
    router.knows(pod)
    async with serving(pod):
        for _ in range(3):
            await router.ask(request())
    assert pod.connections == 3


async def test_a_connection_is_closed_when_it_has_been_idle_for_too_long(start_router, pod):
    router = await start_router(idle_timeout_s=60)
    router.knows(pod)
    async with serving(pod):
        await router.ask(request())
        router.pass_time(59)
        await settled()
        assert pod.wires[0].ended == ""
        await router.ask(request())
        router.pass_time(59)
        await settled()
        assert pod.wires[0].ended == ""
        router.pass_time(3)
        assert await pod.wires[0].end() == "eof"


async def test_what_is_sent_to_one_sandbox_is_never_answered_by_another(router, pod):
    async with pod_listening() as other:
        router.knows(other, name="other", uid="pod-2")
        client = await router.connect()
        async with (
            serving(pod, lambda _: answer(body=b"box")),
            serving(other, lambda _: answer(body=b"other")),
        ):
            client.send(*(request(sandbox=name) for name in ("box", "other") * 20))
            for name in (b"box", b"other") * 20:
                assert (await client.answer()).body == name
    assert (pod.connections, other.connections) == (1, 1)
