"""What the operator's page costs the router, with many sandboxes in the table: `python -m bench.console`.

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
from pathlib import Path

import aiohttp

from router import code_form
from tests.fakes.router_process import router

PAGES = 40
OPEN_S = 30.0
REFRESH_S = 5.0
BROWSER = {"Accept": "text/html"}


def cpu_s(pid: int) -> float:
    """Returns the CPU time of a process and its threads so far."""
    return (
        sum(
            int((task / "schedstat").read_text().split()[0])
            for task in Path(f"/proc/{pid}/task").iterdir()
        )
        / 1e9
    )


async def open_page(session: aiohttp.ClientSession, query: str) -> None:
    """Does what an open page's script does, until it is cancelled."""

    async def refresh() -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            async with session.get("/sandboxes" + query) as response:
                await response.read()

    async with session.get("/events") as events, asyncio.TaskGroup() as tasks:
        tasks.create_task(refresh())
        async for _ in events.content:
            pass


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
        async with router(
            "--discovery=file", f"--sandboxes-file={table}", "--auth=none"
        ) as running:
            await running.until_ready(60)
            pid = running.process.pid
            base = f"http://127.0.0.1:{running.admin_port}"
            async with aiohttp.ClientSession(base, headers=BROWSER) as session:
                costs = {}
                for name, query in (
                    ("first", ""),
                    ("last", "?page=100"),
                    ("search", "?search=box-77"),
                ):
                    before = cpu_s(pid)
                    for _ in range(PAGES):
                        async with session.get("/" + query) as response:
                            assert response.status == 200
                            await response.read()
                    costs[name] = (cpu_s(pid) - before) / PAGES * 1000
                before = cpu_s(pid)
                await asyncio.sleep(OPEN_S)
                idle = (cpu_s(pid) - before) / OPEN_S
                before = cpu_s(pid)
                async with asyncio.TaskGroup() as tasks:
                    opened = tasks.create_task(open_page(session, ""))
                    await asyncio.sleep(OPEN_S)
                    open_share = (cpu_s(pid) - before) / OPEN_S - idle
                    opened.cancel()
    return {
        "sandboxes": sandboxes,
        "form": str(code_form.CURRENT),
        "page_cpu_ms": {name: round(cost, 2) for name, cost in costs.items()},
        "idle_core_percent": round(idle * 100, 3),
        "open_page_core_percent": round(open_share * 100, 3),
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
