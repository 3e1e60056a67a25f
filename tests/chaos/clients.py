"""Clients that ask for sandboxes by name and note who answered."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos.history import History, Name

SETTLED_S = 3.0
"""A sandbox that has been ready for so long must answer; before that the watch may still be catching up."""


@dataclass
class Verdicts:
    """What the answers were."""

    history: History
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    unknown_though_there: list[str] = field(default_factory=list)
    """404 for a name that led to a ready sandbox all the time: final for who asked, and wrong however young the name is."""
    failed_though_ready: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def note(self, asked: Name, began: float, status: int, body: str) -> None:
        ended = time.monotonic()
        self.statuses[status] += 1
        if status == 200 and not self.history.is_right(asked, body):
            self.wrong.append(
                f"{asked} was answered by {body} of {self.history.owner_of.get(body)}"
            )
        if status == 404 and self.history.ready_throughout(asked, began, ended, 0.0):
            self.unknown_though_there.append(f"{asked}: {body}")
        if status != 200 and self.history.ready_throughout(asked, began, ended, SETTLED_S):
            self.failed_though_ready.append(f"{asked} got {status}: {body}")


@dataclass
class Client:
    """One client with one connection, which it keeps while it can."""

    port: int
    names: list[Name]
    verdicts: Verdicts
    rng: random.Random
    pause_s: float

    async def run(self, is_over: Callable[[], bool]) -> None:
        reader: asyncio.StreamReader | None = None
        writer: asyncio.StreamWriter | None = None
        while not is_over():
            try:
                if reader is None or writer is None:
                    reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                await self._ask(reader, writer)
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                self.verdicts.broken.append(f"{type(error).__name__}: {error}")
                if writer is not None:
                    writer.close()
                reader = writer = None
            await asyncio.sleep(self.rng.expovariate(1 / self.pause_s))
        if writer is not None:
            writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Mostly what is young: old names are mostly gone.
        recent = self.names[-2000:]
        asked = self.rng.choice(recent)
        began = time.monotonic()
        writer.write(
            b"GET / HTTP/1.1\r\nHost: router\r\nX-Sandbox-ID: %s\r\nX-Sandbox-Namespace: %s\r\n"
            b"X-Sandbox-Timeout: 2\r\n\r\n" % (asked[1].encode(), asked[0].encode())
        )
        async with asyncio.timeout(20.0):
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head[9:12])
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = (await reader.readexactly(length)).decode()
        self.verdicts.note(asked, began, status, body)
