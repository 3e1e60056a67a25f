import logging
import threading
import time

import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from router.proxy import ports
from router.proxy.request import Outcome
from router.proxy.wire.forwarding import crossing_request_head
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import parse_request
from router.proxy.wire.trace_context import CONNECT, FIRST_BYTE, WAIT
from router.telemetry import recorder
from router.telemetry.access_log import trace_id_of
from router.telemetry.spans import SpanTracer

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"
SAMPLED = f"traceparent: 00-{TRACE_ID}-{PARENT_ID}-01"
NOT_SAMPLED = f"traceparent: 00-{TRACE_ID}-{PARENT_ID}-00"
PEER = Peer("203.0.113.7", is_tls=False, trusted=())
STARTED_AT = 1_790_000_000.25
SECOND = 10**9


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in ("OTEL_TRACES_SAMPLER", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)


class Collected(InMemorySpanExporter):
    """What was exported, by name."""

    def spans(self):
        return {span.name: span for span in self.get_finished_spans()}


def tracer_for(exporter, **options):
    return SpanTracer(exporter=exporter, version="1.2.3", **{"max_queue_spans": 2048} | options)


@pytest.fixture
def collected():
    return Collected()


@pytest.fixture
async def tracer(collected):
    tracer = tracer_for(collected)
    yield tracer
    await tracer.close()


def begun(tracer, *lines, began_at=0.0):
    """Returns a request's head and outcome once its trace has begun."""
    block = "\r\n".join(["GET /a?b HTTP/1.1", "Host: x", *lines, "", ""])
    head = parse_request(block.encode())
    outcome = Outcome(method=b"GET", path=b"/a?b", client="203.0.113.7", started_at=STARTED_AT)
    outcome.traceparent = head.traceparent
    tracer.begin(head, PEER, outcome, began_at)
    return head, outcome


def sent(head):
    """Returns the trace headers that the sandbox is sent."""
    crossed = crossing_request_head(
        head,
        target=head.target,
        host=head.host,
        peer=PEER,
        keep_authorization=True,
        origin_policy="keep",
    )
    fields = [line.partition(":") for line in crossed.decode().split("\r\n")[1:-2]]
    return {name.lower(): value.strip() for name, _, value in fields if name[:5].lower() == "trace"}


async def ended(tracer, outcome, **facts):
    """Ends the request and everything; a test asks the exporter for the spans after it."""
    defaults = {"status": 200, "total_s": 1.0, "first_byte_s": 0.5}
    for name, fact in (defaults | facts).items():
        setattr(outcome, name, fact)
    tracer.request_finished(outcome)
    await tracer.close()


async def test_it_is_what_the_gateway_and_the_telemetry_ask_for(tracer):
    for_gateway: ports.Tracer = tracer
    for_telemetry: recorder.Tracer = tracer
    assert for_gateway is for_telemetry


# --- context in and out ----------------------------------------------------------------------


async def test_the_sandbox_is_told_the_very_span_that_is_exported(tracer, collected):
    head, outcome = begun(tracer, SAMPLED, "tracestate: a=1,b=2")
    await ended(tracer, outcome)
    span = collected.spans()["GET sandbox"]
    assert sent(head) == {
        "traceparent": f"00-{TRACE_ID}-{format_span_id(span.context.span_id)}-01",
        "tracestate": "a=1,b=2",
    }
    assert format_trace_id(span.context.trace_id) == TRACE_ID
    assert format_span_id(span.parent.span_id) == PARENT_ID
    assert span.parent.is_remote
    assert span.kind is SpanKind.SERVER
    assert list(span.context.trace_state.items()) == [("a", "1"), ("b", "2")]


async def test_a_request_without_context_begins_a_trace(tracer, collected):
    head, outcome = begun(tracer)
    await ended(tracer, outcome)
    span = collected.spans()["GET sandbox"]
    trace_id, span_id = format_trace_id(span.context.trace_id), format_span_id(span.context.span_id)
    assert sent(head)["traceparent"].startswith(f"00-{trace_id}-{span_id}-0")
    assert int(sent(head)["traceparent"][-2:], 16) & 1
    assert span.parent is None
    assert trace_id_of(outcome.traceparent) == trace_id


async def test_an_invalid_context_is_given_up_with_its_state(tracer, collected):
    head, outcome = begun(tracer, "traceparent: 00-0-0-01", "tracestate: a=1")
    await ended(tracer, outcome)
    span = collected.spans()["GET sandbox"]
    assert sent(head) == {"traceparent": outcome.traceparent.decode()}
    assert span.parent is None
    assert not span.context.trace_state


async def test_a_malformed_state_crosses_but_is_no_part_of_the_span(tracer, collected, caplog):
    head, outcome = begun(tracer, SAMPLED, "tracestate: ä nonsense")
    await ended(tracer, outcome)
    assert sent(head)["tracestate"] == "ä nonsense"
    assert not collected.spans()["GET sandbox"].context.trace_state
    assert caplog.records == []


async def test_a_trace_that_its_beginner_does_not_record_crosses_as_it_came(tracer, collected):
    lines = (NOT_SAMPLED, "tracestate: a=1")
    head, outcome = begun(tracer, *lines)
    await ended(tracer, outcome)
    assert head.lines[2:4] == [line.encode() for line in lines]
    assert outcome.trace is None
    assert trace_id_of(outcome.traceparent) == TRACE_ID
    assert collected.spans() == {}


@pytest.mark.parametrize(
    ("sampler", "lines", "is_recorded"),
    [
        ("parentbased_always_off", (), False),
        ("parentbased_always_off", (SAMPLED,), True),
        ("parentbased_always_on", (NOT_SAMPLED,), False),
        ("always_on", (NOT_SAMPLED,), True),
        ("always_off", (SAMPLED,), False),
        ("parentbased_traceidratio", (), False),
    ],
)
async def test_the_sampler_is_the_one_of_the_environment(
    monkeypatch, collected, sampler, lines, is_recorded
):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    tracer = tracer_for(collected)
    _, outcome = begun(tracer, *lines)
    await ended(tracer, outcome)
    assert bool(collected.spans()) == is_recorded


async def test_a_trace_that_we_begin_and_do_not_record_is_not_recorded_by_the_sandbox_either(
    monkeypatch, collected
):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    tracer = tracer_for(collected)
    head, outcome = begun(tracer)
    await ended(tracer, outcome)
    assert int(sent(head)["traceparent"][-2:], 16) & 1 == 0
    assert trace_id_of(outcome.traceparent)
    assert collected.spans() == {}


# --- what the spans say ----------------------------------------------------------------------


async def test_a_request_that_was_sent_at_once_has_one_step(tracer, collected):
    _, outcome = begun(tracer, began_at=time.monotonic())
    await ended(tracer, outcome, first_byte_s=0.25, total_s=2.0)
    spans = collected.spans()
    assert set(spans) == {"GET sandbox", FIRST_BYTE}
    server, first_byte = spans["GET sandbox"], spans[FIRST_BYTE]
    began = int(STARTED_AT * SECOND)
    assert (server.start_time, server.end_time) == (began, began + 2 * SECOND)
    assert (first_byte.start_time, first_byte.end_time) == (began, began + SECOND // 4)
    assert first_byte.parent.span_id == server.context.span_id
    assert first_byte.context.trace_id == server.context.trace_id
    assert first_byte.kind is SpanKind.INTERNAL


async def test_each_slow_step_is_a_child_at_its_time(tracer, collected):
    zero = time.monotonic() - 10.0
    _, outcome = begun(tracer, began_at=zero)
    times = ((WAIT, 1.0, 3.0), (CONNECT, 3.0, 4.0), (FIRST_BYTE, 4.0, None))
    for name, began_s, ended_s in times:
        outcome.trace.begins(name)
        step = outcome.trace.steps[-1]
        step.began_at = zero + began_s
        step.ended_at = None if ended_s is None else zero + ended_s
    await ended(tracer, outcome, first_byte_s=2.0, total_s=7.0)
    began = int(STARTED_AT * SECOND)

    def interval(name):
        span = collected.spans()[name]
        return tuple(
            pytest.approx((at - began) / SECOND, abs=1e-6)
            for at in (span.start_time, span.end_time)
        )

    assert interval(WAIT) == (1.0, 3.0)
    assert interval(CONNECT) == (3.0, 4.0)
    assert interval(FIRST_BYTE) == (4.0, 6.0)
    assert interval("GET sandbox") == (0.0, 7.0)


async def test_each_connect_that_failed_says_why(tracer, collected):
    _, outcome = begun(tracer)
    for reason in ("connect_refused", "connect_timeout"):
        outcome.trace.begins(CONNECT)
        outcome.trace.ends(reason)
    await ended(
        tracer,
        outcome,
        status=502,
        code="sandbox_unreachable",
        upstream_error="connect_timeout",
        error_reason="10.0.0.7: timed out",
        first_byte_s=None,
    )
    spans = collected.get_finished_spans()
    assert [(span.name, span.attributes.get("error.type")) for span in spans] == [
        (CONNECT, "connect_refused"),
        (CONNECT, "connect_timeout"),
        ("GET sandbox", "sandbox_unreachable"),
    ]
    assert all(span.status.status_code is StatusCode.ERROR for span in spans)
    assert spans[-1].status.description == "10.0.0.7: timed out"


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        (
            {"status": 504, "code": "sandbox_timeout", "upstream_error": "response_timeout"},
            "response_timeout",
        ),
        ({"status": 502, "code": "bad_response", "upstream_error": "bad_response"}, "bad_response"),
        ({"status": 499, "code": "client_closed", "authz": "allowed"}, None),
    ],
)
async def test_a_first_byte_that_never_came_was_waited_for_until_the_end(
    tracer, collected, facts, error
):
    _, outcome = begun(tracer)
    await ended(tracer, outcome, first_byte_s=None, **facts)
    spans = collected.spans()
    assert spans[FIRST_BYTE].end_time == spans["GET sandbox"].end_time
    assert spans[FIRST_BYTE].attributes.get("error.type") == error


@pytest.mark.parametrize(
    "facts",
    [
        {"status": 401, "code": "unauthenticated"},
        {"status": 404, "code": "sandbox_not_found", "authz": "allowed"},
        {"status": 499, "code": "client_closed"},
    ],
)
async def test_what_was_never_sent_has_no_first_byte(tracer, collected, facts):
    _, outcome = begun(tracer)
    await ended(tracer, outcome, first_byte_s=None, **facts)
    assert set(collected.spans()) == {"GET sandbox"}


async def test_a_step_that_was_cut_off_ends_with_its_request(tracer, collected):
    _, outcome = begun(tracer, began_at=time.monotonic())
    outcome.trace.begins(WAIT)
    await ended(tracer, outcome, status=499, code="client_closed", first_byte_s=None)
    spans = collected.spans()
    assert spans[WAIT].end_time == spans["GET sandbox"].end_time


async def test_a_connection_that_turned_out_stale_ends_where_the_next_step_begins(
    tracer, collected
):
    _, outcome = begun(tracer, began_at=time.monotonic())
    for name in (FIRST_BYTE, CONNECT, FIRST_BYTE):
        outcome.trace.begins(name)
        if name == CONNECT:
            outcome.trace.ends()
    await ended(tracer, outcome)
    first, connect, second, _ = collected.get_finished_spans()
    assert [first.name, connect.name, second.name] == [FIRST_BYTE, CONNECT, FIRST_BYTE]
    assert first.end_time == connect.start_time <= connect.end_time <= second.start_time


async def test_a_tunnel_is_one_span_over_its_life(tracer, collected):
    _, outcome = begun(tracer)
    await ended(tracer, outcome, status=101, is_tunnel=True, total_s=3600.0)
    span = collected.spans()["GET sandbox"]
    assert span.end_time - span.start_time == 3600 * SECOND
    assert span.attributes["sandbox_router.is_tunnel"] is True


async def test_requests_that_are_not_traced_are_not_told(tracer, collected, make_outcome):
    tracer.request_finished(make_outcome())
    await tracer.close()
    assert collected.spans() == {}


# --- who says it -----------------------------------------------------------------------------


async def test_it_names_itself_where_the_environment_does_not(tracer, collected):
    _, outcome = begun(tracer)
    await ended(tracer, outcome)
    resource = collected.spans()["GET sandbox"].resource.attributes
    assert resource["service.name"] == "sandbox-router"
    assert resource["service.version"] == "1.2.3"
    assert resource["service.instance.id"]


async def test_the_environments_names_come_first(monkeypatch, collected):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "door")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.version=9,k8s.pod.name=door-0")
    tracer = tracer_for(collected)
    _, outcome = begun(tracer)
    await ended(tracer, outcome)
    resource = collected.spans()["GET sandbox"].resource.attributes
    assert (resource["service.name"], resource["service.version"]) == ("door", "9")
    assert resource["k8s.pod.name"] == "door-0"


# --- the exporting thread --------------------------------------------------------------------


class Stuck(SpanExporter):
    """A collector that answers nothing until it is let go."""

    def __init__(self):
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()
        self.is_shut_down = False

    def export(self, spans):
        self.has_begun.set()
        self.may_go_on.wait(30)
        return SpanExportResult.SUCCESS

    def shutdown(self):
        self.is_shut_down = True
        self.may_go_on.set()


class Failing(SpanExporter):
    def export(self, spans):
        return SpanExportResult.FAILURE


async def test_spans_are_counted_as_exported_once_the_collector_took_them(tracer):
    _, outcome = begun(tracer)
    await ended(tracer, outcome)
    assert tracer.counts() == {("exported",): 2, ("failed",): 0, ("dropped",): 0}
    assert tracer.pending == 0


async def test_what_the_collector_refuses_is_counted():
    tracer = tracer_for(Failing())
    _, outcome = begun(tracer)
    await ended(tracer, outcome)
    assert tracer.counts() == {("exported",): 0, ("failed",): 2, ("dropped",): 0}


async def test_an_exporter_that_breaks_is_counted_too(caplog):
    class Broken(SpanExporter):
        def export(self, spans):
            raise RuntimeError("broken")

    tracer = tracer_for(Broken())
    _, outcome = begun(tracer)
    await ended(tracer, outcome)
    assert tracer.counts()["failed",] == 2
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_a_slow_collector_costs_whole_requests_and_never_the_loops_time(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    exporter = Stuck()
    tracer = tracer_for(exporter, max_queue_spans=5)
    _, first = begun(tracer)
    first.first_byte_s = 0.1
    tracer.request_finished(first)
    assert exporter.has_begun.wait(10)
    for _ in range(4):
        _, outcome = begun(tracer)
        outcome.first_byte_s = 0.1
        tracer.request_finished(outcome)
    assert tracer.pending == 4  # two requests of two spans; a third would be one span too many
    assert tracer.counts()["dropped",] == 4
    exporter.may_go_on.set()
    await tracer.close()
    assert tracer.counts() == {("exported",): 6, ("failed",): 0, ("dropped",): 4}
    assert caplog.records == []


async def test_closing_waits_no_longer_than_it_may(caplog):
    exporter = Stuck()
    tracer = tracer_for(exporter)
    _, outcome = begun(tracer)
    outcome.first_byte_s = 0.1
    tracer.request_finished(outcome)
    began_at = time.monotonic()
    await tracer.close(timeout_s=0.1)
    assert time.monotonic() - began_at < 5.0
    assert exporter.is_shut_down
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.fields == {"spans": 2}


async def test_what_ends_after_the_end_is_dropped(tracer, collected):
    _, outcome = begun(tracer)
    await tracer.close()
    tracer.request_finished(outcome)
    assert collected.spans() == {}
    assert tracer.counts()["dropped",] == 1


async def test_its_repr_says_what_waits(tracer):
    assert repr(tracer).startswith("<SpanTracer pending=0 {('exported',): 0,")
