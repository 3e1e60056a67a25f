"""What the kernel knows of a connection that the loop has not come round to yet, or is not told."""

from __future__ import annotations

import asyncio
import fcntl
import select
import struct
import termios
from collections.abc import Callable
from typing import Any


def look_for(transport: asyncio.BaseTransport, signs: int) -> Callable[[int], list[Any]]:
    """Returns poll(2) for these signs, an error or a hang-up of a connection; it takes a time limit in milliseconds."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return _nothing
    poll = select.poll()
    poll.register(sock.fileno(), signs)
    return poll.poll


def shows(transport: asyncio.BaseTransport, signs: int) -> bool:
    """Returns True when the kernel has one of these signs of poll(2), an error or a hang-up for a connection."""
    return bool(look_for(transport, signs)(0))


def unread_bytes(transport: asyncio.BaseTransport) -> int:
    """Returns how many bytes of a connection wait in the kernel."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return 0
    return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4)))[0])


def _nothing(_timeout_ms: int) -> list[Any]:
    return []
