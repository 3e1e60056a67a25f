"""Expect: 100-continue and other interim answers: the sandbox's business, passed on as it comes."""

import pytest

from tests.integration.proxy.messages import answer, chunked, request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.wire import settled

EXPECT = ("Expect", "100-continue")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def test_the_sandbox_decides_when_the_client_may_go_on(router, pod):
    client = await router.connect()
    client.send(request("POST", "/", EXPECT, ("Content-Length", "5")))
    sandbox = await pod.accept()
    assert (await sandbox.head()).get("Expect") == b"100-continue"
    await settled()
    assert client.unread == b""
    sandbox.send(CONTINUE)
    assert await client.read(len(CONTINUE)) == CONTINUE
    client.send(b"hello")
    assert await sandbox.read(5) == b"hello"
    sandbox.send(answer(body=b"thanks"))
    assert (await client.answer()).body == b"thanks"
    client.send(request("GET", "/next"))
    assert (await sandbox.request()).target == b"/next"
    sandbox.send(answer())
    await client.answer()


async def test_a_client_that_does_not_wait_is_served_all_the_same(router, pod):
    client = await router.connect()
    client.send(request("POST", "/", EXPECT, body=b"hello"))
    sandbox = await pod.accept()
    assert (await sandbox.request()).body == b"hello"
    sandbox.send(CONTINUE + answer(body=b"ok"))
    told = await client.answer()
    assert ([interim.status for interim in told.interim], told.body) == ([100], b"ok")
    client.send(request("GET", "/next"))
    assert (await sandbox.request()).target == b"/next"
    sandbox.send(answer())
    await client.answer()


async def test_a_refusal_by_the_sandbox_passes_and_ends_the_clients_connection(router, pod):
    client = await router.connect()
    client.send(request("POST", "/", EXPECT, ("Content-Length", "5")))
    sandbox = await pod.accept()
    await sandbox.head()
    sandbox.send(answer("417 Expectation Failed", body=b"no"))
    told = await client.answer()
    assert (told.status, told.body, told.get("Connection")) == (417, b"no", b"close")
    assert await client.end() == "eof"
    assert await sandbox.end() == "eof"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (request("POST", "/", EXPECT, ("Content-Length", "5"), token="no"), "unauthenticated"),
        (request("POST", "/", EXPECT, ("Content-Length", "5"), sandbox="no"), "sandbox_not_found"),
        (request("POST", "/", EXPECT, ("Content-Length", "99"), sandbox="A"), "invalid_sandbox_id"),
        (
            request("PUT", "/", EXPECT, ("Transfer-Encoding", "chunked"), token=None),
            "unauthenticated",
        ),
    ],
)
async def test_a_refusal_by_the_router_comes_before_100_and_closes(router, pod, raw, code):
    client = await router.connect()
    client.send(raw)
    told = await client.answer()
    assert (told.code, told.interim, told.get("Connection")) == (code, [], b"close")
    assert await client.end() == "eof"
    assert pod.connections == 0


async def test_the_body_of_a_refused_request_is_not_read_as_a_request(router, pod):
    client = await router.connect()
    smuggled = request("DELETE", "/smuggled")
    client.send(request("POST", "/", EXPECT, ("Content-Length", str(len(smuggled))), token="no"))
    await client.answer()
    client.send(smuggled)
    assert await client.end() in ("eof", "reset")
    assert pod.connections == 0
    assert len(router.outcomes) == 1


async def test_a_late_100_passes(router, pod):
    client = await router.connect()
    client.send(request("POST", "/", EXPECT, ("Transfer-Encoding", "chunked")))
    sandbox = await pod.accept()
    await sandbox.head()
    client.send(b"2\r\nab\r\n")
    assert await sandbox.read(7) == b"2\r\nab\r\n"
    sandbox.send(CONTINUE)
    assert await client.read(len(CONTINUE)) == CONTINUE
    client.send(chunked(b"cd"))
    assert await sandbox.read(12) == chunked(b"cd")
    sandbox.send(answer(body=b"ok"))
    assert (await client.answer()).body == b"ok"


async def test_every_interim_answer_passes_as_it_is(router, pod):
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nlink: </b.js>\r\n\r\n"
    processing = b"HTTP/1.1 102 Processing\r\n\r\n"
    async with serving(pod, lambda _: hints + processing + hints + answer(body=b"ok")):
        client = await router.connect()
        client.send(request())
        assert await client.read(len(hints)) == hints
        assert await client.read(len(processing)) == processing
        assert await client.read(len(hints)) == hints
        assert (await client.answer()).body == b"ok"


async def test_an_interim_answer_passes_before_the_final_one_is_there(router, pod):
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    for _ in range(3):
        await sandbox.send_apart(b"HTTP/1.1 103 Early", b" Hints\r\n", b"A: 1\r\n", b"\r\n")
        assert (await client.head()).status == 103
    sandbox.send(answer(body=b"ok"))
    assert (await client.answer()).body == b"ok"


async def test_an_http_1_0_client_is_sent_no_interim_answer(router, pod):
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
    async with serving(pod, lambda _: hints + answer(body=b"ok")):
        told = await router.ask(request(version="HTTP/1.0"))
    assert (told.body, told.interim) == (b"ok", [])


async def test_interim_answers_pass_without_a_count(router, pod):
    progress = b"HTTP/1.1 104 Upload Resumption Supported\r\nUpload-Offset: 7\r\n\r\n"
    async with serving(pod, lambda _: progress * 1000 + answer(201, body=b"ok")):
        told = await router.ask(request())
    assert (told.status, len(told.interim)) == (201, 1000)


async def test_endless_interim_answers_are_a_broken_answer(router, pod):
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: <%b>\r\n\r\n" % (b"a" * 40_000)
    async with serving(pod, lambda _: hint * 200):
        told = await router.ask(request())
    assert (told.status, told.code) == (502, "bad_response")
    assert len(told.interim) == 4_194_304 // len(hint)


LF_HEADS = [
    b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\n\nok",
    b"HTTP/1.0 200 OK\nA: b\n\n",
    b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\n",
]


@pytest.mark.parametrize("head", LF_HEADS)
async def test_a_sandbox_that_ends_lines_with_lf_alone_is_a_broken_answer_at_once(
    router, pod, head
):
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(head)
    told = await client.answer()
    assert (told.status, told.code) == (502, "bad_response")
    assert "LF" in (await router.outcome()).error_reason


async def test_a_bare_lf_is_seen_where_two_pieces_meet(router, pod):
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    await sandbox.send_apart(b"HTTP/1.1 200 OK\r", b"\nA: b", b"\n")
    assert (await client.answer()).code == "bad_response"


async def test_an_end_after_an_interim_answer_is_a_broken_answer(router, pod):
    async def hint_and_leave(wire):
        await wire.request()
        wire.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        wire.close()

    async with serving(pod, by=hint_and_leave):
        told = await router.ask(request())
    assert (told.status, told.code) == (502, "bad_response")
    assert pod.connections == 1
