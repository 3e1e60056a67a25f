"""A real Chromium without a window, driven by its own protocol; None where none is installed."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import functools
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WHY_NOT = f"no browser is installed (looked for {', '.join(NAMES)}), and only root can have apt-get install chromium"
_INSTALL = (
    ("apt-get", "-qq", "update"),
    ("apt-get", "-qq", "install", "-y", "--no-install-recommends", "chromium"),
)


def installed() -> str | None:
    """Returns the program, None without one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@functools.cache
def provided() -> str | None:
    """Returns the program, installed from Debian's package first where that is possible; None where it isn't."""
    if installed() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with (Path(tempfile.gettempdir()) / "install-a-browser.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # test workers ask at the same time
            for command in () if installed() else _INSTALL:
                quietly = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
                subprocess.run(command, env=quietly, stdin=subprocess.DEVNULL, check=False)
    return installed()


class Tab:
    """One page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        """What the browser told by itself, of what was enabled, as far as it was read."""

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Returns the result of one command of the DevTools protocol."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            told = json.loads((await self._socket.receive(timeout=30)).data)
            if told.get("id") == number:
                assert "error" not in told, told
                return dict(told["result"])
            self.events.append(told)

    async def watch_errors(self) -> None:
        """Has errors() know what goes wrong from here on."""
        await self.call("Log.enable")
        await self.call("Runtime.enable")

    def errors(self) -> list[str]:
        """Returns what the browser's console shows as an error: failed loads, broken policies, scripts' exceptions."""
        found = []
        for event in self.events:
            told = event["params"]
            if event["method"] == "Log.entryAdded" and told["entry"]["level"] == "error":
                found.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
            elif event["method"] == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"]))
        return found

    async def press(self, key: str, **more: Any) -> None:
        """Presses and lets go of a key; a single character is typed."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **more)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

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
    program = provided()
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
