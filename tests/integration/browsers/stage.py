"""What a real browser meets: a router over TLS, two sandboxes with apps, a site of somebody else, and one person."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import trustme
import yaml
from aiohttp import web
from playwright.async_api import BrowserContext, Page, Response

from tests.fakes.browser import chromium
from tests.fakes.links import PLATFORM_SECRET, SESSION_SECRET, link
from tests.integration.auth.door import Door, open_door

DOMAIN = "sandboxes.example.test"
"""Its sandboxes are of one site to a browser: no public suffix list has it, which is the harder case."""
FOREIGN = "evil.test"


@dataclass
class App:
    """A web server whose pages a test writes; it remembers what reached it, and echoes WebSockets."""

    pages: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path, in order; WS for what became a WebSocket."""
    port: int = 0

    def write(self, path: str, body: str, **headers: str) -> None:
        """Has the path answer this HTML; `_` in a header's name stands for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = (f"<!doctype html><title>app</title>{body}", named)

    def got(self, path: str) -> list[str]:
        """Returns the methods by which that path was asked for."""
        return [method for method, asked in self.requests if asked == path]

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[App]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
            await site.start()
            self.port = runner.addresses[0][1]
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            self.requests.append(("WS", request.path))
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            async for message in socket:
                await socket.send_str(f"echo {message.data}")
            return socket
        if request.path != "/favicon.ico":  # browsers ask every site for it, when they like
            self.requests.append((request.method, request.path))
        body, headers = self.pages.get(request.path, ("<!doctype html><p>ok", {}))
        return web.Response(text=body, content_type="text/html", headers=headers)


@dataclass
class Stage:
    """All of them, running."""

    door: Door
    mine: App
    """The app of team-a/box-a, port 8888, which alice has links for."""
    evil: App
    """The app of team-b/box-b, port 8888: somebody else's, under the same domain."""
    foreign: App
    """A site that has nothing to do with the router."""
    person: BrowserContext

    @property
    def address(self) -> str:
        """The origin of alice's app."""
        return self.origin("8888-box-a--team-a")

    @property
    def foreign_address(self) -> str:
        return f"https://{FOREIGN}:{self.foreign.port}"

    def origin(self, label: str) -> str:
        assert self.door.https is not None
        return f"https://{label}.{DOMAIN}:{self.door.https[1]}"

    def link(self, label: str = "8888-box-a--team-a", **claims: Any) -> str:
        """Returns an address that alice's platform could give her."""
        return self.opening(link(**claims), label)

    def opening(self, token: str, label: str = "8888-box-a--team-a") -> str:
        return f"{self.origin(label)}/.sandbox-router/session?link={quote(token)}"

    async def click(self, address: str) -> tuple[Page, Response]:
        """Returns a new tab and what came, as if the address had been typed."""
        page = await self.person.new_page()
        response = await page.goto(address)
        assert response is not None
        return page, response

    async def signed_in(self) -> Page:
        """Returns alice's tab in her own app."""
        page, response = await self.click(self.link())
        assert response.status == 200
        return page

    async def of_mallory(self, path: str = "/attack") -> Page:
        """Returns a tab in the other sandbox's app, which alice was given a link to as well."""
        their = self.link("8888-box-b--team-b", namespace="team-b", name="box-b", path=path)
        page, response = await self.click(their)
        assert response.status == 200
        return page

    async def cookies(self, origin: str) -> dict[str, str]:
        """Returns the cookies that the browser would send there."""
        return {str(one["name"]): str(one["value"]) for one in await self.person.cookies(origin)}


@asynccontextmanager
async def stage(
    tmp_path: Path, *, app_port: int = 0, person: dict[str, Any] | None = None, **flags: Any
) -> AsyncIterator[Stage]:
    """Runs a stage; `flags` are the router's settings, `person` is what Playwright's new_context() takes.

    With `app_port` that is the app of alice's sandbox, instead of `mine`.
    """
    leaf = trustme.CA().issue_cert(f"*.{DOMAIN}", FOREIGN)
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    files = {
        "tls_cert_file": chain,
        "tls_key_file": leaf.private_key_pem.bytes(),
        "jwt_secret_file": PLATFORM_SECRET,
        "session_key_file": SESSION_SECRET,
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(tls)
    async with AsyncExitStack() as stack:
        # What the router aborts as it ends closes its socket a turn of the loop later.
        stack.push_async_callback(asyncio.sleep, 0.05)
        mine = await stack.enter_async_context(App().serving())
        evil = await stack.enter_async_context(App().serving())
        foreign = await stack.enter_async_context(App().serving(tls))
        boxes = tmp_path / "boxes.yaml"
        boxes.write_text(
            yaml.safe_dump({"sandboxes": [_box("a", app_port or mine.port), _box("b", evil.port)]})
        )
        paths = {name: tmp_path / name for name in files}
        settings = {"auth": "jwt", "base_domain": DOMAIN, "sandboxes_file": boxes, **paths, **flags}
        door = await stack.enter_async_context(open_door(tmp_path, **settings))
        running = await stack.enter_async_context(chromium(trusted_pem=chain))
        context = await running.new_context(**(person or {}))
        yield Stage(door, mine, evil, foreign, context)


def _box(letter: str, port: int) -> dict[str, Any]:
    ports = {8888: port, 80: port}
    name = {"name": f"box-{letter}", "namespace": f"team-{letter}"}
    return {**name, "host": "127.0.0.1", "ports": ports}
