"""What telling about a request costs: metrics, the access log, a scrape.

Run `python -m bench.telemetry`. Times are CPU time, the best of several rounds, so a busy machine disturbs them little.
"""

from __future__ import annotations

import asyncio
import os
import platform
import threading
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from router.proxy.request import Outcome
from router.telemetry.access_log import AccessLog
from router.telemetry.exposition import content_type_for, render
from router.telemetry.metric_labels import REQUEST_BUCKETS_S
from router.telemetry.metrics import Metrics
from router.telemetry.process_metrics import process_snapshot
from router.telemetry.recorder import RouterTelemetry

ROUNDS = 7
CALLS = 50_000
PAUSE_EVERY = 20
SERIES = 4_000


def outcome(**facts: object) -> Outcome:
    """Returns the outcome of a GET on a reused connection, such as a notebook makes thousands of."""
    made = Outcome(
        method=b"GET",
        path=b"/api/kernels/8a1c9f0e-7f3b-4d52/channels?session_id=5f0a",
        client="203.0.113.77",
        started_at=1_790_000_000.123456,
    )
    made.status = 200
    made.namespace = "team-a"
    made.sandbox = "notebook-7"
    made.port = 8888
    made.pod_uid = "3b0c6c1e-0000-4000-8000-000000000001"
    made.principal = "alice@example.com"
    made.authz = "allowed"
    made.total_s = 0.004_123_456
    made.first_byte_s = 0.003_123_456
    made.bytes_to_client = 1_234
    for name, fact in facts.items():
        setattr(made, name, fact)
    return made


def per_call_us(call: Callable[[Outcome], object], argument: Outcome) -> float:
    """Returns the CPU time of one call on this thread in µs, the loop around it taken off."""

    def nothing(_: Outcome) -> None:
        pass

    def best(measured: Callable[[Outcome], object]) -> float:
        rounds = []
        for _ in range(ROUNDS):
            begun = time.thread_time()
            for _ in range(CALLS):
                measured(argument)
            rounds.append(time.thread_time() - begun)
        return min(rounds) / CALLS * 1e6

    return best(call) - best(nothing)


async def per_request_us(finish: Callable[[Outcome], object], told: Outcome) -> tuple[float, float]:
    """Returns the CPU time of one call on a running loop in µs: of the loop's thread, of the whole process."""

    async def rounds(call: Callable[[Outcome], object]) -> tuple[float, float]:
        found = []
        for _ in range(ROUNDS):
            thread, process = time.thread_time(), time.process_time()
            for number in range(CALLS):
                call(told)
                if number % PAUSE_EVERY == 0:
                    await asyncio.sleep(0)
            # The writer's share is still to come.
            thread = time.thread_time() - thread
            await asyncio.sleep(0.3)
            found.append((thread / CALLS * 1e6, (time.process_time() - process) / CALLS * 1e6))
        return min(loop for loop, _ in found), min(whole for _, whole in found)

    idle = await rounds(lambda _: None)
    busy = await rounds(finish)
    return busy[0] - idle[0], busy[1] - idle[1]


def emptied_pipe() -> tuple[int, Callable[[], None]]:
    """Returns a pipe's end that another process empties, and what ends that process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        while os.read(reader, 1 << 20):
            pass
        os._exit(0)
    os.close(reader)

    def end() -> None:
        os.close(writer)
        os.waitpid(child, 0)

    return writer, end


def report(what: str, us: float) -> None:
    print(f"{what:<66} {us:>9.2f} µs")


def measure_metrics() -> None:
    metrics = Metrics(version="bench")
    telemetry = RouterTelemetry(counters=metrics.counters, access_log=None)
    report("request_started", per_call_us(lambda _: telemetry.request_started(), outcome()))
    report("request_finished, no access log", per_call_us(telemetry.request_finished, outcome()))
    opened = outcome(connect_s=0.001)
    report("request_finished, with a connect", per_call_us(telemetry.request_finished, opened))
    refused = outcome(status=404, code="sandbox_not_found", namespace="", authz="denied")
    report("request_finished, a refusal", per_call_us(telemetry.request_finished, refused))
    hostile = outcome(method=b"BREW", status=777, namespace="")
    report("request_finished, invented method", per_call_us(telemetry.request_finished, hostile))

    registry = CollectorRegistry()
    names = ("method", "code", "sandbox_namespace")
    total = Counter("requests", "Requests.", names, registry=registry)
    duration = Histogram("d", "Time.", names, buckets=REQUEST_BUCKETS_S, registry=registry)

    def by_client(told: Outcome) -> None:
        labels = (told.method.decode(), str(told.status), told.namespace)
        total.labels(*labels).inc()
        duration.labels(*labels).observe(told.total_s)

    report(
        "  for comparison: counter and histogram of prometheus_client",
        per_call_us(by_client, outcome()),
    )


async def measure_access_log() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    log = AccessLog(sink=null)
    text = AccessLog(sink=null, log_format="text")
    report("access-log line", per_call_us(log.line, outcome()))
    traced = outcome(traceparent=b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    report("access-log line with a trace id", per_call_us(log.line, traced))
    report("access-log line that needs escaping", per_call_us(log.line, outcome(principal="zoë")))
    report("access-log line as text", per_call_us(text.line, outcome()))
    await text.close()
    await log.close()
    os.close(null)

    pipe, end = emptied_pipe()
    log = AccessLog(sink=pipe, max_pending_bytes=1 << 30)
    loop_us, process_us = await per_request_us(log.write, outcome())
    report("access log to a pipe: line, hand-over, on the loop's thread", loop_us)
    report("access log to a pipe: the whole process, writer thread included", process_us)
    telemetry = RouterTelemetry(counters=Metrics(version="bench").counters, access_log=log)
    loop_us, process_us = await per_request_us(telemetry.request_finished, outcome())
    report("request_finished with access log, on the loop's thread", loop_us)
    report("request_finished with access log, the whole process", process_us)
    await log.close(timeout_s=30)
    assert log.dropped == 0
    end()


def measure_scrape() -> None:
    metrics = Metrics(version="bench")
    for number in range(SERIES):
        metrics.counters.inflight_requests += 1
        metrics.counters.request_finished(outcome(namespace=f"team-{number}"))
    content_type = content_type_for("")

    def milliseconds(what: str, call: Callable[[], object]) -> None:
        rounds = []
        for _ in range(ROUNDS):
            begun = time.thread_time()
            call()
            rounds.append(time.thread_time() - begun)
        print(f"{what:<66} {min(rounds) * 1e3:>9.2f} ms")

    snapshot = metrics.snapshot()
    milliseconds(f"snapshot of {SERIES} label sets, on the loop's thread", metrics.snapshot)
    milliseconds(
        f"text of {SERIES} label sets, in a thread", lambda: render(snapshot, content_type)
    )
    milliseconds("process metrics, in a thread", process_snapshot)

    registry = CollectorRegistry()
    names = ("method", "code", "sandbox_namespace")
    duration = Histogram("d", "Time.", names, buckets=REQUEST_BUCKETS_S, registry=registry)
    for number in range(SERIES):
        duration.labels("GET", "200", f"team-{number}").observe(0.004)
    milliseconds("  for comparison: text by prometheus_client", lambda: generate_latest(registry))


def main() -> None:
    print(
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}\n"
    )
    measure_metrics()
    asyncio.run(measure_access_log())
    measure_scrape()
    assert threading.active_count() == 1


if __name__ == "__main__":
    main()
