"""A storm of wakes: 2,000 requests for 500 suspended sandboxes within a second: `python -m bench.storm`.

The API server takes 200 ms for a patch and allows five at a time. Beside the storm somebody calls a sandbox that is up, a hundred
times a second, through the router and directly: first in quiet, then during the storm. The router and that caller are processes
of their own; the API, the sandboxes and the storm are this one, so what the direct calls lose is lost by no fault of the router's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.router_process import RouterProcess, router
from tests.fakes.sleepy_cluster import PORT as APP_PORT
from tests.fakes.sleepy_cluster import SleepyCluster
from tests.fakes.storm import (
    CALLS_AT_ONCE,
    NAMES,
    NAMESPACES,
    REQUESTS,
    SANDBOXES,
    SlowApi,
    asked,
)

CALL_S = 0.2
QUIET_S = 10.0


async def ask(port: int, name: str, namespace: str) -> tuple[str, float]:
    """Returns the status, or the router's code, and how long it took."""
    began = time.monotonic()
    said = await asked("127.0.0.1", port, name, namespace)
    return said, time.monotonic() - began


async def bystander(host: str, port: int, until: Callable[[], bool]) -> list[float]:
    """Calls the sandbox that is up on one kept-alive connection, a hundred times a second. Returns how long each took."""
    reader, writer = await asyncio.open_connection(host, port)
    took = []
    while not until():
        began = time.monotonic()
        writer.write(
            b"GET / HTTP/1.1\r\nHost: r\r\nX-Sandbox-ID: up\r\nX-Sandbox-Namespace: quiet\r\n\r\n"
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        took.append(time.monotonic() - began)
        await asyncio.sleep(0.01)
    writer.close()
    return took


def spread(took: list[float]) -> dict[str, float]:
    """Returns milliseconds."""
    cuts = statistics.quantiles(took, n=100)
    return {
        "calls": len(took),
        "p50_ms": round(cuts[49] * 1e3, 2),
        "p99_ms": round(cuts[98] * 1e3, 2),
    }


async def beside(port: int, app: str, is_over: asyncio.Event) -> dict[str, dict[str, float]]:
    """Returns what the bystander, a process of its own, saw until it was over."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.storm",
        f"--bystander={port}",
        f"--app={app}",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    await is_over.wait()
    told, _ = await process.communicate(b"")
    return dict(json.loads(told))


async def be_bystander(port: int, app: str) -> None:
    """Calls until its standard input ends, and tells what it saw."""
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    routed, direct = await asyncio.gather(
        bystander("127.0.0.1", port, over.done), bystander(app, APP_PORT, over.done)
    )
    sys.stdout.write(json.dumps({"routed": spread(routed), "direct": spread(direct)}))


def memory_kb(running: RouterProcess, field: str = "VmRSS") -> int:
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(field)))


async def measure(*flags: str) -> dict[str, Any]:
    """Returns what one storm came to."""
    api = FakeKubernetes()
    slow = SlowApi(api, call_s=CALL_S)
    with tempfile.TemporaryDirectory() as folder:
        async with api, SleepyCluster(api, starts_s=1.0, listens_s=0.3) as cluster:
            kubeconfig = api.write_kubeconfig(Path(folder) / "kubeconfig")
            arguments = (
                "--discovery=kubernetes",
                f"--kubeconfig={kubeconfig}",
                "--auth=none",
                "--wake=all",
                *flags,
            )
            cluster.add("up", namespace="quiet", mode="Running")
            for name, namespace in NAMES:
                cluster.add(name, namespace=namespace)
            async with router(*arguments) as running:
                await running.until_ready(60)
                port = running.http_port
                while (await ask(port, "up", "quiet"))[0] != "200":
                    await asyncio.sleep(0.2)
                is_over = asyncio.Event()
                asyncio.get_running_loop().call_later(QUIET_S, is_over.set)
                app = cluster.apps["up"].address
                quiet = await beside(port, app, is_over)
                before_kb = memory_kb(running)
                is_over.clear()
                during = asyncio.get_running_loop().create_task(beside(port, app, is_over))
                await asyncio.sleep(2.0)

                async def late(n: int) -> tuple[str, float]:
                    await asyncio.sleep(random.uniform(0.0, 1.0))
                    return await ask(port, *NAMES[n % SANDBOXES])

                began = time.monotonic()
                answers = await asyncio.gather(*map(late, range(REQUESTS)))
                took_s = time.monotonic() - began
                is_over.set()
                seen_during = await during
                peak_kb = memory_kb(running, "VmHWM")
    first = min(slow.times)
    return {
        "flags": list(flags),
        "answers": dict(Counter(said for said, _ in answers)),
        "longest_s": round(max(each for _, each in answers), 1),
        "all_answered_after_s": round(took_s, 1),
        "sandboxes_patched": len(slow.patched),
        "most_patches_of_one": max(slow.patched.values()),
        "most_calls_at_once": slow.most,
        "calls_refused_by_the_api": slow.refused,
        "most_calls_in_a_second": max(
            sum(at <= other < at + 1 for other in slow.times) for at in slow.times
        ),
        "calls_took_s": round(max(slow.times) - first, 1),
        "router_memory_mb": {"before": before_kb // 1024, "peak": peak_kb // 1024},
        "bystander_quiet": quiet,
        "bystander_during": seen_during,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where the results go: FILE.json")
    parser.add_argument("--bystander", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--app", metavar="HOST", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bystander is not None:
        asyncio.run(be_bystander(arguments.bystander, arguments.app))
        return
    found = {
        "conditions": {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "load_before": os.getloadavg(),
            "storm": f"{REQUESTS} requests for {SANDBOXES} sandboxes in {NAMESPACES} namespaces within a second",
            "api": f"{CALL_S} s a patch, {CALLS_AT_ONCE} at a time",
        },
        "runs": [
            asyncio.run(measure("--waiting-room=4096")),
            asyncio.run(measure()),
        ],
    }
    text = json.dumps(found, indent=2) + "\n"
    sys.stdout.write(text)
    if arguments.out is not None:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
