"""What is sent again, what never is, and which failures end a request at once."""

import asyncio
import os
import socket

import pytest

from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.wire import settled

CHUNKED = ("Transfer-Encoding", "chunked")


@pytest.fixture
async def stale(router, pod):
    """A client's connection and a sandbox's, which has been used before."""
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer(body=b"first"))
    await client.answer()
    return client, sandbox


@pytest.fixture(params=["close", "reset"])
def end_it(request):
    """How the sandbox ends a connection."""

    def end_it(wire) -> None:
        getattr(wire, request.param)()

    return end_it


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_a_repeatable_request_on_a_connection_that_was_just_closed_is_sent_once_more(
    router, pod, stale, end_it, method
):
    client, sandbox = stale
    client.send(request(method, "/again"))
    asked = await sandbox.request()
    end_it(sandbox)
    fresh = await pod.accept()
    repeated = await fresh.request()
    assert (repeated.line, repeated.headers) == (asked.line, asked.headers)
    fresh.send(answer(200, ("Content-Length", "0")))
    assert (await client.answer(method)).status == 200
    outcome = await router.outcome(2)
    assert (outcome.retries, outcome.code, outcome.upstream_error) == (1, "", "")
    assert router.metric("upstream_retries_total") == 1
    assert pod.connections == 2


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_a_repeated_request_is_not_repeated_again(router, pod, stale, end_it, method):
    client, sandbox = stale
    client.send(request(method, "/again"))
    await sandbox.request()
    end_it(sandbox)
    fresh = await pod.accept()
    await fresh.request()
    fresh.close()
    told = await client.answer(method)
    assert (told.status, told.code) == (502, "bad_response")
    await settled()
    assert pod.connections == 2


@pytest.mark.parametrize(
    "raw",
    [
        request("POST", "/", body=b"x"),
        request("POST", "/", ("Content-Length", "0")),
        request("POST", "/"),
        request("PUT", "/", CHUNKED, body=b"0\r\n\r\n"),
        request("DELETE", "/"),
        request("PATCH", "/"),
        request("GET", "/", body=b"x"),
        request("PROPFIND", "/"),
        request("get", "/"),
    ],
    ids=lambda raw: raw[:8].decode() + str(len(raw)),
)
async def test_anything_else_is_never_sent_twice(router, pod, stale, end_it, raw):
    client, sandbox = stale
    client.send(raw)
    await sandbox.request()
    end_it(sandbox)
    told = await client.answer()
    assert (told.status, told.code) == (502, "bad_response")
    await settled()
    assert pod.connections == 1
    outcome = await router.outcome(2)
    assert (outcome.upstream_error, outcome.retries) == ("closed_early", 0)
    async with serving(pod):
        client.send(request("GET", "/next"))
        assert (await client.answer()).body == b"/next"


@pytest.mark.parametrize("method", ["POST", "DELETE", "GET"])
async def test_a_request_is_not_sent_on_a_connection_that_has_visibly_closed(
    router, pod, stale, method
):
    client, sandbox = stale
    with socket.socket(fileno=os.dup(sandbox.socket.fileno())) as end:
        end.shutdown(socket.SHUT_WR)
    client.send(request(method, "/next"))
    fresh = await pod.accept()
    assert (await fresh.request()).target == b"/next"
    fresh.send(answer(body=b"ok"))
    assert (await client.answer(method)).body == b"ok"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_request_on_a_new_connection_that_closes_is_not_repeated(router, pod, method):
    client = await router.connect()
    client.send(request(method, "/"))
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.close()
    told = await client.answer()
    assert (told.status, told.code) == (502, "bad_response")
    await settled()
    assert pod.connections == 1


@pytest.mark.parametrize("begun", [b"H", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\nContent-Le"])
async def test_nothing_is_repeated_once_a_byte_of_an_answer_has_come(
    router, pod, stale, end_it, begun
):
    client, sandbox = stale
    client.send(request())
    await sandbox.request()
    sandbox.send(begun)
    await settled()
    end_it(sandbox)
    told = await client.answer()
    assert (told.status, told.code) == (502, "bad_response")
    assert pod.connections == 1


async def test_a_repeated_request_goes_to_the_pod_that_is_there_by_then(router, pod, stale, end_it):
    client, sandbox = stale
    client.send(request("GET", "/again"))
    await sandbox.request()
    router.knows(pod, uid="pod-2")
    end_it(sandbox)
    fresh = await pod.accept()
    await fresh.request()
    fresh.send(answer(body=b"by pod-2"))
    assert (await client.answer()).body == b"by pod-2"
    assert (await router.outcome(2)).pod_uid == "pod-2"


async def test_a_request_that_waits_for_its_answer_is_not_disturbed_by_another_ones_end(
    router, pod
):
    clients = [await router.connect() for _ in range(2)]
    for number, client in enumerate(clients):
        client.send(request("GET", f"/{number}"))
    sandboxes = [await pod.accept() for _ in clients]
    for sandbox in sandboxes:
        await sandbox.request()
    sandboxes[0].close()
    sandboxes[1].send(answer(body=b"mine"))
    told = await asyncio.gather(*(client.answer() for client in clients))
    assert sorted(message.status for message in told) == [200, 502]
