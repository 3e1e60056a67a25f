"""A real Chromium without a window, driven by Playwright: Debian's program, and no browser of Playwright's own.

Playwright waits for what a test waits for, knows each frame, and has contexts: one for each person, with cookies of her own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright
from playwright.async_api import Error as PlaywrightError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WHY_NOT = f"no browser is installed (looked for {', '.join(NAMES)}), and only root can have apt-get install chromium"
_INSTALL = (
    ("apt-get", "-qq", "update"),
    ("apt-get", "-qq", "install", "-y", "--no-install-recommends", "chromium"),
)
WINDOW = {"width": 900, "height": 700}


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


@asynccontextmanager
async def chromium(*, trusted_pem: bytes | None = None) -> AsyncIterator[Browser]:
    """Runs the browser: every host name leads to 127.0.0.1, and a server with the key of this certificate is believed."""
    program = provided()
    assert program is not None, WHY_NOT
    arguments = ["--host-resolver-rules=MAP * 127.0.0.1", "--disable-background-networking"]
    if trusted_pem is not None:
        arguments.append(f"--ignore-certificate-errors-spki-list={_fingerprint(trusted_pem)}")
    async with (
        async_playwright() as playwright,
        # No sandbox of its own: that needs a user who isn't root, and the pages are the tests' own.
        await playwright.chromium.launch(
            executable_path=program, args=arguments, chromium_sandbox=False
        ) as running,
    ):
        yield running


def _fingerprint(pem: bytes) -> str:
    """Returns what Chromium knows a certificate's public key by."""
    key = x509.load_pem_x509_certificate(pem).public_key()
    told = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(told).digest()).decode()


class Tab:
    """One page of the browser, asked by expressions that no Content-Security-Policy of the page can refuse."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._errors: list[str] = []
        page.on("console", self._told)
        page.on("pageerror", lambda error: self._errors.append(str(error)))

    def _told(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._errors.append(f"{message.text} {message.location.get('url', '')}")

    def errors(self) -> list[str]:
        """Returns what the browser's console shows as an error: failed loads, broken policies, scripts' exceptions."""
        return list(self._errors)

    async def go(self, url: str) -> None:
        """Opens an address as if it were typed, and doesn't wait until it is there."""
        await self.call("Page.navigate", url=url)

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Returns the result of one command of the DevTools protocol."""
        session = await self.page.context.new_cdp_session(self.page)
        told: dict[str, Any] = await session.send(method, parameters)
        return told

    async def resize(self, width: int, height: int) -> None:
        """Gives the page a window of this size, in CSS pixels."""
        await self.page.set_viewport_size({"width": width, "height": height})

    async def press(self, key: str) -> None:
        """Presses and lets go of a key; a single character is typed."""
        await self.page.keyboard.press(key)

    async def evaluate(self, expression: str) -> Any:
        """Returns the value of a script's expression; None while there is no document."""
        with contextlib.suppress(PlaywrightError):
            return await self.page.evaluate(expression)
        return None

    async def until(self, expression: str, timeout_s: float = 30.0) -> None:
        """Returns once the expression is true."""
        async with asyncio.timeout(timeout_s):
            while not await self.evaluate(expression):
                await asyncio.sleep(0.05)

    async def screenshot(self) -> bytes:
        """Returns the page as a PNG."""
        return cast(bytes, await self.page.screenshot())


@asynccontextmanager
async def browser(**person: Any) -> AsyncIterator[Tab]:
    """Runs a browser with one empty tab while the block runs; `person` is what Playwright's new_context() takes."""
    async with chromium() as running:
        context = await running.new_context(**{"viewport": WINDOW, **person})
        yield Tab(await context.new_page())
