"""Upgraded connections: bytes cross untouched, both ways, from the handshake to either side's end."""

import random

import pytest

from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.upgrades import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    frame,
    opened,
    switching,
    upgrade,
)
from tests.integration.proxy.wire import settled, until


async def test_a_handshake_crosses_with_everything_that_belongs_to_it(router, pod):
    client = await router.connect()
    client.send(
        upgrade(
            ("Sec-WebSocket-Protocol", "chat, superchat"),
            ("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits"),
            ("Cookie", "a=b"),
            ("Origin", "http://router.test"),
        )
    )
    sandbox = await pod.accept()
    asked = await sandbox.request()
    assert asked.line == b"GET /ws HTTP/1.1"
    assert asked.get("Connection") == b"Upgrade"
    assert asked.get("Upgrade") == b"websocket"
    assert asked.get("Sec-WebSocket-Protocol") == b"chat, superchat"
    assert asked.get("Sec-WebSocket-Extensions") == b"permessage-deflate; client_max_window_bits"
    assert asked.get("Cookie") == b"a=b"
    assert asked.get("Origin") == b"http://127.0.0.1:%d" % pod.port
    agreed = switching(("Sec-WebSocket-Protocol", "chat"), ("Set-Cookie", "x=y"))
    sandbox.send(agreed)
    told = await client.answer()
    assert told.line == b"HTTP/1.1 101 Switching Protocols"
    assert told.get("Upgrade") == b"websocket"
    assert told.get("Connection") == b"Upgrade"
    assert told.get("Sec-WebSocket-Protocol") == b"chat"
    assert told.get("Set-Cookie") == b"x=y"
    assert told.get("Sec-WebSocket-Accept") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


async def test_frames_of_every_kind_cross_untouched(router, pod):
    client, sandbox = await opened(router, pod)
    for payload in (
        frame(TEXT, b"hello", masked=True),
        frame(TEXT, b"a", masked=True, is_final=False) + frame(0, b"b", masked=True),
        frame(BINARY, random.Random(1).randbytes(1_000_000), masked=True),
        frame(PING, b"p", masked=True),
        b"\xc1\x05\xf2H\xcd\xc9\xc9",  # compressed
        b"\xff\xff not even a frame",
    ):
        client.send(payload)
        assert await sandbox.read(len(payload)) == payload
    for payload in (
        frame(TEXT, b"hello"),
        frame(TEXT, b"a", is_final=False) + frame(PONG, b"p") + frame(0, b"b"),
        frame(BINARY, random.Random(2).randbytes(1_000_000)),
        frame(BINARY, b"x" * 126) + frame(BINARY, b"") + frame(BINARY, b"x" * 65_536),
        b"\xc1\x05\xf2H\xcd\xc9\xc9",
        frame(CLOSE, b"\x03\xe8bye"),
    ):
        sandbox.send(payload)
        assert await client.read(len(payload)) == payload


async def test_bytes_behind_the_handshake_belong_to_the_other_protocol(router, pod):
    client = await router.connect()
    client.send(upgrade(protocol="other"), b"early from the client")
    sandbox = await pod.accept()
    await sandbox.request()
    await settled()
    assert sandbox.unread == b""
    sandbox.send(switching(protocol="other"), b"early from the sandbox")
    assert (await client.answer()).status == 101
    assert await client.read(22) == b"early from the sandbox"
    assert await sandbox.read(21) == b"early from the client"


async def test_much_behind_the_handshake_crosses_too(router, pod):
    client = await router.connect()
    early = random.Random(3).randbytes(3_000_000)
    client.send(upgrade(protocol="other"), early)
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(switching(protocol="other"), early)
    assert (await client.answer()).status == 101
    assert await client.read(len(early)) == early
    assert await sandbox.read(len(early)) == early


async def test_what_looks_like_http_in_a_tunnel_is_no_http(router, pod):
    client, sandbox = await opened(router, pod, protocol="other")
    client.send(request("GET", "/healthz", sandbox=None))
    assert await sandbox.read_through(b"\r\n\r\n") == request("GET", "/healthz", sandbox=None)
    sandbox.send(answer(body=b"x") * 2)
    assert await client.read(len(answer(body=b"x")) * 2) == answer(body=b"x") * 2
    assert len(router.outcomes) == 0


async def test_a_client_that_says_no_more_still_hears_the_sandbox(router, pod):
    client, sandbox = await opened(router, pod, protocol="other")
    client.send(b"question")
    client.half_close()
    assert await sandbox.read(8) == b"question"
    assert await sandbox.end() == "eof"
    assert router.outcomes == []
    sandbox.send(b"answer")
    assert await client.read(6) == b"answer"
    sandbox.close()
    assert await client.end() == "eof"
    outcome = await router.outcome()
    assert (outcome.status, outcome.code) == (101, "")
    assert (outcome.bytes_from_client, outcome.bytes_to_client) == (8, 6)


async def test_a_sandbox_that_says_no_more_still_hears_the_client(router, pod):
    client, sandbox = await opened(router, pod, protocol="other")
    sandbox.send(b"greeting")
    sandbox.half_close()
    assert await client.read(8) == b"greeting"
    assert await client.end() == "eof"
    client.send(b"farewell")
    assert await sandbox.read(8) == b"farewell"
    client.close()
    assert await sandbox.end() == "eof"
    assert (await router.outcome()).code == ""


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves_takes_its_tunnel_with_it(router, pod, how):
    client, sandbox = await opened(router, pod)
    client.send(b"last words")
    await sandbox.read(10)
    getattr(client, how)()
    assert await sandbox.end() == "eof"
    sandbox.close()
    outcome = await router.outcome()
    assert (outcome.status, outcome.is_tunnel) == (101, True)


async def test_a_sandbox_that_crashes_ends_its_tunnel(router, pod):
    client, sandbox = await opened(router, pod)
    sandbox.reset()
    await client.rest()
    outcome = await router.outcome()
    assert (outcome.status, outcome.code) == (101, "tunnel_cut")


async def test_last_words_arrive_before_the_end(router, pod):
    client, sandbox = await opened(router, pod, protocol="other")
    words = random.Random(4).randbytes(2_000_000)
    client.send(words)
    client.close()
    assert await sandbox.read(len(words)) == words
    assert await sandbox.end() == "eof"
    sandbox.close()
    client, sandbox = await opened(router, pod, protocol="other")
    sandbox.send(words)
    sandbox.close()
    assert await client.read(len(words)) == words
    assert await client.end() == "eof"


async def test_a_sandbox_that_reads_no_last_words_is_not_waited_for_for_ever(router, pod):
    client, sandbox = await opened(router, pod, protocol="other")
    sandbox.stop_reading()
    client.send(b"x" * 40_000_000)
    await until(lambda: client.transport.get_write_buffer_size() < 39_000_000)
    await settled()
    client.reset()
    router.pass_time(1)
    await router.outcome()
    assert len(router.pool._closing) == 1
    router.pass_time(31)
    await until(lambda: not router.pool._closing)
    sandbox.start_reading()
    _, how = await sandbox.rest()
    assert how in ("eof", "reset")


@pytest.mark.parametrize("status", [200, 400, 401, 403, 426, 500])
async def test_a_refused_upgrade_passes_with_status_headers_and_body(router, pod, status):
    client = await router.connect()
    async with serving(pod, lambda _: answer(status, ("X-Why", "because"), body=b"no tunnel")):
        client.send(upgrade())
        told = await client.answer()
        assert (told.status, told.get("X-Why"), told.body) == (status, b"because", b"no tunnel")
        client.send(request("GET", "/next"))
        assert (await client.answer()).status == status
    assert pod.connections == 1


async def test_bytes_behind_a_refused_upgrade_are_never_read_as_a_request(router, pod):
    client = await router.connect()
    client.send(upgrade(), request("DELETE", "/smuggled"))
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer("403 Forbidden", body=b"no"))
    told = await client.answer()
    assert (told.status, told.get("Connection")) == (403, b"close")
    assert await client.end() == "eof"
    assert len(router.outcomes) == 1


@pytest.mark.parametrize(
    "raw",
    [
        request(),
        request("POST", "/", body=b"x"),
        request("GET", "/", ("Upgrade", "websocket")),
        request("GET", "/", ("Connection", "Upgrade")),
        request("GET", "/", ("Connection", "Upgrade"), ("Upgrade", "h2c")),
        upgrade(version="HTTP/1.0"),
        upgrade(protocol="other"),
        upgrade(("Content-Length", "5")) + b"later",
    ],
    ids=["plain", "post", "no connection", "no upgrade", "h2c", "1.0", "other", "with a body"],
)
async def test_a_101_that_was_not_asked_for_is_502(router, pod, raw):
    client = await router.connect()
    client.send(raw[: raw.index(b"\r\n\r\n") + 4])
    sandbox = await pod.accept()
    await sandbox.head()
    sandbox.send(switching(), b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned")
    told = await client.answer()
    assert (told.status, told.code) == (502, "bad_response")
    await sandbox.rest()
    assert router.metric("open_tunnels") == 0
    assert b"poisoned" not in client.unread


@pytest.mark.parametrize("chosen", ["other", "h2c", "websocket, other", ""])
async def test_a_101_to_another_protocol_than_offered_is_502(router, pod, chosen):
    client = await router.connect()
    client.send(upgrade())
    sandbox = await pod.accept()
    await sandbox.request()
    headers = [("Connection", "Upgrade"), *([("Upgrade", chosen)] if chosen else [])]
    sandbox.send(answer("101 Switching Protocols", *headers, length=False))
    told = await client.answer()
    assert (told.status, told.code) == (502, "bad_response")


@pytest.mark.parametrize(
    ("offered", "passed", "chosen"),
    [
        ("h2c, websocket", b"websocket", "websocket"),
        ("one, two/2.0", b"one, two/2.0", "two/2.0"),
        ("WebSocket", b"WebSocket", "websocket"),
        ("websocket, h2c, h2", b"websocket", "Websocket"),
    ],
)
async def test_any_protocol_but_http_2_is_offered_and_may_be_chosen(
    router, pod, offered, passed, chosen
):
    client = await router.connect()
    client.send(upgrade(protocol=offered))
    sandbox = await pod.accept()
    assert (await sandbox.request()).get("Upgrade") == passed
    sandbox.send(switching(protocol=chosen))
    told = await client.answer()
    assert (told.status, told.get("Upgrade")) == (101, chosen.encode())
    client.send(b"ping")
    assert await sandbox.read(4) == b"ping"


async def test_h2c_is_never_offered_to_a_sandbox(router, pod):
    client = await router.connect()
    async with serving(pod, lambda asked: answer(body=b"plain")):
        client.send(
            upgrade(
                ("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA"),
                protocol="h2c",
            )
        )
        assert (await client.answer()).body == b"plain"
    asked = pod.wires[0]
    assert asked.ended == ""


async def test_a_tunnels_connection_is_never_used_again(router, pod):
    client, sandbox = await opened(router, pod)
    client.close()
    await sandbox.rest()
    sandbox.close()
    assert router.pool.idle_count == 0
    await opened(router, pod)
    assert pod.connections == 2


async def test_an_upgrade_uses_an_idle_connection_that_is_open(router, pod):
    client = await router.connect()
    client.send(request())
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(answer())
    await client.answer()
    client.send(upgrade())
    await sandbox.request()
    sandbox.send(switching(), b"hi")
    assert (await client.answer()).status == 101
    assert await client.read(2) == b"hi"
    assert pod.connections == 1


async def test_a_tunnel_outlives_the_time_for_answers(start_router, pod):
    router = await start_router(proxy_timeout_s=180, stream_idle_timeout_s=300)
    router.knows(pod)
    client, sandbox = await opened(router, pod)
    router.pass_time(3000)
    client.send(b"still here")
    assert await sandbox.read(10) == b"still here"


async def test_many_small_messages_keep_their_order(router, pod):
    client, sandbox = await opened(router, pod)
    messages = [frame(TEXT, b"%d" % number) for number in range(5000)]
    for message in messages:
        sandbox.send(message)
    everything = b"".join(messages)
    assert await client.read(len(everything)) == everything
    assert router.metric("open_tunnels") == 1
