"""What a large cluster costs the router, in memory, time and latency: `python -m bench.index`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import trustme

from bench.conditions import note
from bench.index_probe import probe, route_delays_ms, start_sandboxes
from bench.running import Cores
from bench.svg_plot import Line, Plot, document

RATES = (0, 500, 1000, 2000, 4000)
RESULTS = Path(__file__).parent / "results"
PAGE_BYTES_KB = os.sysconf("SC_PAGE_SIZE") / 1024


@dataclass(frozen=True, slots=True)
class AtRate:
    """One window at one rate of events."""

    wanted_per_s: int
    sent_per_s: float
    cpu_percent: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    worst_ms: float
    route_delay_p50_ms: float
    route_delay_worst_ms: float
    wrong: int


@dataclass(frozen=True, slots=True)
class Output:
    """What a process writes."""

    pid: int
    stream: asyncio.StreamReader

    async def readline(self) -> str:
        return (await self.stream.readline()).decode(errors="replace")


@dataclass(slots=True)
class Bench:
    """The router under test, and the source that feeds it."""

    router_pid: int
    http_port: int
    admin_url: str
    source_url: str
    session: aiohttp.ClientSession

    def rss_mb(self, field: str = "VmRSS") -> float:
        text = Path(f"/proc/{self.router_pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+)", text)
        assert found is not None
        return int(found[1]) / 1024

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.router_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def control(self, **wanted: Any) -> dict[str, Any]:
        async with self.session.post(f"{self.source_url}/control", json=wanted, ssl=False) as told:
            answer: dict[str, Any] = await told.json()
            return answer

    async def told(self) -> dict[str, Any]:
        async with self.session.get(f"{self.source_url}/told", ssl=False) as told:
            answer: dict[str, Any] = await told.json()
            return answer

    async def is_ready(self) -> bool:
        try:
            async with self.session.get(f"{self.admin_url}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False


async def loading(
    bench: Bench, started_at: float
) -> tuple[list[tuple[float, float]], float, float]:
    """Follows the memory until the router is ready, and ten seconds more.

    Returns the curve, the time it took and the processor time of that.
    """
    curve: list[tuple[float, float]] = []
    ready_after_s = cpu_s = 0.0
    while not ready_after_s or time.monotonic() - started_at < ready_after_s + 10:
        curve.append((time.monotonic() - started_at, bench.rss_mb()))
        if not ready_after_s and await bench.is_ready():
            ready_after_s, cpu_s = time.monotonic() - started_at, bench.cpu_s()
        await asyncio.sleep(0.1)
    return curve, ready_after_s, cpu_s


async def at_rate(bench: Bench, rate: int, window_s: float) -> AtRate:
    await bench.control(rate=rate)
    await asyncio.sleep(0.5)
    await bench.control(rate=rate)
    began, cpu = time.monotonic(), bench.cpu_s()
    readings = await probe(bench.http_port, window_s)
    took_s, cpu = time.monotonic() - began, bench.cpu_s() - cpu
    told = await bench.told()
    delays = sorted(route_delays_ms(told["flips"], readings)) or [0.0]
    return AtRate(
        wanted_per_s=rate,
        sent_per_s=round(told["sent"] / took_s),
        cpu_percent=round(cpu / took_s * 100, 1),
        p50_ms=round(readings.percentile_ms(0.5), 2),
        p99_ms=round(readings.percentile_ms(0.99), 2),
        p999_ms=round(readings.percentile_ms(0.999), 2),
        worst_ms=round(readings.percentile_ms(1.0), 2),
        route_delay_p50_ms=round(delays[len(delays) // 2], 1),
        route_delay_worst_ms=round(delays[-1], 1),
        wrong=readings.wrong,
    )


async def idle(bench: Bench) -> None:
    """Returns once the router has worked off what it was sent."""
    share = 1.0
    while share > 0.1:
        cpu = bench.cpu_s()
        await asyncio.sleep(0.5)
        share = (bench.cpu_s() - cpu) / 0.5


async def flood(bench: Bench, events: int) -> float:
    """Returns the events a second that the router takes when they come as fast as it takes them."""
    await bench.control(rate=0)
    cpu = bench.cpu_s()
    await bench.control(flood=events)
    await idle(bench)
    return events / (bench.cpu_s() - cpu)


async def relisting(bench: Bench) -> dict[str, float]:
    """Expires the watch of pods. Returns the latency meanwhile, and how long the new list took, its jitter included."""
    await bench.control(rate=0)
    probing = asyncio.TaskGroup()
    async with probing:
        readings = probing.create_task(probe(bench.http_port, 20.0))
        await asyncio.sleep(1.0)
        cpu, expired_at, listed_at = bench.cpu_s(), time.monotonic(), 0.0
        await bench.control(expire=True)
        while listed_at < expired_at:
            await asyncio.sleep(0.1)
            listed_at = (await bench.told())["listed_at"]
        cpu = bench.cpu_s() - cpu
    measured = readings.result()
    return {
        "new_list_s": round(listed_at - expired_at, 2),
        "cpu_s": round(cpu, 2),
        "p99_ms": round(measured.percentile_ms(0.99), 2),
        "worst_ms": round(measured.percentile_ms(1.0), 2),
        "peak_mb": round(bench.rss_mb("VmHWM"), 1),
        "settled_mb": round(bench.rss_mb(), 1),
    }


@asynccontextmanager
async def running(count: int, way: str) -> AsyncIterator[tuple[Bench, float]]:
    """Starts source and router, each on its core; yields them with the router's start time."""
    cores = Cores.found()
    os.sched_setaffinity(0, {cores.load})
    with tempfile.TemporaryDirectory() as folder:
        certificate, account = _credentials(Path(folder))
        async with AsyncExitStack() as stack:
            source = await _started(
                stack, "bench.index_source", str(count), str(certificate), way, environment={}
            )
            source_port = int(await source.readline())
            os.sched_setaffinity(0, {cores.proxy})
            environment = {
                "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "KUBERNETES_SERVICE_PORT": str(source_port),
            }
            started_at = time.monotonic()
            router = await _started(
                stack, "bench.in_cluster", str(account),
                "serve", "--discovery=kubernetes", "--auth=none", "--access-log=false",
                "--http-bind=127.0.0.1:0", "--admin-bind=127.0.0.1:0", "--drain-delay=0",
                environment=environment,
            )  # fmt: skip
            os.sched_setaffinity(0, {cores.load})
            told = await _listening(router)
            session = await stack.enter_async_context(aiohttp.ClientSession())
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            reading = tasks.create_task(_keep_reading(router))
            stack.callback(reading.cancel)
            yield (
                Bench(
                    router_pid=told["pid"],
                    http_port=told["http"],
                    admin_url=f"http://127.0.0.1:{told['admin']}",
                    source_url=f"https://127.0.0.1:{source_port}",
                    session=session,
                ),
                started_at,
            )


async def _started(
    stack: AsyncExitStack, module: str, *arguments: str, environment: dict[str, str]
) -> Output:
    """Starts `python -m module` and sees to its end. Returns what it writes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip

    async def end() -> None:
        if process.returncode is None:
            process.terminate()
        await process.communicate()

    stack.push_async_callback(end)
    assert process.stdout is not None
    return Output(process.pid, process.stdout)


def _credentials(folder: Path) -> tuple[Path, Path]:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain = issued.private_key_pem.bytes() + b"".join(p.bytes() for p in issued.cert_chain_pems)
    certificate = folder / "source.pem"
    certificate.write_bytes(chain)
    ssl.create_default_context().load_cert_chain(certificate)
    authority.cert_pem.write_to_path(folder / "ca.crt")
    (folder / "token").write_text("bench")
    return certificate, folder


async def _listening(output: Output) -> dict[str, int]:
    """Returns pid and ports of the router once it listens."""
    said = ""
    while line := await output.readline():
        said += line
        if '"listening"' in line:
            told = json.loads(line)
            ports = {key: int(told[key][0].rpartition(":")[2]) for key in ("http", "admin")}
            return ports | {"pid": output.pid}
    raise SystemExit(f"the router did not start:\n{said}")


async def _keep_reading(output: Output) -> None:
    while line := await output.readline():
        sys.stderr.write(line)


async def lists_in_pages(count: int) -> dict[str, float]:
    """Returns what start and new list cost beside a server that can't send lists as streams."""
    async with running(count, "pages") as (bench, started_at):
        _, ready_after_s, cpu_s = await loading(bench, started_at)
        peak_mb = round(bench.rss_mb("VmHWM"), 1)
        relisted = await relisting(bench)
    started = {"ready_after_s": round(ready_after_s, 1), "start_cpu_s": round(cpu_s, 2)}
    return {**relisted, **started, "peak_mb": peak_mb}


async def start_and_list(count: int, way: str) -> dict[str, Any]:
    """Returns what start and new list of pods cost, without requests: to compare two trees in turns, by processor time."""
    async with running(count, way) as (bench, started_at):
        while not await bench.is_ready():
            await asyncio.sleep(0.05)
        ready_after_s, start_cpu_s = time.monotonic() - started_at, bench.cpu_s()
        await bench.control(rate=0)
        cpu, expired_at, listed_at = bench.cpu_s(), time.monotonic(), 0.0
        await bench.control(expire=True)
        while listed_at < expired_at:
            await asyncio.sleep(0.1)
            listed_at = (await bench.told())["listed_at"]
        return {
            "lists_come": way,
            "sandboxes": count,
            "ready_after_s": round(ready_after_s, 1),
            "start_cpu_s": round(start_cpu_s, 2),
            "new_list_s": round(listed_at - expired_at, 1),
            "new_list_cpu_s": round(bench.cpu_s() - cpu, 2),
            "resident_mb": round(bench.rss_mb(), 1),
        }


async def measure(count: int, window_s: float, rounds: int) -> dict[str, Any]:
    sandboxes = await start_sandboxes()
    paged = await lists_in_pages(count)
    async with running(count, "stream") as (bench, started_at):
        curve, ready_after_s, start_cpu_s = await loading(bench, started_at)
        loaded = {
            "ready_after_s": round(ready_after_s, 1),
            "start_cpu_s": round(start_cpu_s, 2),
            "before_mb": round(curve[0][1], 1),
            "peak_mb": round(bench.rss_mb("VmHWM"), 1),
            "settled_mb": round(bench.rss_mb(), 1),
        }
        relisted = await relisting(bench)
        windows = [await at_rate(bench, rate, window_s) for _ in range(rounds) for rate in RATES]
        events_per_cpu_s = await flood(bench, 50_000)
    sandboxes.close()
    return {
        "conditions": asdict(
            note(rounds=rounds, window_s=window_s, versions={}, shared_core=Cores.found().shared)
        ),
        "sandboxes": count,
        "loading": loaded,
        "rates": [asdict(_median(windows, rate)) for rate in RATES],
        "events_per_cpu_second": round(events_per_cpu_s),
        "relist": relisted,
        "pages": paged,
        "memory_curve": [(round(at, 1), round(mb, 1)) for at, mb in curve],
    }


def _median(windows: list[AtRate], rate: int) -> AtRate:
    """Returns the medians of a rate's rounds; for what must never happen, the sum."""
    rows = [asdict(each) for each in windows if each.wanted_per_s == rate]
    middle = {key: sorted(row[key] for row in rows)[len(rows) // 2] for key in rows[0]}
    return AtRate(**middle | {"wrong": sum(row["wrong"] for row in rows)})


def plots(result: dict[str, Any]) -> str:
    """Returns the memory while loading, and the latency by rate of events, as SVG."""
    rates = result["rates"]

    def curve(key: str) -> list[tuple[float, float]]:
        return [(row["sent_per_s"], row[key]) for row in rates]

    return document(
        [
            Plot(
                f"Memory while {result['sandboxes']:,} sandboxes are loaded",
                "seconds since the start",
                "resident MB",
                [Line("router", result["memory_curve"])],
                [("peak: 400", 400.0), ("settled: 150", 150.0)],
            ),
            Plot(
                "Request latency beside pod events (500 requests a second)",
                "pod events a second",
                "milliseconds",
                [Line("p50", curve("p50_ms")), Line("p99", curve("p99_ms"))],
            ),
            Plot(
                "Processor time of the router, and the time until an event is a route",
                "pod events a second",
                "% of a core; ms",
                [
                    Line("core %", curve("cpu_percent")),
                    Line("route p50 ms", curve("route_delay_p50_ms"), is_dashed=True),
                ],
            ),
        ]
    )


def table(result: dict[str, Any]) -> str:
    """Returns the result as Markdown."""
    loaded, relisted, paged = result["loading"], result["relist"], result["pages"]
    lines = [
        f"# {result['sandboxes']:,} sandboxes",
        "",
        f"Ready {loaded['ready_after_s']} s after its start; {loaded['before_mb']} MB before the lists, "
        f"{loaded['peak_mb']} MB at most, {loaded['settled_mb']} MB settled.",
        f"{result['events_per_cpu_second']:,} pod events for a second of one core. Memory with a new list at most "
        f"{relisted['peak_mb']} MB.",
        "",
        "| lists come | start to ready s | of that processor s | new list of all pods s | of that processor s, 500 requests/s included | p99 ms of 20 s | worst ms |",
        "|---|---|---|---|---|---|---|",
        _lists("as a stream (Kubernetes 1.32)", {**loaded, **relisted}),
        _lists("in pages of 100", paged),
        "",
        "| pod events/s | core % | p50 ms | p99 ms | p99.9 ms | worst ms | event to route p50 ms | worst ms | wrong answers |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rates"]:
        cells = (
            row["sent_per_s"], row["cpu_percent"], row["p50_ms"], row["p99_ms"], row["p999_ms"],
            row["worst_ms"], row["route_delay_p50_ms"], row["route_delay_worst_ms"], row["wrong"],
        )  # fmt: skip
        lines.append("| " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    conditions = result["conditions"]
    lines += [
        "",
        f"{conditions['started_at']}, revision {conditions['revision']}, {conditions['cpu']}, "
        f"{conditions['cores']} cores, Python {conditions['python']}, {conditions['rounds']} rounds of "
        f"{conditions['window_s']:g} s, load before {conditions['load_average_before']}. "
        "Pods of 4.5 kB over TLS, each event a step of a pod's life that changes its route; "
        "the router on one core, source and requests on the other.",
        "",
        "![memory, latency and processor time](index.svg)",
        "",
    ]
    return "\n".join(lines)


def _lists(way: str, figures: dict[str, float]) -> str:
    columns = ("ready_after_s", "start_cpu_s", "new_list_s", "cpu_s", "p99_ms", "worst_ms")
    return f"| {way} | " + " | ".join(f"{figures[column]}" for column in columns) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sandboxes", type=int, default=100_000)
    parser.add_argument("--window", type=float, default=6.0, help="seconds at each rate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "index")
    parser.add_argument(
        "--starts", action="store_true", help="only start and new list: prints a line of JSON each"
    )
    asked = parser.parse_args()
    if asked.starts:
        for way in ("stream", "pages"):
            print(json.dumps(asyncio.run(start_and_list(asked.sandboxes, way))), flush=True)
        return
    result = asyncio.run(measure(asked.sandboxes, asked.window, asked.rounds))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    asked.out.with_suffix(".svg").write_text(plots(result))
    asked.out.with_suffix(".md").write_text(table(result))
    print(table(result))


if __name__ == "__main__":
    main()
