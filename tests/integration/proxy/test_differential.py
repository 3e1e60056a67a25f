"""The same conversation with the sandbox itself and through the router: both ends observe the same."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.proxy.messages import Header, Message, answer, chunked, request
from tests.integration.proxy.pod import Pod, serving
from tests.integration.proxy.wire import CutShortError, dial

BOUNDED = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CHUNKED = ("Transfer-Encoding", "chunked")

# What the router says of itself and of the way: documented, and apart from it nothing may differ.
ADDED = ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Via")
ITS_OWN = ("Host", "X-Sandbox-ID", "Authorization", "Connection", "Keep-Alive")
OF_THE_HOP = ("Connection", "Keep-Alive", "Transfer-Encoding")


@dataclass(frozen=True)
class Script:
    """One request and what the sandbox answers to it, each as the pieces in which it is sent."""

    asked: tuple[bytes, ...]
    answered: tuple[bytes, ...]
    method: str = "GET"
    closes: bool = False
    """The sandbox ends its connection behind the answer."""


@dataclass(frozen=True)
class Observed:
    """What both ends made of it."""

    at_sandbox: tuple[object, ...]
    at_client: tuple[object, ...]


def as_sandbox_sees(message: Message) -> tuple[object, ...]:
    return (
        message.line,
        tuple(message.without(*ADDED, *ITS_OWN)),
        message.body,
        tuple(message.trailers),
    )


def as_client_sees(message: Message) -> tuple[object, ...]:
    return (
        message.line.replace(b"HTTP/1.0", b"HTTP/1.1"),
        tuple(message.without(*OF_THE_HOP)),
        message.body,
        tuple(message.trailers),
        tuple((interim.line, tuple(interim.headers)) for interim in message.interim),
    )


async def play(script: Script, pod: Pod, address: tuple[str, int]) -> Observed:
    """Returns what both ends observe when the script is played at `address`."""
    seen: list[object] = []

    async def as_scripted(wire):
        while True:
            try:
                message = await wire.request()
            except CutShortError as cut:
                if cut.message.line:
                    seen.append(("cut short", cut.message.body))
                raise
            seen.append(as_sandbox_sees(message))
            await wire.send_apart(*script.answered)
            if script.closes:
                wire.close()
                return

    client = await dial(address)
    try:
        async with serving(pod, by=as_scripted):
            await client.send_apart(*script.asked)
            try:
                told = as_client_sees(await client.answer(script.method))
            except CutShortError as cut:
                told = ("cut short", cut.message.body)
    finally:
        client.reset()
        for wire in pod.wires:
            wire.reset()
        pod.wires.clear()
    return Observed(tuple(seen), told)


async def assert_same(script: Script, router, pod) -> None:
    directly = await play(script, pod, ("127.0.0.1", pod.port))
    through = await play(script, pod, router.address)
    assert through == directly


EXACT = {
    "headers of every kind": Script(
        (request("GET", "/%2e/a?b", ("X-A", ""), ("x-a", "\t b \t"), ("Cookie", "c=d")),),
        (answer(200, ("Set-Cookie", "a"), ("Set-Cookie", "b"), ("X-L", b"\xe9"), body=b"x"),),
    ),
    "no reason": Script((request(),), (b"HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\nx",)),
    "http/1.0 sandbox": Script(
        (request(),), (answer(length=False, version="HTTP/1.0"), b"some"), closes=True
    ),
    "head": Script((request("HEAD"),), (answer(200, ("Content-Length", "99")),), "HEAD"),
    "204": Script((request("DELETE"),), (answer(204, ("X-A", "b"), length=False),), "DELETE"),
    "304": Script((request(),), (answer(304, ("Content-Length", "9"), ("Server", "x")),)),
    "hints": Script(
        (request(),),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", answer(body=b"x")),
    ),
    "trailers": Script(
        (request("POST", "/", CHUNKED, body=chunked(b"ab", trailers=(("T", "1"),))),),
        (answer(200, CHUNKED, body=chunked(b"cd", trailers=(("U", "2"),))),),
        "POST",
    ),
    "gzip that is none": Script(
        (request("POST", "/", ("Content-Encoding", "gzip"), body=b"not gzip"),),
        (answer(200, ("Content-Encoding", "br"), body=b"not brotli"),),
        "POST",
    ),
    "a redirect": Script((request(),), (answer(302, ("Location", "http://x/"), body=b"go"),)),
    "an error": Script((request(),), (answer(503, ("Retry-After", "7"), body=b"busy"),)),
    "a get with a body": Script((request("GET", "/", body=b"odd"),), (answer(body=b"ok"),)),
    "close-delimited": Script((request(),), (answer(length=False), b"a", b"b"), closes=True),
    "cut inside a length": Script(
        (request(),), (answer(200, ("Content-Length", "9")), b"short"), closes=True
    ),
    "cut inside a chunk": Script((request(),), (answer(200, CHUNKED), b"9\r\nshort"), closes=True),
}


@pytest.mark.parametrize("name", EXACT)
async def test_both_ends_observe_the_same(router, pod, name):
    await assert_same(EXACT[name], router, pod)


# --- generated -------------------------------------------------------------------------------

names = st.from_regex(r"X-[A-Za-z0-9!#$%&'*+.^`|~-]{1,12}", fullmatch=True).filter(
    lambda name: not name.lower().startswith(("x-sandbox", "x-forwarded"))
)
values = st.binary(max_size=20).map(
    lambda value: bytes(byte for byte in value if byte == 9 or (byte > 31 and byte != 127)).strip()
)
headers: st.SearchStrategy[list[Header]] = st.lists(st.tuples(names, values), max_size=6)
targets = st.from_regex(rb"/[!$-;=?-\[\]_a-z~]{0,30}", fullmatch=True)
methods = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "REPORT"])
bodies = st.binary(max_size=300).flatmap(
    lambda body: st.sampled_from([body, body * 500])  # some larger than any single read
)
framings = st.sampled_from(["none", "length", "chunked"])
statuses = st.sampled_from([200, 201, 203, 299, 302, 400, 404, 418, 500, 599])


@st.composite
def cut(draw: st.DrawFn, whole: bytes) -> tuple[bytes, ...]:
    """Returns the bytes in at most five pieces."""
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    pieces = [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]
    return tuple(piece for piece in pieces if piece)


@st.composite
def chunkings(draw: st.DrawFn, body: bytes) -> bytes:
    pieces = draw(cut(body)) if body else ()
    trailers = draw(st.lists(st.tuples(names, values), max_size=2))
    return chunked(*pieces, trailers=tuple(trailers))


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    method, framing = draw(methods), draw(framings)
    body = draw(bodies)
    asked = draw(headers)
    if framing == "none":
        raw = request(method, draw(targets), *asked)
    elif framing == "length":
        length = ("Content-Length", str(len(body)))
        raw = request(method, draw(targets), *asked, length, body=body)
    else:
        raw = request(method, draw(targets), *asked, CHUNKED, body=draw(chunkings(body)))
    said_body, said = draw(bodies), draw(headers)
    status = draw(statuses)
    ending = draw(st.sampled_from(["length", "chunked", "close"]))
    if ending == "length":
        whole = answer(status, *said, body=said_body)
    elif ending == "chunked":
        whole = answer(status, *said, CHUNKED, body=draw(chunkings(said_body)))
    else:
        whole = answer(status, *said, length=False) + said_body
    return Script(draw(cut(raw)), draw(cut(whole)), method, closes=ending == "close")


@BOUNDED
@given(script=scripts())
async def test_both_ends_observe_the_same_of_any_conversation(router, pod, script):
    async with asyncio.timeout(30):
        await assert_same(script, router, pod)
