from __future__ import annotations

import aiohttp
import pytest

from router.server.listeners import bind, close_all
from router.settings.groups import Address
from router.suspender.port import own_port


@pytest.mark.parametrize(("is_alive", "status"), [(True, 200), (False, 503)])
async def test_it_says_whether_rounds_end_and_what_was_counted(is_alive: bool, status: int) -> None:
    sockets = bind(Address("127.0.0.1", 0), setting="x")
    url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    try:
        async with (
            own_port(sockets, exposition=lambda: b"x 1\n", is_alive=lambda: is_alive),
            aiohttp.ClientSession() as session,
        ):
            async with session.get(f"{url}/healthz") as health:
                assert health.status == status
            async with session.get(f"{url}/metrics") as metrics:
                assert await metrics.read() == b"x 1\n"
                assert metrics.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    finally:
        close_all(sockets)


async def test_without_sockets_nothing_listens() -> None:
    async with own_port([], exposition=lambda: b"", is_alive=lambda: True):
        pass
