"""WebSockets over HTTP/2 (extended CONNECT, RFC 8441) through a real Envoy; the frames are made by the `websockets` library."""

import asyncio
import contextlib
import json
import os

import pytest
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import OPEN, Protocol, Side

from tests.deploy.fronts import HOST
from tests.integration.gateway.conftest import AUTHORIZATION, CLIENT, TOKEN
from tests.integration.gateway.http2 import PATIENCE_S, StreamReset, connected

pytestmark = pytest.mark.asyncio(loop_scope="module")


class WebSocket:
    """One WebSocket on one stream."""

    def __init__(self, stream):
        self._stream = stream
        self._protocol = Protocol(Side.CLIENT, state=OPEN, max_size=None)
        self._frames = []

    @property
    def close_code(self):
        """What the other side closed with; None while it hasn't."""
        received = self._protocol.close_rcvd
        return None if received is None else received.code

    async def send(self, data):
        if isinstance(data, str):
            self._protocol.send_text(data.encode())
        else:
            self._protocol.send_binary(data)
        await self._flush()

    async def receive(self):
        """Returns the next whole message; None when the other side has closed. Raises StreamReset when it ended without a word."""
        parts = []
        while True:
            while not self._frames:
                if self.close_code is not None:
                    return None
                piece = await self._stream.piece()
                assert piece, "the stream ended without a Close frame"
                self._protocol.receive_data(piece)
                self._frames = self._protocol.events_received()
                with contextlib.suppress(StreamReset):  # a closed side needn't hear the answer
                    await self._flush()
            frame = self._frames.pop(0)
            assert isinstance(frame, Frame)
            if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                parts.append(frame)
                if frame.fin:
                    whole = b"".join(part.data for part in parts)
                    return whole.decode() if parts[0].opcode is Opcode.TEXT else whole

    async def close(self):
        self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
        await self._flush()
        assert await self.receive() is None

    async def _flush(self):
        for data in self._protocol.data_to_send():
            if data:
                await self._stream.send(data)


async def websocket(client, *headers, target="/socket"):
    stream = await client.websocket(target, [AUTHORIZATION, *headers])
    head = await stream.head()
    assert head.status == 200
    return WebSocket(stream), head


async def test_messages_go_both_ways(client):
    socket, _ = await websocket(client)

    await socket.send("hello")
    text = await socket.receive()
    await socket.send(b"\x00\xff")
    binary = await socket.receive()
    await socket.close()

    assert (text, binary) == ("hello", b"\x00\xff")
    assert socket.close_code == CloseCode.NORMAL_CLOSURE


async def test_a_message_of_four_megabytes_comes_back_as_it_was(client):
    socket, _ = await websocket(client)
    message = os.urandom(4 << 20)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(socket.send(message))
        back = tasks.create_task(socket.receive())

    assert back.result() == message
    await socket.close()


async def test_the_sandbox_sees_an_upgrade_of_http_1(client):
    socket, head = await websocket(client, ("sec-websocket-protocol", "chat"))

    await socket.send("head")
    method, target, told = json.loads(await socket.receive())
    await socket.close()

    headers = {name.lower(): value for name, value in told.items()}
    assert (method, target, headers["host"]) == ("GET", "/socket", HOST)
    assert headers["upgrade"] == "websocket"
    assert headers["x-forwarded-for"].replace(" ", "") == f"{CLIENT},127.0.0.1"
    assert "authorization" not in headers
    assert head.headers["sec-websocket-protocol"] == "chat"


async def test_the_sandboxs_close_code_arrives(client):
    socket, _ = await websocket(client)

    await socket.send("bye")
    assert await socket.receive() is None

    assert socket.close_code == 4321


async def test_websockets_and_requests_share_one_connection(client):
    sockets = [(await websocket(client))[0] for _ in range(10)]
    for number, socket in enumerate(sockets):
        await socket.send(f"to {number}")
    head, _ = await client.ask("GET", "/", [AUTHORIZATION])
    answers = [await socket.receive() for socket in sockets]
    for socket in sockets:
        await socket.close()

    assert head.status == 200
    assert answers == [f"to {number}" for number in range(10)]


async def test_a_client_that_leaves_leaves_the_sandbox_too(way):
    async with connected(way.front, address=CLIENT) as client:
        socket, _ = await websocket(client, target="/socket?gate=leaving")
        await socket.send("hello")
        await socket.receive()
        assert not way.sandbox.gate("leaving.left").is_set()

    async with asyncio.timeout(PATIENCE_S):
        await way.sandbox.gate("leaving.left").wait()


async def test_a_refused_websocket_says_why(client):
    stream = await client.websocket("/socket")
    head = await stream.head()

    assert (head.status, head.headers["x-sandbox-router-error"]) == (401, "unauthenticated")


async def test_a_browser_can_not_set_headers_and_says_its_token_as_a_subprotocol(client):
    offered = ("sec-websocket-protocol", f"chat, sandbox-router.bearer.{TOKEN}")
    stream = await client.websocket("/socket", [offered])
    head = await stream.head()

    assert (head.status, head.headers["sec-websocket-protocol"]) == (200, "chat")
    await WebSocket(stream).close()
