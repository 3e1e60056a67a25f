"""The sandbox behind the subjects."""

from __future__ import annotations

import asyncio

from bench import frames, heads
from bench.bodies import PATTERN, BodyWriter
from bench.heads import Caller
from bench.sandbox import received_body

CALLER = Caller("box-a", "secret")


async def converse(port: int, *pieces: bytes, until: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            return await reader.readuntil(until)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_get_brings_the_item(sandbox_port: int) -> None:
    answer = await converse(sandbox_port, heads.same_gets(CALLER)[0], until=heads.ITEM_BODY)

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: %d\r\n" % len(heads.ITEM_BODY) in answer


async def test_a_head_in_pieces_is_understood(sandbox_port: int) -> None:
    head = heads.same_gets(CALLER)[0]

    await converse(sandbox_port, head[:5], head[5:-1], head[-1:], until=heads.ITEM_BODY)


async def test_a_post_is_compared_with_what_was_sent(sandbox_port: int) -> None:
    (post,) = heads.different_posts(CALLER, 1)
    spoilt = post[:-1] + b"?"

    assert b" 200 " in await converse(sandbox_port, post[:300], post[300:], until=b"\r\n")
    assert b" 422 " in await converse(sandbox_port, spoilt, until=b"\r\n")


async def test_the_head_comes_back_as_it_was_seen(sandbox_port: int) -> None:
    head = CALLER.head("GET", "/head", "X-App: kept")

    answer = await converse(sandbox_port, head, until=b"X-App: kept\r\n")

    assert head[:-2] in answer


async def test_an_upload_is_counted_and_compared(sandbox_port: int) -> None:
    whole = heads.upload_head(CALLER, 1_000, chunked=False) + PATTERN[:1_000]
    spoilt = heads.upload_head(CALLER, 1_000, chunked=False) + PATTERN[1:1_001]
    writer = BodyWriter(70_000, chunked=True)
    chunked = heads.upload_head(CALLER, 0, chunked=True) + b"".join(iter(writer.next_piece, b""))

    await converse(sandbox_port, whole, until=received_body(1_000, intact=True))
    await converse(sandbox_port, spoilt, until=received_body(1_000, intact=False))
    await converse(sandbox_port, chunked, until=received_body(70_000, intact=True))


async def test_an_unknown_path_is_not_found(sandbox_port: int) -> None:
    answer = await converse(sandbox_port, CALLER.head("GET", "/nothing"), until=b"\r\n")

    assert b" 404 " in answer


async def test_a_ping_is_answered_and_a_close_is_returned(sandbox_port: int) -> None:
    mask = b"\x01\x02\x03\x04"

    answer = await converse(
        sandbox_port,
        heads.handshake(CALLER, b"dGhlIHNhbXBsZSBub25jZQ=="),
        frames.encode(b"hi", opcode=frames.PING, mask=mask),
        frames.encode(b"\x03\xe8", opcode=frames.CLOSE, mask=mask),
        until=frames.encode(b"\x03\xe8", opcode=frames.CLOSE),
    )

    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in answer
    assert frames.encode(b"hi", opcode=frames.PONG) in answer
