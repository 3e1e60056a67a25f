"""RouterLines: what the router logs, kept until it is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class RouterLines:
    """Keeps what the router logs until the table has been read, then shows it as it comes."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._kept: list[str] | None = []
        self._news = asyncio.Event()

    def __repr__(self) -> str:
        return f"<RouterLines kept={None if self._kept is None else len(self._kept)}>"

    def take(self, line: str) -> None:
        """Takes the next line."""
        if self._kept is None:
            self._tell(line)
        else:
            self._kept.append(line)
            self._news.set()

    async def line_with(self, words: str) -> str:
        """Returns the first line that was kept with these words, as soon as it is there; the caller has a deadline."""
        while True:
            for line in self._kept or ():
                if words in line:
                    return line
            self._news.clear()
            await self._news.wait()

    def show(self) -> None:
        """Tells what was kept, and every line from now on."""
        kept, self._kept = self._kept or [], None
        for line in kept:
            self._tell(line)

    def hide(self) -> None:
        """Keeps lines again."""
        self._kept = []
