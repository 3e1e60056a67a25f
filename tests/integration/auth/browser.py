"""A person's browser before a whole router: host names, a cookie jar for each host, and the headers that browsers add."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.links import PLATFORM_SECRET, SESSION_SECRET
from tests.integration.auth.door import Answer, Door, open_door, read_answer

DOMAIN = "localhost"
BOX = f"8888-box-a--team-a.{DOMAIN}"
TYPED = {
    "Sec-Fetch-Site": "none",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
    "Sec-Fetch-User": "?1",
    "Accept": "text/html,application/xhtml+xml,*/*;q=0.8",
}
"""What a browser says of an address that its user typed, or clicked in another program."""
ON_ITS_PAGE = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
"""What it says of fetch() in the sandbox's own page."""
LINKED = {**TYPED, "Sec-Fetch-Site": "cross-site"}
"""What it says of a link that was clicked in a page of another site."""


@dataclass
class Browser:
    """Sends what one browser would; http on loopback, so that its cookies have no prefix."""

    door: Door
    jar: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return self.door.http[1]

    def origin(self, host: str = BOX) -> str:
        return f"http://{host}:{self.port}"

    def lines(
        self, path: str, method: str, host: str, headers: dict[str, str], cookies: bool = True
    ) -> bytes:
        """Returns the request's head."""
        jar = self.jar.get(host, {})
        given = {"Host": f"{host}:{self.port}", **headers}
        if jar and cookies and "Cookie" not in given:
            given["Cookie"] = "; ".join(f"{name}={value}" for name, value in jar.items())
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode()

    async def ask(
        self, path: str = "/", method: str = "GET", host: str = BOX, **headers: str
    ) -> Answer:
        """Returns the answer to one request on its own connection; keyword arguments are headers, `_` for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with asyncio.timeout(10):
            reader, writer = await self.door.connect()
            writer.write(self.lines(path, method, host, named))
            answer = await read_answer(reader)
        self._keep(host, answer.headers.get("set-cookie"))
        return answer

    async def begin(self, link: str, host: str = BOX, **headers: str) -> Answer:
        """Returns the answer to a click on the link."""
        return await self.ask(
            f"/.sandbox-router/session?link={link}", host=host, **{**TYPED, **headers}
        )

    def _keep(self, host: str, set_cookie: str | None) -> None:
        if set_cookie is None:
            return
        pair, *attributes = set_cookie.split("; ")
        name, _, value = pair.partition("=")
        if "Max-Age=0" in attributes:
            self.jar.get(host, {}).pop(name, None)
        else:
            self.jar.setdefault(host, {})[name] = value


@asynccontextmanager
async def browsing(tmp_path: Path, **flags: Any) -> AsyncIterator[Browser]:
    """Runs a router with sessions, a platform's secret and the sandboxes of open_door()."""
    platform, sessions = tmp_path / "platform-secret", tmp_path / "session-keys"
    platform.write_bytes(PLATFORM_SECRET)
    sessions.write_bytes(SESSION_SECRET)
    given = {
        "auth": "jwt",
        "jwt_secret_file": platform,
        "session_key_file": sessions,
        "base_domain": DOMAIN,
        **flags,
    }
    async with open_door(tmp_path, **given) as door:
        yield Browser(door)
