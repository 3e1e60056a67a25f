"""SignOuts: what every worker has to know of sessions that a person ended in one of them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeAlias

from router.app.channel import ChannelClosed
from router.auth.revocation import EndedSessions
from router.tasks import TaskSet

logger = logging.getLogger("sandbox_router.app")

SIGNED_OUT: Final = "signed-out"
"""Told by a worker to the supervisor, and by the supervisor to all: pairs of a session's id and until when to remember it (Unix seconds).

The supervisor answers a worker that tells it none with all that it remembers.
"""

Ask: TypeAlias = Callable[[list[tuple[str, float]]], Awaitable[Any]]
"""Tells the supervisor, and returns its answer. Raises ChannelClosed, TimeoutError, RuntimeError."""


class SignOuts:
    """One worker's part: tells what ends here, and learns what ended elsewhere."""

    def __init__(self, ended: EndedSessions, *, ask: Ask) -> None:
        self._ended = ended
        self._ask = ask
        self._telling = TaskSet()
        ended.on_end = self._tell

    def __repr__(self) -> str:
        return f"<SignOuts {self._ended!r} telling={len(self._telling)}>"

    async def catch_up(self) -> None:
        """Learns what ended before this process began."""
        self.learn(await self._told([]) or ())

    def learn(self, pairs: Iterable[tuple[str, float]]) -> None:
        """Ends sessions that were ended elsewhere."""
        self._ended.learn(pairs)

    async def close(self) -> None:
        """Gives up what has not been told yet."""
        await self._telling.close()

    def _tell(self, session_id: str, until: float) -> None:
        self._telling.start(self._tell_one(session_id, until), name="tell a sign-out")

    async def _tell_one(self, session_id: str, until: float) -> None:
        await self._told([(session_id, until)])

    async def _told(self, pairs: list[tuple[str, float]]) -> Any:
        try:
            return await self._ask(pairs)
        except ChannelClosed:
            return None  # this process ends as well
        except (TimeoutError, RuntimeError) as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            logger.warning(
                "other workers may not know of a sign-out", extra={"fields": {"reason": reason}}
            )
            return None
