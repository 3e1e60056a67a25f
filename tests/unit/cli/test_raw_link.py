"""What a client of `/.sandbox-router/tcp` says, and what it makes of every answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from router.cli.raw_link import CannotConnect, LinkLost, RawLink, Router
from router.proxy.raw_connection import _switching
from router.proxy.wire.request_head import parse_request
from router.proxy.wire.unmasking import unmask
from router.proxy.wire.websocket import CloseCode, binary_header, close_frame

Answer = Callable[[bytes], bytes]


def stands(head: bytes) -> bytes:
    return _switching(parse_request(head))


@contextlib.asynccontextmanager
async def answering(
    answer: Answer, then: bytes = b"", *, path: str = ""
) -> AsyncIterator[tuple[Router, asyncio.Queue[bytes]]]:
    """A router that answers a handshake so; what it is sent, the handshake first, comes out of the queue."""
    came: asyncio.Queue[bytes] = asyncio.Queue()
    served: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            came.put_nowait(head)
            writer.write(answer(head) + then)
            while data := await reader.read(65_536):
                came.put_nowait(data)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        served.discard(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Router.of(f"http://127.0.0.1:{port}{path}"), came
        async with asyncio.timeout(10):
            while served:
                await asyncio.sleep(0.001)


async def opened(router: Router, token: str = "t0ken") -> RawLink:
    return await RawLink.open(router, namespace="team-a", name="box", port=22, token=token)


async def refused(answer: bytes) -> str:
    async with answering(lambda head: answer) as (router, _):
        with pytest.raises(CannotConnect) as caught:
            await opened(router)
    return str(caught.value)


async def test_the_handshake_names_the_sandbox_and_brings_the_token() -> None:
    async with answering(stands, path="/front/") as (router, came):
        link = await opened(router)
        head = parse_request(await came.get())
        assert head.target == b"/front/.sandbox-router/tcp"
        assert head.asked.sandbox_id == b"box"
        assert head.asked.namespace == b"team-a"
        assert head.asked.port == b"22"
        assert head.sandbox_token == b"t0ken"
        await link.close()


async def test_bytes_come_out_of_frames_and_go_into_them() -> None:
    then = binary_header(3) + b"abc" + b"\x89\x01?" + close_frame(CloseCode.NORMAL, "")
    async with answering(stands, then) as (router, came):
        link = await opened(router)
        assert await link.receive() == b"abc"
        assert await link.receive() == b""
        await came.get()
        sent = await came.get()
        if len(sent) < 7:
            sent += await came.get()
        assert sent[:2] == b"\x8a\x81"
        assert unmask(sent, sent[2:6], 6, 7) == b"?"
        await link.close()


@pytest.mark.parametrize("size", [1, 125, 126, 65_535, 65_536])
async def test_frames_of_every_length_are_masked(size: int) -> None:
    async with answering(stands) as (router, came):
        link = await opened(router)
        await came.get()
        data = b"x" * size
        await link.send(data)
        await link.send_end()
        header = 2 if size < 126 else 4 if size < 65_536 else 10
        sent = b""
        while len(sent) < header + 4 + size + 8:
            sent += await came.get()
        mask = sent[header : header + 4]
        assert unmask(sent, mask, header + 4, header + 4 + size) == data
        assert sent[header + 4 + size] == 0x88
        await link.close()


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (close_frame(CloseCode.POLICY_VIOLATION, "the right has ended"), "the right has ended"),
        (close_frame(CloseCode.GOING_AWAY, ""), "1001"),
        (b"\x81\x01x", "no WebSocket"),
        (b"\x82\x81\0\0\0\0x", "no WebSocket"),
    ],
)
async def test_every_other_end_is_told(then: bytes, why: str) -> None:
    async with answering(stands, then) as (router, _):
        link = await opened(router)
        with pytest.raises(LinkLost, match=why):
            await link.receive()
        await link.close()


async def test_the_routers_own_errors_are_told_with_what_to_do() -> None:
    body = b'{"detail":"Not allowed to call this sandbox.","code":"forbidden","retryable":false}'
    said = await refused(
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    assert said.startswith("Not allowed to call this sandbox. (403 forbidden)")
    assert "CONNECT" in said


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 502 Bad Gateway\r\nServer: nginx\r\nContent-Length: 2\r\n\r\n<>", "nginx answered 502"),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "before the router answered 302"),
        (b"SSH-2.0-x\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 101 x\r\nSec-WebSocket-Accept: nonsense\r\n\r\n", "not the one to this"),
        (b"HTTP/1.1 403 \x1b[31m\r\nContent-Length: 0\r\n\r\n", "?[31m"),
    ],
)  # fmt: skip
async def test_what_is_no_routers_answer_is_told_as_such(answer: bytes, why: str) -> None:
    said = await refused(answer)
    assert why in said
    assert said.isprintable()


async def test_nobody_there_may_be_passing_and_a_name_that_is_none_is_not() -> None:
    with pytest.raises(CannotConnect, match="refused") as caught:
        await opened(Router.of("http://127.0.0.1:1"))
    assert caught.value.is_passing


@pytest.mark.parametrize(
    "url",
    ["ftp://router", "http://", "http://a/?x", "http://a/#x", "http://a:b@router", "http://a b", "http://a:99999"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Router.of(url)


def test_https_is_meant_where_nothing_is_said_and_certificates_are_checked() -> None:
    router = Router.of("router.example")
    assert (router.host, router.port) == ("router.example", 443)
    assert router.context is not None
    assert router.context.check_hostname


def test_authorities_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"."):
        Router.of("https://router.example", str(tmp_path / "none"))
