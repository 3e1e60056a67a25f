"""Wishes: keeps sandboxes awake that somebody asked for, whatever becomes of the worker that was asked."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from router.app.channel import ChannelClosed
from router.errors import Draining, Overloaded
from router.routing.endpoint import Endpoint
from router.telemetry.activity import Activity

logger = logging.getLogger("sandbox_router.app")

AWAKE: Final = "awake"
"""Told by a worker to the supervisor: namespace, name and UID of a sandbox, and for how many seconds it is kept awake."""

TellWish: TypeAlias = Callable[[tuple[str, str, str, float]], Awaitable[Any]]
"""Tells the supervisor and waits until it has heard. Raises ChannelClosed, TimeoutError, RuntimeError."""


class Wishes:
    """A proxy.own_paths.Awake: the worker's own activity, and the supervisor where there is one."""

    def __init__(self, activity: Activity, *, tell: TellWish | None) -> None:
        self._activity = activity
        self._tell = tell

    def __repr__(self) -> str:
        return f"<Wishes told={self._tell is not None}>"

    async def keep_awake(self, endpoint: Endpoint, seconds: float) -> float:
        """Returns for how many seconds the sandbox is kept awake, once no worker's end changes that. Raises Draining, Overloaded."""
        left_s = self._activity.keep_awake(endpoint, seconds)
        if self._tell is None:
            return left_s
        try:
            await self._tell((*endpoint.ref, endpoint.sandbox_uid, left_s))
        except ChannelClosed:
            raise Draining from None
        except (TimeoutError, RuntimeError) as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            logger.warning(
                "the supervisor did not take a wish to keep a sandbox awake",
                extra={"fields": {"sandbox": str(endpoint.ref), "reason": reason}},
            )
            raise Overloaded("The router could not note the wish. Ask again.") from None
        return left_s
