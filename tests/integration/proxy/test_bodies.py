"""Bodies in every framing, both ways, and answers that have none."""

import asyncio
import random

import pytest

from tests.integration.proxy.messages import Message, answer, chunked, request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.wire import settled

SIZES = [0, 1, 17, 4096, 65_535, 65_536, 65_537, 1_000_003]
CHUNKED = ("Transfer-Encoding", "chunked")


def pieces(body: bytes, seed: int) -> list[bytes]:
    """Returns the body cut at random places."""
    chance = random.Random(seed)
    cuts = sorted(chance.randrange(len(body) + 1) for _ in range(chance.randrange(12)))
    return [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]


def some_bytes(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def echo(framing: str):
    def reply(message: Message) -> bytes:
        if framing == "chunked":
            return answer(200, CHUNKED, body=chunked(*pieces(message.body, len(message.body))))
        return answer(200, body=message.body)

    return reply


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("up", ["length", "chunked"])
@pytest.mark.parametrize("down", ["length", "chunked"])
async def test_a_body_comes_back_as_it_went(router, pod, size, up, down):
    body = some_bytes(size)
    client = await router.connect()
    async with serving(pod, echo(down)):
        for _ in range(2):
            if up == "chunked":
                client.send(request("POST", "/", CHUNKED, body=chunked(*pieces(body, size))))
            else:
                client.send(request("POST", "/", ("Content-Length", str(size)), body=body))
            told = await client.answer("POST")
            assert told.body == body
    assert pod.connections == 1
    assert [outcome.bytes_from_client for outcome in router.outcomes] == [size, size]
    assert [outcome.bytes_to_client for outcome in router.outcomes] == [size, size]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
async def test_a_body_that_ends_with_its_connection_comes_whole(router, pod, size, version):
    body = some_bytes(size)

    async def say_and_leave(wire):
        await wire.request()
        wire.send(answer(200, ("Content-Type", "x/y"), length=False, version=version), body)
        wire.close()

    client = await router.connect()
    async with serving(pod, by=say_and_leave):
        for _ in range(2):
            client.send(request())
            told = await client.answer()
            assert told.body == body
            assert told.get("Transfer-Encoding") == b"chunked"
            assert told.line == b"HTTP/1.1 200 OK"
    assert pod.connections == 2


@pytest.mark.parametrize("said", ["length", "chunked", "until close"])
async def test_an_http_1_0_client_gets_every_body(router, pod, said):
    body = some_bytes(200_000)

    async def say(wire):
        while said != "until close":
            check(await wire.request())
            framed = chunked(*pieces(body, 1), trailers=(("A", "b"),))
            wire.send(answer(body=body) if said == "length" else answer(200, CHUNKED, body=framed))
        check(await wire.request())
        wire.send(answer(length=False), body)
        wire.close()

    def check(asked: Message) -> None:
        assert asked.line == b"GET / HTTP/1.1"
        assert asked.get("Host") is not None

    async with serving(pod, by=say):
        for host in ("router.test", None):
            client = await router.connect()
            client.send(request(version="HTTP/1.0", host=host))
            told = await client.answer()
            assert told.body == body
            assert told.get("Transfer-Encoding") is None
            assert told.trailers == []
            assert await client.end() == "eof"


async def test_an_http_1_0_client_can_send_a_body(router, pod):
    async with serving(pod, echo("length")):
        told = await router.ask(request("POST", "/", body=b"abc" * 50_000, version="HTTP/1.0"))
    assert told.body == b"abc" * 50_000


async def test_the_answers_to_head_have_no_body_whatever_their_headers_say(router, pod):
    client = await router.connect()
    heads = [
        answer(200, ("Content-Length", "1000")),
        answer(200, CHUNKED),
        answer(200, length=False),
        answer(404, ("Content-Length", "9")),
    ]
    async with serving(pod, lambda message: heads[int(message.target[1:])]):
        for number, head in enumerate(heads):
            client.send(request("HEAD", f"/{number}"))
            told = await client.answer("HEAD")
            assert b"\r\n".join([told.line, *(b": ".join(h) for h in told.headers)]) in head
            await asyncio.sleep(0.12)  # the connection rests, as a body may still be on its way
        client.send(request("HEAD", "/healthz", sandbox=None))
        told = await client.answer("HEAD")
        assert (told.status, told.get("Content-Length")) == (200, b"15")
        client.send(request("HEAD", "/", sandbox="unknown"))
        told = await client.answer("HEAD")
        assert (told.status, told.body) == (404, b"")
    assert pod.connections == 1


@pytest.mark.parametrize(
    "head",
    [
        answer(204, ("X-A", "b"), length=False),
        answer(304, ("X-Tag", "x"), ("Content-Length", "1234")),
        answer(304, ("X-Tag", "x"), length=False),
    ],
)
async def test_answers_without_a_body_keep_their_headers(router, pod, head):
    client = await router.connect()
    async with serving(pod, lambda _: head):
        for _ in range(2):
            client.send(request())
            assert await client.read(len(head)) == head
            await asyncio.sleep(
                0.12
            )  # a connection rests after a response that had to be without a body
    assert pod.connections == 1


@pytest.mark.parametrize("extra", [("Content-Length", "5"), CHUNKED])
async def test_a_204_that_claims_a_body_loses_the_claim(router, pod, extra):
    client = await router.connect()
    async with serving(pod, lambda _: answer(204, extra, ("X-A", "b"))):
        client.send(request())
        told = await client.answer()
        client.send(request("GET", "/2"))
        again = await client.answer()
    assert told.headers == again.headers == [(b"X-A", b"b")]


async def test_trailers_cross_in_both_directions(router, pod):
    client = await router.connect()
    client.send(
        request(
            "POST",
            "/",
            CHUNKED,
            ("Trailer", "Sum"),
            ("TE", "trailers"),
            body=chunked(b"ab", trailers=(("Sum", "1"), ("sum", "2"), ("Other", ""))),
        )
    )
    sandbox = await pod.accept()
    asked = await sandbox.request()
    assert asked.trailers == [(b"Sum", b"1"), (b"sum", b"2"), (b"Other", b"")]
    assert (asked.get("TE"), asked.get("Trailer")) == (b"trailers", b"Sum")
    sandbox.send(answer(200, CHUNKED, body=chunked(b"cd", trailers=(("Grpc-Status", "0"),))))
    told = await client.answer("POST")
    assert told.trailers == [(b"Grpc-Status", b"0")]


@pytest.mark.parametrize(
    "name",
    [
        "Content-Length",
        "Transfer-Encoding",
        "Host",
        "Authorization",
        "X-Forwarded-For",
        "X_Forwarded_For",
        "X-Sandbox-ID",
        "Connection",
        "Content-Type",
        "Set-Cookie",
        "X-Sandbox-Router-Error",
    ],
)
async def test_a_trailer_never_says_what_only_a_header_may(router, pod, name):
    client = await router.connect()
    body = chunked(b"ab", trailers=(("Kept", "1"), (name, "7")))
    client.send(request("POST", "/", CHUNKED, body=body))
    sandbox = await pod.accept()
    assert (await sandbox.request()).trailers == [(b"Kept", b"1")]
    sandbox.send(answer(200, CHUNKED, body=body))
    assert (await client.answer("POST")).trailers == [(b"Kept", b"1")]


async def test_a_chunked_body_crosses_while_it_is_sent(router, pod):
    client = await router.connect()
    client.send(request("POST", "/", CHUNKED))
    sandbox = await pod.accept()
    await sandbox.head()
    for number in range(5):
        client.send(b"3\r\na%db\r\n" % number)
        assert await sandbox.read(8) == b"3\r\na%db\r\n" % number
    client.send(b"0\r\n\r\n")
    assert await sandbox.read(5) == b"0\r\n\r\n"
    sandbox.send(answer(200, CHUNKED))
    await client.head()
    for number in range(5):
        sandbox.send(b"3\r\na%db\r\n" % number)
        assert await client.read(8) == b"3\r\na%db\r\n" % number
    sandbox.send(b"0\r\n\r\n")
    assert await client.read(5) == b"0\r\n\r\n"


async def test_both_bodies_may_cross_at_once(router, pod):
    client = await router.connect()
    client.send(request("POST", "/", CHUNKED))
    sandbox = await pod.accept()
    await sandbox.head()
    sandbox.send(answer(200, CHUNKED))
    assert (await client.head()).status == 200
    for number in range(20):
        client.send(b"2\r\n%02d\r\n" % number)
        sandbox.send(await sandbox.read(7))
        assert await client.read(7) == b"2\r\n%02d\r\n" % number
    client.send(b"0\r\n\r\n")
    sandbox.send(await sandbox.read(5))
    assert await client.read(5) == b"0\r\n\r\n"
    client.send(request("GET", "/next"))
    assert (await sandbox.request()).target == b"/next"
    sandbox.send(answer())
    await client.answer()


async def test_an_event_is_out_as_soon_as_it_is_in(router, pod):
    for framed in (("Content-Type", "text/event-stream"), CHUNKED):
        client = await router.connect()
        client.send(request())
        sandbox = await pod.accept()
        await sandbox.request()
        sandbox.send(answer(200, framed, length=False))
        told = await client.head()
        assert told.get("Transfer-Encoding") == b"chunked"
        for number in range(5):
            event = b"data: %d\n\n" % number
            sandbox.send(event if framed[0] == "Content-Type" else b"9\r\n%b\r\n" % event)
            assert await client.read(14) == b"9\r\n%b\r\n" % event
        sandbox.close()
        client.close()


async def test_chunk_extensions_are_taken_out_and_the_data_is_kept(router, pod):
    client = await router.connect()
    client.send(request("POST", "/", CHUNKED, body=b'3;a="b";c\r\nabc\r\n0;x\r\n\r\n'))
    sandbox = await pod.accept()
    assert await sandbox.read_through(b"0\r\n\r\n")
    sandbox.send(answer(200, CHUNKED, body=b"2 ; ext\r\nxy\r\n000\r\n\r\n"))
    told = await client.answer()
    assert (told.body, told.chunks) == (b"xy", [2])


async def test_bytes_of_any_value_cross(router, pod):
    every = bytes(range(256)) * 300
    async with serving(pod, echo("chunked")):
        told = await router.ask(request("POST", "/", body=every))
    assert told.body == every


async def test_nothing_is_kept_waiting_for_more_to_come(router, pod):
    client = await router.connect()
    client.send(request("POST", "/", ("Content-Length", "10")), b"a")
    sandbox = await pod.accept()
    await sandbox.head()
    assert await sandbox.read(1) == b"a"
    client.send(b"b")
    assert await sandbox.read(1) == b"b"
    await settled()
    client.send(b"c" * 8)
    assert await sandbox.read(8) == b"c" * 8
    sandbox.send(answer(200, ("Content-Length", "3")), b"x")
    assert (await client.head()).status == 200
    assert await client.read(1) == b"x"
    sandbox.send(b"yz")
    assert await client.read(2) == b"yz"
