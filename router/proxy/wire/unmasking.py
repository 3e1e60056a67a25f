"""Unmasking: the XOR with four bytes that every frame of a WebSocket client has gone through (RFC 6455 §5.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from router import code_form


def unmask_in_python(data: bytes, mask: bytes, begin: int, end: int) -> bytes:
    """Returns data[begin:end] without (or with) its mask of four bytes. By one large number: a byte at a time costs fifty times as much."""
    size = end - begin
    pattern = (mask * ((size >> 2) + 1))[:size]
    number = int.from_bytes(data[begin:end], "little") ^ int.from_bytes(pattern, "little")
    return number.to_bytes(size, "little")


def _fastest() -> Callable[[bytes, bytes, int, int], bytes]:
    if "router.proxy.wire.masking" in code_form.CURRENT.modules:
        from router.proxy.wire import masking

        return masking.unmask
    return unmask_in_python


unmask: Final = _fastest()
"""unmask_in_python(), or its compiled form."""
