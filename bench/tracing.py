"""What tracing costs the loop's thread: a request's trace begun and its spans handed over, by what was decided.

Run `python -m bench.tracing`. Times are CPU time, the best of several rounds. What the exporting thread needs comes on top.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, set_span_in_context

from bench.telemetry import outcome, report
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import parse_request
from router.telemetry import span_attributes
from router.telemetry.spans import SpanTracer

ROUNDS = 15
REQUESTS = 1_000
PEER = Peer("203.0.113.77", is_tls=False, trusted=())
PARENT = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"


class Nowhere(SpanExporter):
    """Takes everything at once."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def head_of(*lines: str) -> bytes:
    return "\r\n".join(
        [
            "GET /api/kernels HTTP/1.1",
            "Host: sandboxes.example.com",
            "User-Agent: python-requests/2.32",
            "Accept: */*",
            "X-Sandbox-ID: notebook-7",
            "X-Sandbox-Namespace: team-a",
            *lines,
            "",
            "",
        ]
    ).encode()


def per_request_us(call: Callable[[], object]) -> float:
    """Returns the best time of one call in µs; between the rounds the exporting thread catches up."""
    rounds = []
    for _ in range(ROUNDS):
        begun = time.thread_time()
        for _ in range(REQUESTS):
            call()
        rounds.append(time.thread_time() - begun)
        time.sleep(0.05)
    return min(rounds) / REQUESTS * 1e6


async def measure_tracer(what: str, sampler: str, *lines: str) -> None:
    os.environ["OTEL_TRACES_SAMPLER"] = sampler
    tracer = SpanTracer(exporter=Nowhere(), version="bench", max_queue_spans=1 << 30)
    block = head_of(*lines)

    def parse() -> None:
        parse_request(block)
        outcome()

    def trace() -> None:
        told = outcome()
        tracer.begin(parse_request(block), PEER, told, 0.0)
        tracer.request_finished(told)

    report(what, per_request_us(trace) - per_request_us(parse))
    await tracer.close()


def measure_sdk() -> None:
    """The same two spans by the SDK's own way, for comparison."""
    os.environ["OTEL_TRACES_SAMPLER"] = "always_on"
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SpanProcessor())
    tracer = provider.get_tracer("bench")
    head, told = parse_request(head_of()), outcome()

    def trace() -> None:
        span = tracer.start_span("GET sandbox", Context(), SpanKind.SERVER, start_time=1)
        child = tracer.start_span("first byte", set_span_in_context(span, Context()), start_time=1)
        child.end(2)
        span.set_attributes(span_attributes.of_request(head, PEER, told))
        span.end(3)

    report("  for comparison: the two spans by Tracer.start_span", per_request_us(trace))


async def main() -> None:
    await measure_tracer("sampled, in a new trace: two spans", "always_on")
    await measure_tracer("sampled, in the caller's trace: two spans", "always_on", PARENT + "01")
    await measure_tracer("not sampled, in a new trace", "always_off")
    await measure_tracer("not sampled, in the caller's trace", "always_off", PARENT + "01")
    measure_sdk()


if __name__ == "__main__":
    os.environ["OTEL_BSP_SCHEDULE_DELAY"] = "20"
    asyncio.run(main())
