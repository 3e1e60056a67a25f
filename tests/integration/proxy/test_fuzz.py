"""Anything from either side, cut anywhere: the same bytes come out, nothing is raised, leaked or mixed up."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.integration.proxy.messages import Message, answer, chunked, request
from tests.integration.proxy.pod import Pod, pod_listening, serving
from tests.integration.proxy.running_router import RunningRouter
from tests.integration.proxy.upgrades import opened
from tests.integration.proxy.wire import CutShortError, Wire, settled

CHUNKED = ("Transfer-Encoding", "chunked")
LAST = request("GET", "/last", ("Connection", "close"))


def bounded(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),  # a shrink would wait for each failure again
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@st.composite
def cut(draw: st.DrawFn, whole: bytes, most: int = 6) -> list[bytes]:
    """Returns the bytes in pieces."""
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=most)))
    pieces = [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]
    return [piece for piece in pieces if piece]


@contextlib.asynccontextmanager
async def on_its_own(router: RunningRouter, pod: Pod) -> AsyncIterator[None]:
    """Lets nothing of one example reach the next, and holds the router to having nothing left of it."""
    try:
        yield
    finally:
        for wire in pod.wires:
            wire.reset()
        pod.wires.clear()
    await router.emptied()


# --- valid streams ---------------------------------------------------------------------------

REQUESTS = [
    request("GET", "/a"),
    request("GET", "/b", ("X-Long", "x" * 3000)),
    request("HEAD", "/c"),
    request("POST", "/d", body=b"body" * 100),
    request("POST", "/e", CHUNKED, body=b"00A\r\n0123456789\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\n"),
    request("PUT", "/f", CHUNKED, body=chunked(b"x" * 5000, b"y")),
    request("GET", "/healthz", sandbox=None),
    request("GET", "/refused", sandbox="unknown"),
    request("POST", "/refused", token="no", body=b"GET /smuggled HTTP/1.1\r\n\r\n"),
    b"\r\n" + request("GET", "/after-an-empty-line"),
    request("GET", "/g", ("Upgrade", "x"), ("Connection", "keep-alive")),
]
ANSWERS = {
    b"/a": answer(body=b"aa"),
    b"/b": answer(200, CHUNKED, body=b"0F\r\n0123456789abcde\r\n1\r\nz\r\n00\r\nT: 2\r\n\r\n"),
    b"/c": answer(200, ("Content-Length", "77")),
    b"/d": answer(200, CHUNKED, body=chunked(b"x" * 4000, b"y" * 300)),
    b"/e": b"HTTP/1.1 103 Early\r\nX: y\r\n\r\n" + answer(204, length=False),
    b"/f": answer(304, ("ETag", '"x"')),
}


def reply_to(message: Message) -> bytes:
    return ANSWERS.get(message.target, answer(body=b"to " + message.target))


async def observe(
    router: RunningRouter, pod: Pod, stream: list[bytes], answer_cuts: list[int]
) -> tuple[bytes, list[tuple[object, ...]]]:
    """Returns every byte that the client got, and what the sandbox was asked."""
    asked: list[tuple[object, ...]] = []

    async def attend(wire: Wire) -> None:
        while True:
            message = await wire.request()
            asked.append(
                (message.line, message.headers, message.body, message.chunks, message.trailers)
            )
            said = reply_to(message)
            places = sorted({place % len(said) for place in answer_cuts})
            ends = [*places, len(said)]
            await wire.send_apart(*[said[a:b] for a, b in zip([0, *places], ends, strict=True)])

    async with on_its_own(router, pod), serving(pod, by=attend):
        client = await router.connect()
        await client.send_apart(*stream)
        got, _ = await client.rest()
        client.reset()
    return got, asked


@bounded(60)
@given(data=st.data())
async def test_a_stream_cut_anywhere_gives_the_same_bytes(router, pod, data):
    stream = b"".join(data.draw(st.lists(st.sampled_from(REQUESTS), max_size=5))) + LAST
    pieces = data.draw(cut(stream, most=12))
    answer_cuts = data.draw(st.lists(st.integers(0, 5000), max_size=4))
    whole = await observe(router, pod, [stream], [])
    assert await observe(router, pod, pieces, answer_cuts) == whole


async def test_a_stream_cut_everywhere_gives_the_same_bytes(router, pod):
    stream = b"".join(REQUESTS) + LAST
    whole = await observe(router, pod, [stream], [])
    bytewise = await observe(router, pod, [bytes([byte]) for byte in stream], [])
    assert bytewise == whole


@bounded(40)
@given(data=st.data())
async def test_a_tunnel_cut_anywhere_gives_the_same_bytes(router, pod, data):
    protocol = data.draw(st.sampled_from(["websocket", "other"]))
    up, down = data.draw(st.binary(max_size=2000)), data.draw(st.binary(max_size=2000))
    up_pieces, down_pieces = data.draw(cut(up)), data.draw(cut(down))
    async with on_its_own(router, pod):
        client, sandbox = await opened(router, pod, protocol=protocol)
        async with asyncio.TaskGroup() as both:
            both.create_task(client.send_apart(*up_pieces))
            both.create_task(sandbox.send_apart(*down_pieces))
        client.half_close()
        assert await sandbox.rest() == (up, "eof")
        sandbox.half_close()
        assert await client.rest() == (down, "eof")
        client.close()


# --- garbage ---------------------------------------------------------------------------------

junk = st.binary(max_size=200)
alphabet = [
    b"GET / HTTP/1.1\r\n",
    b"POST /x HTTP/1.1\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.0 204 No\r\n",
    b"Host: router.test\r\n",
    b"X-Sandbox-ID: box\r\n",
    b"Authorization: Bearer let-me-in-let-me-in\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
    b"Expect: 100-continue\r\n",
    b"\r\n",
    b"\r",
    b"\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"\x00",
    b"\xff\xfe",
    b"x" * 20_000,
]
nonsense = st.lists(st.one_of(st.sampled_from(alphabet), junk), max_size=12).map(b"".join)


@st.composite
def damaged(draw: st.DrawFn, whole: list[bytes]) -> bytes:
    """Returns a valid message with some of its bytes replaced, left out or doubled."""
    message = bytearray(draw(st.sampled_from(whole)))
    for _ in range(draw(st.integers(1, 4))):
        if not message:
            break
        at = draw(st.integers(0, len(message) - 1))
        size = draw(st.integers(0, 5))
        message[at : at + size] = draw(st.one_of(st.binary(max_size=3), st.just(message[at:][:9])))
    return bytes(message)


endings = st.sampled_from(["close", "reset", "half_close"])


async def what_comes(wire: Wire) -> bytes:
    """Returns what comes until the peer ends the connection or nothing more comes."""
    before = -1
    while wire.total != before and not wire.ended:
        before = wire.total
        for _ in range(5):
            await asyncio.sleep(0.001)
    return bytes(wire.unread)


@bounded(120)
@given(data=st.data())
async def test_a_clients_garbage_harms_nobody(router, pod, data):
    garbage = data.draw(st.one_of(nonsense, damaged(REQUESTS)))
    pieces, ending = data.draw(cut(garbage)), data.draw(endings)
    async with on_its_own(router, pod), serving(pod, reply_to):
        client = await router.connect()
        client.send(request("GET", "/first"))
        assert (await client.answer()).body == b"to /first"
        await client.send_apart(*pieces)
        told = re.findall(rb"HTTP/1\.1 (\d+) ", await what_comes(client))
        assert all(100 <= int(status) < 600 for status in told)
        getattr(client, ending)()
        assert (await router.ask(request("GET", "/other"))).body == b"to /other"
        client.reset()


@pytest.fixture
async def neighbour(router):
    """Another sandbox, whose answers must never be mixed up with the first one's."""
    async with pod_listening() as neighbour:
        router.knows(neighbour, name="neighbour", uid="pod-2")
        async with serving(neighbour, lambda asked: answer(body=b"neighbour " + asked.target)):
            yield


async def answer_or_nothing(client: Wire) -> bytes | None:
    """Returns the body of the next answer; None when the connection ends without a byte of one."""
    try:
        return (await client.answer()).body
    except CutShortError as cut_short:
        return cut_short.message.line or None


@bounded(120)
@given(data=st.data())
async def test_a_sandboxs_garbage_harms_nobody(router, pod, neighbour, data):
    said = data.draw(st.one_of(nonsense, damaged(list(ANSWERS.values()))))
    pieces = data.draw(cut(said))
    ending = data.draw(endings)
    method = data.draw(st.sampled_from(["GET", "HEAD", "POST"]))

    async def babble(wire: Wire) -> None:
        await wire.request()
        await wire.send_apart(*pieces)
        await settled()
        getattr(wire, ending)()
        await wire.rest()
        wire.close()

    async with on_its_own(router, pod), serving(pod, by=babble):
        client = await router.connect()
        client.send(request(method, "/"))
        try:
            async with asyncio.timeout(5):
                first = await client.answer(method)
        except CutShortError:
            first = None
        if first is not None and first.status != 101 and not client.ended:
            client.send(request("GET", "/mine", sandbox="neighbour"))
            assert await answer_or_nothing(client) in (b"neighbour /mine", None)
        client.reset()
        told = await router.ask(request("GET", "/other", sandbox="neighbour"))
        assert told.body == b"neighbour /other"
