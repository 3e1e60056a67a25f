"""The tour of a sandbox that sleeps: who wakes it and who does not, and what that is like."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

import aiohttp

from router.demo.sleeper import Sleeper
from router.demo.stage import Place
from router.demo.tour import Answer, Row, get_hello, headers_for, row_of

WAKE_S = 60.0
LOG_S = 5.0
WOKEN = "a request woke a sandbox"
_WAKES = re.compile(r"^(sandbox_router_wakes_total\{.*\}) ([1-9][0-9.]*)$", re.MULTILINE)
_TITLE = re.compile(r"<title>([^<]*)</title>")

LineWith = Callable[[str], Awaitable[str]]
"""Returns the first line of the router's log with these words, as soon as it is there."""


async def suspend(sleeper: Sleeper, place: Place) -> None:
    """Ends the sandbox's process, and returns once the router has read so in the file. The caller has a deadline."""
    await sleeper.suspend()
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(
                f"{place.admin_url}/debug/sandboxes", params={"name": sleeper.name}
            ) as response:
                (sandbox,) = (await response.json())["sandboxes"]
            if sandbox["state"] == "suspended":
                return
            await asyncio.sleep(0.05)


class SleepTour:
    """Asks for the sleeping sandbox in every way that matters, and judges what came of it."""

    def __init__(self, place: Place, sleeper: Sleeper, *, guest: str, line_with: LineWith) -> None:
        """`guest` is a token without the right to wake."""
        self._place = place
        self._sleeper = sleeper
        self._guest = guest
        self._line_with = line_with
        self._together: asyncio.Barrier = asyncio.Barrier(2)

    async def take(self) -> list[Row]:
        """Returns one row for each request or event, wrong ones included."""
        name = self._sleeper.name
        async with aiohttp.ClientSession() as session:
            rows = [
                await row_of("GET /", "hello", lambda: get_hello(session, self._place)),
                await row_of("GET /", name, lambda: self._page(session)),
                await row_of("(it is suspended)", name, self._suspend),
                await self._refused_row("GET / without the right to wake", session, self._guest),
                await self._refused_row(
                    "GET / as a prefetch", session, headers={"Sec-Purpose": "prefetch"}
                ),
                await row_of(
                    "WebSocket /ws that reconnects", name, lambda: self._websocket(session)
                ),
            ]
            first, second = await asyncio.gather(
                self._waking_row("GET / that wakes it", session, self._woken),
                self._waking_row("GET / at the same moment", session, self._shared),
            )
            rows += [first, self._judged_together(second)]
            # What tells of the wake comes a moment after the sandbox: the log line last.
            rows.append(await row_of("(the router's log)", name, self._log_line, limit_s=LOG_S))
            rows.append(await row_of("GET /metrics", "-", lambda: self._counted(session)))
        return rows

    # --- before -----------------------------------------------------------------------------

    async def _page(self, session: aiohttp.ClientSession) -> Answer:
        status, title = await self._get(session)
        return Answer(status, f'its page, "{title}"', (status, title) == (200, self._title))

    async def _suspend(self) -> Answer:
        pid = self._sleeper.pid
        await suspend(self._sleeper, self._place)
        return Answer(0, f"process {pid} has ended, the file says suspended", is_right=True)

    # --- who does not wake ------------------------------------------------------------------

    async def _refused_row(
        self,
        request: str,
        session: aiohttp.ClientSession,
        token: str = "",
        *,
        headers: dict[str, str] | None = None,
    ) -> Row:
        async def ask() -> Answer:
            sent = self._headers | (headers or {})
            if token:
                sent["Authorization"] = f"Bearer {token}"
            async with session.get(self._place.url, headers=sent) as response:
                return self._refusal(
                    response.status, response.headers.get("X-Sandbox-Router-Error", "no error")
                )

        return await row_of(request, self._sleeper.name, ask)

    async def _websocket(self, session: aiohttp.ClientSession) -> Answer:
        url = f"{self._place.url}/ws".replace("http", "ws", 1)
        try:
            async with session.ws_connect(url, headers=self._headers):
                return Answer(101, "it was opened", is_right=False)
        except aiohttp.WSServerHandshakeError as error:
            headers = error.headers
            code = headers.get("X-Sandbox-Router-Error", "no error") if headers else "no error"
            return self._refusal(error.status, code)

    def _refusal(self, status: int, code: str) -> Answer:
        if self._sleeper.starts:
            return Answer(status, f"{code}, but it was woken", is_right=False)
        is_right = (status, code) == (409, "sandbox_suspended")
        return Answer(status, f"{code}, it sleeps on" if is_right else code, is_right)

    # --- the wake ---------------------------------------------------------------------------

    async def _waking_row(
        self,
        request: str,
        session: aiohttp.ClientSession,
        ask: Callable[[aiohttp.ClientSession], Awaitable[Answer]],
    ) -> Row:
        return await row_of(request, self._sleeper.name, lambda: ask(session), limit_s=WAKE_S)

    async def _woken(self, session: aiohttp.ClientSession) -> Answer:
        answer = await self._shared(session)
        text = f"its page, by process {self._sleeper.pid}, new"
        return replace(answer, text=text) if answer.is_right else answer

    async def _shared(self, session: aiohttp.ClientSession) -> Answer:
        await self._together.wait()
        status, title = await self._get(session)
        is_right = (status, title) == (200, self._title)
        return Answer(status, "its page" if is_right else title, is_right)

    def _judged_together(self, row: Row) -> Row:
        """Returns the second caller's row, once both have been answered: nothing was started for it."""
        starts = self._sleeper.starts
        text = f"{row.answer}; {starts} process started for both"
        return replace(row, answer=text, is_right=row.is_right and starts == 1)

    async def _log_line(self) -> Answer:
        line = await self._line_with(WOKEN)
        return Answer(0, line[line.index(WOKEN) :], is_right="outcome=woken" in line)

    async def _counted(self, session: aiohttp.ClientSession) -> Answer:
        async with session.get(f"{self._place.admin_url}/metrics") as response:
            wakes = _WAKES.findall(await response.text())
        line = ", ".join(" ".join(each) for each in wakes)
        is_right = line.removesuffix(".0") == 'sandbox_router_wakes_total{outcome="woken"} 1'
        return Answer(response.status, line or "no wakes", is_right)

    # --- asking -----------------------------------------------------------------------------

    @property
    def _title(self) -> str:
        return f"Sandbox {self._sleeper.name}"

    @property
    def _headers(self) -> dict[str, str]:
        return headers_for(self._place, self._sleeper.name)

    async def _get(self, session: aiohttp.ClientSession) -> tuple[int, str]:
        """Returns the status, and the title of the page."""
        async with session.get(self._place.url, headers=self._headers) as response:
            text = await response.text()
        title = _TITLE.search(text)
        return response.status, title[1] if title else text[:60]
