"""Adoption: a new worker takes over a sibling's table before its first connection, since its own first lists may take long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from router.app.sandboxes import Sandboxes
from router.routing.handover import Page, fetch

logger = logging.getLogger("sandbox_router.app")

AskSiblings = Callable[[Page], Awaitable[Page | None]]

_WITHIN_S: Final = 10.0
"""Connections wait meanwhile."""


async def adopt_table(sandboxes: Sandboxes, ask_siblings: AskSiblings | None) -> None:
    """Takes the table that a sibling has, if there is one, unless ours is whole or needs no lists."""
    if ask_siblings is None or sandboxes.adopt is None:
        return
    try:
        async with asyncio.timeout(_WITHIN_S):
            handed = await fetch(ask_siblings)
    except (OSError, TimeoutError, RuntimeError) as exc:
        logger.warning("no table from another worker", extra={"fields": {"reason": repr(exc)}})
        return
    if handed is not None and not sandboxes.source.is_complete():
        sandboxes.adopt(handed)
