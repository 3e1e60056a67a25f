"""SpanTracer: a span for each traced request, with its steps below it, exported by a thread of its own.

Only imported when tracing is on (see tracing.py): this is the one module that needs the extra `otel`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, set_span_in_context
from opentelemetry.trace.span import TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from router.proxy.request import Outcome
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.trace_context import FIRST_BYTE, Step, Trace, TraceHeaders, TraceParent
from router.telemetry import span_attributes

logger = logging.getLogger("sandbox_router.server")

_NOWHERE: Final = Context()
"""Explicitly no parent: without it a sampler would take whatever this task's context holds."""
_SAMPLED: Final = 0x01
_RANDOM_TRACE_ID: Final = 0x02
_UNSET: Final = Status(StatusCode.UNSET)
_ERROR: Final = Status(StatusCode.ERROR)


class SpanTracer:
    """Implements proxy.ports.Tracer and server.telemetry.Tracer. Belongs to the loop's thread, which it never blocks.

    Sampler, resource, batches and destination come from the OTEL_* variables, which the SDK reads.
    """

    def __init__(self, *, exporter: SpanExporter, version: str, max_queue_spans: int) -> None:
        """Raises ValueError for OTEL_BSP_* variables that contradict each other."""
        self._exporter = _CountingExporter(exporter)
        self._processor = BatchSpanProcessor(self._exporter, max_queue_size=max_queue_spans)
        self._max_queue_spans = max_queue_spans
        self._resource = _resource(version)
        self._scope = InstrumentationScope("sandbox_router", version)
        provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        self._sampler = provider.sampler
        self._ids = provider.id_generator
        self._handed_over = 0
        self._dropped = 0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<SpanTracer pending={self.pending} {dict(self.counts())}>"

    @property
    def pending(self) -> int:
        """Spans that wait for the exporting thread."""
        return self._handed_over - self._exporter.taken

    def counts(self) -> Mapping[tuple[str, ...], int]:
        """Returns how many spans were exported, refused by the collector, or dropped because too many waited."""
        return {
            ("exported",): self._exporter.exported,
            ("failed",): self._exporter.failed,
            ("dropped",): self._dropped,
        }

    # --- a request begins ---

    def begin(self, head: RequestHead, peer: Peer, outcome: Outcome, began_at: float) -> None:
        """Decides whether the request is traced, and tells the sandbox its place in the trace."""
        headers = TraceHeaders(head)
        parent = headers.parent
        if parent is None:
            above = None
            trace_id = self._ids.generate_trace_id()
            flags = _RANDOM_TRACE_ID
        else:
            above = _context_of(parent)
            trace_id = above.trace_id
            flags = parent.flags & _RANDOM_TRACE_ID
        name = span_attributes.span_name(head.method)
        if self._is_sampled(above, trace_id, name):
            flags |= _SAMPLED
        elif above is not None:
            return  # a span that nobody will ever see is no parent: the context crosses as it came
        span_id = self._ids.generate_span_id()
        outcome.traceparent = b"00-%032x-%016x-%02x" % (trace_id, span_id, flags)
        headers.send(outcome.traceparent)
        if flags & _SAMPLED:
            state = TraceState(span_attributes.state_entries(headers.state))
            own = SpanContext(
                trace_id,
                span_id,
                is_remote=False,
                trace_flags=TraceFlags(flags),
                trace_state=state,
            )
            outcome.trace = _SpanTrace(name, own, above, head, peer, began_at)

    def _is_sampled(self, above: SpanContext | None, trace_id: int, name: str) -> bool:
        context = _NOWHERE
        if above is not None:
            context = set_span_in_context(NonRecordingSpan(above), _NOWHERE)
        result = self._sampler.should_sample(context, trace_id, name, SpanKind.SERVER)
        return result.decision is Decision.RECORD_AND_SAMPLE

    # --- a request has ended ---

    def request_finished(self, outcome: Outcome) -> None:
        """Hands the spans of a traced request to the exporting thread, all of them or none."""
        trace = outcome.trace
        if not isinstance(trace, _SpanTrace):
            return
        steps = _steps(trace, outcome)
        count = len(steps) + 1
        if self._is_closed or self.pending + count > self._max_queue_spans:
            self._dropped += count
            return
        self._handed_over += count
        for span in self._spans(trace, steps, outcome):
            self._processor.on_end(span)

    def _spans(
        self, trace: _SpanTrace, steps: Sequence[Step], outcome: Outcome
    ) -> Iterator[ReadableSpan]:
        # As the SDK leaves them at their end; Tracer.start_span costs the loop half as much again (docs/tracing.md).
        own = trace.own
        began_ns = _nanoseconds(outcome.started_at)
        ended_ns = began_ns + _nanoseconds(outcome.total_s)
        for step, step_began_s, step_ended_s, error in _times(steps, trace.began_at, outcome):
            yield ReadableSpan(
                step.name,
                context=SpanContext(
                    own.trace_id,
                    self._ids.generate_span_id(),
                    is_remote=False,
                    trace_flags=own.trace_flags,
                    trace_state=own.trace_state,
                ),
                parent=own,
                resource=self._resource,
                attributes={"error.type": error} if error else None,
                status=_ERROR if error else _UNSET,
                start_time=min(began_ns + _nanoseconds(step_began_s), ended_ns),
                end_time=min(began_ns + _nanoseconds(step_ended_s), ended_ns),
                instrumentation_scope=self._scope,
            )
        yield ReadableSpan(
            trace.name,
            context=own,
            parent=trace.above,
            resource=self._resource,
            attributes=span_attributes.of_request(trace.head, trace.peer, outcome),
            kind=SpanKind.SERVER,
            status=_status(outcome),
            start_time=began_ns,
            end_time=ended_ns,
            instrumentation_scope=self._scope,
        )

    # --- the end ---

    async def close(self, *, timeout_s: float = 2.0) -> None:
        """Exports what is left, for at most `timeout_s`; what a slow collector hasn't taken by then is lost."""
        self._is_closed = True
        loop = asyncio.get_running_loop()
        flushed = asyncio.Event()
        end: Callable[[], None] = self._processor.shutdown  # the SDK gives it no types

        def flush() -> None:
            end()
            with contextlib.suppress(RuntimeError):  # the loop may have ended before
                loop.call_soon_threadsafe(flushed.set)

        # A daemon: the SDK's own deadline is 30 s, and this process shall end when ours is over.
        threading.Thread(target=flush, name="flush spans", daemon=True).start()
        try:
            async with asyncio.timeout(timeout_s):
                await flushed.wait()
        except TimeoutError:
            lost = self._handed_over - self._exporter.exported - self._exporter.failed
            logger.warning("spans were lost at the end", extra={"fields": {"spans": lost}})
            self._exporter.shutdown()


class _SpanTrace(Trace):
    """A traced request: its own place in the trace, its parent's, and what its span will tell."""

    __slots__ = ("above", "began_at", "head", "name", "own", "peer")

    def __init__(
        self,
        name: str,
        own: SpanContext,
        above: SpanContext | None,
        head: RequestHead,
        peer: Peer,
        began_at: float,
    ) -> None:
        super().__init__()
        self.name = name
        self.own = own
        self.above = above
        self.head = head
        self.peer = peer
        self.began_at = began_at


class _CountingExporter(SpanExporter):
    """Counts what the exporter is given and how that went. Its methods run in the exporting thread."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._is_shut_down = False
        self.taken = 0
        self.exported = 0
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            if result is SpanExportResult.SUCCESS:
                self.exported += len(spans)
            else:
                self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        """Ends an export's pauses between attempts, too."""
        if not self._is_shut_down:
            self._is_shut_down = True
            self._exporter.shutdown()


def _steps(trace: _SpanTrace, outcome: Outcome) -> list[Step]:
    """Returns the steps; a request that was sent at once left only the last one, and no mark of it."""
    if trace.steps or not _was_sent(outcome):
        return trace.steps
    step = Step(FIRST_BYTE)
    step.began_at = trace.began_at
    return [step]


def _was_sent(outcome: Outcome) -> bool:
    if outcome.first_byte_s is not None or outcome.upstream_error:
        return True
    return outcome.code == "client_closed" and outcome.authz in ("allowed", "public")


def _times(
    steps: Sequence[Step], zero: float, outcome: Outcome
) -> Iterator[tuple[Step, float, float, str]]:
    """Yields each step with its beginning and end, in seconds since the request's, and why it failed."""
    for number, step in enumerate(steps, 1):
        began_s, error = step.began_at - zero, step.error
        if step.ended_at is not None:
            ended_s = step.ended_at - zero
        elif number < len(steps):
            ended_s = steps[number].began_at - zero
        elif step.name == FIRST_BYTE and outcome.first_byte_s is not None:
            ended_s = began_s + outcome.first_byte_s
        else:
            ended_s, error = outcome.total_s, outcome.upstream_error
        yield step, began_s, ended_s, error


def _context_of(parent: TraceParent) -> SpanContext:
    return SpanContext(
        int(parent.trace_id, 16),
        int(parent.parent_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(parent.flags),
    )


def _status(outcome: Outcome) -> Status:
    if not span_attributes.is_error(outcome):
        return _UNSET
    return Status(StatusCode.ERROR, span_attributes.description(outcome))


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def _resource(version: str) -> Resource:
    """Returns who makes these spans: as the OTEL_* variables say, and what they leave unsaid."""
    said = Resource.create()
    ours = {
        SERVICE_NAME: "sandbox-router",
        SERVICE_VERSION: version,
        SERVICE_INSTANCE_ID: str(uuid.uuid4()),
    }
    unsaid = {
        name: value
        for name, value in ours.items()
        if str(said.attributes.get(name, "unknown_service")).startswith("unknown_service")
    }
    return said.merge(Resource(unsaid))
