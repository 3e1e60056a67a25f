"""Makes and reads single-frame WebSocket messages, only as far as an echo needs them."""

from __future__ import annotations

import base64
import hashlib
from typing import NamedTuple

_ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3
BINARY = 0x2
CLOSE = 0x8
PING = 0x9
PONG = 0xA


class Frame(NamedTuple):
    opcode: int
    payload: bytes
    size: int  # bytes of the whole frame on the wire


def accept_key(key: bytes) -> bytes:
    """The Sec-WebSocket-Accept that answers a Sec-WebSocket-Key (RFC 6455 section 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key + _ACCEPT_GUID).digest())


def _flip(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    repeated = (mask * (size // 4 + 1))[:size]
    flipped = int.from_bytes(payload, "little") ^ int.from_bytes(repeated, "little")
    return flipped.to_bytes(size, "little")


def encode(payload: bytes, *, opcode: int = BINARY, mask: bytes = b"") -> bytes:
    """One final frame; masked, as clients must, when four bytes of mask are given."""
    size = len(payload)
    bit = 0x80 if mask else 0
    if size < 126:
        head = bytes((0x80 | opcode, bit | size))
    elif size < 65_536:
        head = bytes((0x80 | opcode, bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, bit | 127)) + size.to_bytes(8, "big")
    return head + mask + (_flip(payload, mask) if mask else payload)


def decode(data: bytes) -> Frame | None:
    """The first frame of data; None while it isn't whole."""
    if len(data) < 2:
        return None
    size = data[1] & 0x7F
    at = 2
    if size == 126:
        at = 4
        size = int.from_bytes(data[2:4], "big")
    elif size == 127:
        at = 10
        size = int.from_bytes(data[2:10], "big")
    mask = b""
    if data[1] & 0x80:
        mask = data[at : at + 4]
        at += 4
    if len(data) < at + size:
        return None
    payload = data[at : at + size]
    return Frame(data[0] & 0x0F, _flip(payload, mask) if mask else payload, at + size)
