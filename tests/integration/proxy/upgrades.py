"""Upgrades in tests: handshakes, WebSocket frames, and tunnels that are open."""

from __future__ import annotations

import base64
import hashlib
import os

from tests.integration.proxy.messages import Header, answer, request
from tests.integration.proxy.wire import Wire

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
GOING_AWAY, POLICY_VIOLATION = 1001, 1008


def upgrade(*headers: Header, protocol: str = "websocket", target: str = "/ws", **options) -> bytes:
    """Returns a request for an upgrade."""
    needed: list[Header] = [("Connection", "Upgrade"), ("Upgrade", protocol)]
    if protocol == "websocket":
        needed += [("Sec-WebSocket-Key", KEY), ("Sec-WebSocket-Version", "13")]
    return request("GET", target, *needed, *headers, **options)


def switching(*headers: Header, protocol: str = "websocket") -> bytes:
    """Returns the sandbox's agreement."""
    needed: list[Header] = [("Connection", "Upgrade"), ("Upgrade", protocol)]
    if protocol == "websocket":
        digest = hashlib.sha1(KEY.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        needed.append(("Sec-WebSocket-Accept", base64.b64encode(digest)))
    return answer("101 Switching Protocols", *needed, *headers, length=False)


def frame(
    opcode: int, payload: bytes = b"", *, masked: bool = False, is_final: bool = True
) -> bytes:
    """Returns one WebSocket frame (RFC 6455 §5.2)."""
    size = len(payload)
    first = opcode | (0x80 if is_final else 0)
    flag = 0x80 if masked else 0
    if size < 126:
        head = bytes([first, flag | size])
    elif size < 65_536:
        head = bytes([first, flag | 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, flag | 127]) + size.to_bytes(8, "big")
    if not masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


async def opened(router, pod, *, protocol: str = "websocket", **options) -> tuple[Wire, Wire]:
    """Returns the client's and the sandbox's end of an open tunnel."""
    client = await router.connect(**options)
    client.send(upgrade(protocol=protocol))
    sandbox = await pod.accept()
    await sandbox.request()
    sandbox.send(switching(protocol=protocol))
    assert (await client.answer()).status == 101
    return client, sandbox


async def close_code(client: Wire) -> int:
    """Returns the code of the Close frame that comes next, after which nothing may come but the end."""
    first, size = await client.read(2)
    assert first == 0x80 | CLOSE, f"no Close frame: {first:#x}"
    payload = await client.read(size)
    assert await client.end() == "eof"
    return int.from_bytes(payload[:2], "big")
