"""Slot: one worker's place in the supervisor."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from typing import Final

from router.app.channel import Channel
from router.server.listeners import close_all

_SILENT_AFTER_S: Final = 3.0


class Slot:
    """One worker's place: its sockets outlive it, so connections that wait in them go to its replacement."""

    def __init__(
        self,
        number: int,
        http: Sequence[socket.socket],
        https: Sequence[socket.socket],
        checks: Sequence[socket.socket] = (),
    ) -> None:
        self.number = number
        self.http = list(http)
        self.https = list(https)
        self.checks = list(checks)
        self.process: asyncio.subprocess.Process | None = None
        self.channel: Channel | None = None
        self.is_listening = False
        self.life = 0
        """The process's number in WorkerTotals; each replacement has a new one."""
        self.heard_at = time.monotonic()
        """When it last answered, began to listen or was started."""

    def silent_for_s(self) -> float:
        """Returns how long a worker that serves has said nothing; 0 when that is no matter yet."""
        silent_s = time.monotonic() - self.heard_at
        return silent_s if self.is_listening and silent_s >= _SILENT_AFTER_S else 0.0

    def absence(self) -> str:
        """Returns why it gives no answer, in words."""
        return (
            f"worker {self.number} {'does not answer' if self.is_listening else 'is not running'}"
        )

    def close_sockets(self) -> None:
        close_all(self.http)
        close_all(self.https)
        close_all(self.checks)
