"""A person's browser before the demo's router, as far as links, cookies and forms go."""

from __future__ import annotations

import re
import socket
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

TYPED = {
    "Accept": "text/html",
    "Sec-Fetch-Site": "none",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
}


def named_on(page: str) -> list[str]:
    """Returns the sandboxes that the home page shows."""
    return re.findall(r"/</span>([^<]+)</h2>", page)


class _Loopback(AbstractResolver):
    """Every name is this machine's, as browsers have it for *.localhost."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0
            )
        ]

    async def close(self) -> None:
        pass


class Person:
    """Use as `async with`. Cookies are kept for each host, as browsers keep those without Domain."""

    def __init__(self, link: str) -> None:
        self._base = urlsplit(link.strip()).netloc

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(resolver=_Loopback())
        self._session = aiohttp.ClientSession(connector=connector, headers=TYPED)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def begin(self, link: str) -> str:
        """Clicks the link. Returns the page that it leads to."""
        return await self._page(await self._session.get(link))

    async def home(self) -> str:
        """Returns the home page."""
        return await self._page(await self._session.get(f"http://{self._base}/"))

    async def submit(self, path: str) -> str:
        """Presses a button of the home page. Returns the page that it leads to."""
        return await self._page(await self._post(path))

    async def open(self, sandbox: str) -> str:
        """Opens a sandbox from the home page. Returns its page."""
        status, text = await self.opened(sandbox)
        assert status == 200, text
        return text

    async def opened(self, sandbox: str) -> tuple[int, str]:
        """Opens a sandbox from the home page. Returns what it leads to."""
        response = await self._post(f"/.sandbox-router/open?sandbox=default/{sandbox}&port=8888")
        async with response:
            return response.status, await response.text()

    async def get(self, sandbox: str, path: str) -> tuple[int, str]:
        """Returns what a page of the sandbox's is."""
        async with self._session.get(f"http://8888-{sandbox}.{self._base}{path}") as response:
            return response.status, await response.text()

    def websocket(self, sandbox: str, path: str) -> Any:
        """Returns a WebSocket of the sandbox's own page."""
        origin = f"http://8888-{sandbox}.{self._base}"
        headers = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "websocket"}
        return self._session.ws_connect(f"{origin}{path}", origin=origin, headers=headers)

    async def _post(self, path: str) -> aiohttp.ClientResponse:
        origin = f"http://{self._base}"
        headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
        return await self._session.post(f"{origin}{path}", headers=headers)

    async def _page(self, response: aiohttp.ClientResponse) -> str:
        async with response:
            assert response.status == 200, await response.text()
            return await response.text()
