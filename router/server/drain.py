"""Drain: how the router leaves without anybody noticing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

logger = logging.getLogger("sandbox_router.server")

_GOODBYE_S: Final = 1.0
"""How long tunnels get to end their current frame once they were told to go."""
_LAST_BYTES_S: Final = 1.0
"""How long clients get to take what had come of the responses that are cut."""
_POLL_S: Final = 0.05


class Drainable(Protocol):
    """What has connections to bring to an end: the gateway."""

    is_draining: bool

    def drain(self) -> int:
        """Ends idle connections. Returns how many still carry something."""
        ...

    def end_tunnels(self, reason: str) -> None:
        """Tells every tunnel that the router is going away."""

    def end_now(self) -> None:
        """Ends every connection."""


async def drain(
    gateway: Drainable,
    *,
    stop_accepting: Callable[[], None],
    drain_delay_s: float,
    shutdown_timeout_s: float,
) -> int:
    """Goes on serving for `drain_delay_s`, then stops accepting and lets what is open finish within `shutdown_timeout_s`.

    The caller has made readiness fail before. Returns how many connections had to be cut.
    """
    gateway.is_draining = True
    logger.info("draining", extra={"fields": {"drain_delay_s": drain_delay_s}})
    await asyncio.sleep(drain_delay_s)
    stop_accepting()
    end = time.monotonic() + shutdown_timeout_s
    left = gateway.drain()
    logger.info("stopped accepting", extra={"fields": {"open_connections": left}})
    while left and time.monotonic() < end - _GOODBYE_S:
        await asyncio.sleep(_POLL_S)
        left = gateway.drain()
    if left:
        gateway.end_tunnels("the router is shutting down")
        while left and time.monotonic() < end:
            await asyncio.sleep(_POLL_S)
            left = gateway.drain()
    if left:
        logger.warning("cut what was still open", extra={"fields": {"open_connections": left}})
        gateway.end_now()
        end = time.monotonic() + _LAST_BYTES_S
        delivering = left
        while delivering and time.monotonic() < end:
            await asyncio.sleep(_POLL_S)
            delivering = gateway.drain()
    return left
