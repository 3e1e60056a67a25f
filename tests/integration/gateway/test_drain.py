"""A router that goes away behind Envoy, seen over HTTP/2: streams end by themselves, WebSockets are told."""

import pytest

from tests.integration.gateway.conftest import AUTHORIZATION
from tests.integration.gateway.test_websockets import websocket
from tests.integration.proxy.wire import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MANY = 10


async def test_streams_end_whole_and_websockets_end_with_1001(way, client):
    sockets = [(await websocket(client))[0] for _ in range(MANY)]
    streams = [
        await client.request("GET", "/events?gate=drain", [AUTHORIZATION]) for _ in range(MANY)
    ]
    firsts = [await stream.piece() for stream in streams]

    way.router.process.terminate()
    await until(lambda: any("stopped accepting" in line for line in way.router.log))
    way.sandbox.gate("drain").set()
    rests = [await stream.body() for stream in streams]
    ends = [await socket.receive() for socket in sockets]

    assert (firsts, rests) == ([b"data: first\n\n"] * MANY, [b"data: second\n\n"] * MANY)
    assert ends == [None] * MANY
    assert [socket.close_code for socket in sockets] == [1001] * MANY
    await way.router.process.wait()
    assert way.router.process.returncode == 0
