"""A real Chromium without a window, driven by its own protocol; None where none is installed."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WHY_NOT = f"no browser is installed (looked for {', '.join(NAMES)}): apt-get install chromium"


def installed() -> str | None:
    """Returns the program, None without one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """One page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Returns the result of one command of the DevTools protocol."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            told = json.loads((await self._socket.receive(timeout=30)).data)
            if told.get("id") == number:
                assert "error" not in told, told
                return dict(told["result"])

    async def evaluate(self, expression: str) -> Any:
        """Returns the value of a script's expression; None while there is no document."""
        told = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return told["result"].get("value")

    async def until(self, expression: str, timeout_s: float = 30.0) -> None:
        """Returns once the expression is true."""
        async with asyncio.timeout(timeout_s):
            while not await self.evaluate(expression):
                await asyncio.sleep(0.05)

    async def screenshot(self) -> bytes:
        """Returns the page as a PNG."""
        told = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(told["data"])


@asynccontextmanager
async def browser() -> AsyncIterator[Tab]:
    """Runs a browser with one empty tab while the block runs."""
    program = installed()
    assert program is not None, WHY_NOT
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "--window-size=900,700",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            port = await _port(process)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
                    pages = [page for page in await response.json() if page["type"] == "page"]
                async with session.ws_connect(
                    pages[0]["webSocketDebuggerUrl"], max_msg_size=0
                ) as socket:
                    yield Tab(socket)
        finally:
            process.terminate()
            assert process.stderr is not None
            await process.communicate()


async def _port(process: asyncio.subprocess.Process) -> int:
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while line := (await process.stderr.readline()).decode(errors="replace"):
            if found := re.search(r"DevTools listening on ws://[^:]+:(\d+)/", line):
                return int(found[1])
    raise RuntimeError("the browser did not start")
