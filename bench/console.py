"""What the operator's page and a person's cost the router, with many sandboxes in the table: `python -m bench.console`.

The CPU time of a running router's process, for the whole page, and for a page that is left open: it listens to the events
and asks for its part of the table every five seconds, as its script does. An idle router's own time is taken off.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path

import aiohttp

from router import code_form
from router.auth.minting import SigningKey, grant_claim, mint
from tests.fakes.router_process import router

PAGES = 40
OPEN_S = 30.0
REFRESH_S = 5.0
BROWSER = {"Accept": "text/html"}
SECRET = b"0123456789012345678901234567890123456789"


def cpu_s(pid: int) -> float:
    """Returns the CPU time of a process and its threads so far."""
    return (
        sum(
            int((task / "schedstat").read_text().split()[0])
            for task in Path(f"/proc/{pid}/task").iterdir()
        )
        / 1e9
    )


async def refresh(session: aiohttp.ClientSession, path: str) -> None:
    """Asks for the list again and again, as an open page's script does."""
    while True:
        await asyncio.sleep(REFRESH_S)
        async with session.get(path) as response:
            await response.read()


async def listen(session: aiohttp.ClientSession) -> None:
    """Takes what an open operator's page is told."""
    async with session.get("/events") as events:
        async for _ in events.content:
            pass


async def page_cost_ms(pid: int, session: aiohttp.ClientSession, path: str) -> float:
    """Returns the CPU time of one page."""
    before = cpu_s(pid)
    for _ in range(PAGES):
        async with session.get(path) as response:
            assert response.status == 200, await response.text()
            await response.read()
    return round((cpu_s(pid) - before) / PAGES * 1000, 2)


async def share_percent(pid: int, *works: Coroutine[None, None, None]) -> float:
    """Returns the part of a core that the process takes while these go on."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work) for work in works]
        before = cpu_s(pid)
        await asyncio.sleep(OPEN_S)
        share = (cpu_s(pid) - before) / OPEN_S
        for task in running:
            task.cancel()
    return round(share * 100, 3)


async def measure(sandboxes: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "sandboxes.yaml"
        table.write_text(
            "sandboxes:\n"
            + "".join(
                f"  - {{name: box-{n}, namespace: team-{n % 100}, host: 127.0.0.1}}\n"
                for n in range(sandboxes)
            )
        )
        secret = Path(folder) / "secret"
        secret.write_bytes(SECRET)
        flags = (
            "--discovery=file",
            f"--sandboxes-file={table}",
            "--auth=jwt",
            f"--jwt-secret-file={secret}",
            "--base-domain=localhost",
            "--home=true",
        )
        async with router(*flags) as running:
            await running.until_ready(60)
            pid = running.process.pid
            grant = grant_claim(namespace="*", name="*", uid="", ports=(), methods=())
            token = mint(SigningKey("HS256", "", SECRET), grants=[grant], ttl_s=3600)
            signed_in = BROWSER | {"Authorization": f"Bearer {token}", "Host": "localhost"}
            async with (
                aiohttp.ClientSession(
                    f"http://127.0.0.1:{running.admin_port}", headers=BROWSER
                ) as admin,
                aiohttp.ClientSession(
                    f"http://127.0.0.1:{running.http_port}", headers=signed_in
                ) as home,
            ):
                pages = {
                    "operator's, first": await page_cost_ms(pid, admin, "/"),
                    "operator's, page 100": await page_cost_ms(pid, admin, "/?page=100"),
                    "operator's, a search": await page_cost_ms(pid, admin, "/?search=box-77"),
                    "person's, first": await page_cost_ms(pid, home, "/"),
                    "person's, page 100": await page_cost_ms(pid, home, "/?page=100"),
                    "person's, a search": await page_cost_ms(pid, home, "/?search=box-77"),
                }
                idle = await share_percent(pid)
                operators = await share_percent(pid, listen(admin), refresh(admin, "/sandboxes"))
                persons = await share_percent(pid, refresh(home, "/.sandbox-router/sandboxes"))
    return {
        "sandboxes": sandboxes,
        "form": str(code_form.CURRENT),
        "page_cpu_ms": pages,
        "idle_core_percent": idle,
        "open_operators_page_core_percent": round(operators - idle, 3),
        "open_persons_page_core_percent": round(persons - idle, 3),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sandboxes", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    text = json.dumps(asyncio.run(measure(arguments.sandboxes)), indent=2) + "\n"
    sys.stdout.write(text)
    if arguments.out is not None:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
