"""Tracing, as a real collector sees it: contexts in and out, spans, their times, and what tracing must never do."""

import asyncio
import contextlib
import json
import time

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.server.traced_router import (
    DEADLINE_S,
    Collector,
    Sandbox,
    router,
    start,
    table_of,
    values,
)

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"
PARENT = f"traceparent: 00-{TRACE_ID}-{PARENT_ID}-01"
SERVER = "GET sandbox"
SAMPLED = 1


@pytest.fixture
async def sandbox():
    async with Sandbox().running() as sandbox:
        yield sandbox


@pytest.fixture
async def collector():
    async with Collector().running() as collector:
        yield collector


@pytest.fixture
async def traced(tmp_path, sandbox, collector):
    async with router(tmp_path, sandbox, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint) as running:
        yield running


def split(line):
    """Returns the trace id, the span id and the flags of a traceparent line."""
    _, trace_id, span_id, flags = line.partition(": ")[2].split("-")
    return trace_id, span_id, int(flags, 16)


async def test_the_span_in_the_collector_is_the_one_that_the_sandbox_was_told(
    traced, sandbox, collector
):
    state = "tracestate: vendor=a b, congo=t61rcWkgMzE"
    status, _ = await traced.ask(PARENT, state, target="/run?code=1")
    await collector.until(3)

    assert status == 200
    (server,) = collector.named(SERVER)
    assert sandbox.trace_lines(0) == [
        f"traceparent: 00-{TRACE_ID}-{server.span_id.hex()}-01",
        state,
    ]
    assert server.trace_id.hex() == TRACE_ID
    assert server.parent_span_id.hex() == PARENT_ID
    assert server.kind == Span.SPAN_KIND_SERVER
    assert server.trace_state == "vendor=a b,congo=t61rcWkgMzE"
    assert server.status.code == Status.STATUS_CODE_UNSET
    assert values(server.attributes) == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "url.path": "/run",
        "network.protocol.version": "1.1",
        "client.address": "127.0.0.1",
        "server.address": "router.example",
        "sandbox.namespace": "team-a",
        "sandbox.name": "box",
        "sandbox.port": 8888,
        "sandbox.pod_uid": "pod-1",
        "sandbox_router.bytes_from_client": 0,
        "sandbox_router.bytes_to_client": 2,
    }
    assert collector.resources[0]["service.name"] == "sandbox-router"


async def test_connect_and_first_byte_are_children_in_their_order(traced, collector):
    await traced.ask()
    await collector.until(3)
    (server,), (connect,), (first_byte,) = map(collector.named, (SERVER, "connect", "first byte"))
    for child in (connect, first_byte):
        assert child.parent_span_id == server.span_id
        assert child.trace_id == server.trace_id
        assert child.kind == Span.SPAN_KIND_INTERNAL
    times = [
        *(server.start_time_unix_nano, connect.start_time_unix_nano),
        *(connect.end_time_unix_nano, first_byte.start_time_unix_nano),
        *(first_byte.end_time_unix_nano, server.end_time_unix_nano),
    ]
    assert times == sorted(times)
    assert abs(time.time_ns() - server.end_time_unix_nano) < DEADLINE_S * 1e9


async def test_a_reused_connection_leaves_only_the_first_byte(traced, collector):
    for _ in range(2):
        await traced.ask(PARENT)
    await collector.until(5)
    assert len(collector.named("connect")) == 1
    assert len(collector.named("first byte")) == 2
    first, second = collector.named(SERVER)
    assert first.span_id != second.span_id


async def test_a_request_without_context_is_in_the_log_under_the_trace_that_was_begun(
    traced, sandbox, collector
):
    for lines in ((), ("traceparent: nonsense", "tracestate: a=1"), (PARENT, PARENT)):
        await traced.ask(*lines)
    await collector.until(7)
    log = await traced.end()
    servers = collector.named(SERVER)
    assert all(span.parent_span_id == b"" for span in servers)
    assert [line["trace_id"] for line in log] == [span.trace_id.hex() for span in servers]
    assert len({span.trace_id for span in servers} | {bytes.fromhex(TRACE_ID)}) == 4
    for request, span in enumerate(servers):
        (line,) = sandbox.trace_lines(request)
        trace_id, span_id, flags = split(line)
        assert (trace_id, span_id) == (span.trace_id.hex(), span.span_id.hex())
        assert flags & SAMPLED


async def test_a_wait_for_a_starting_sandbox_is_a_child(traced, collector, sandbox):
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(traced.ask(sandbox="later"))
        while "\nsandbox_router_waiting_requests 1" not in await traced.admin("/metrics"):
            await asyncio.sleep(0.02)
        traced.table.write_text(table_of(sandbox.port, later="ready"))
    status, _ = asking.result()
    await collector.until(4)
    assert status == 200
    (server,), (wait,), (connect,) = map(collector.named, (SERVER, "wait", "connect"))
    assert wait.parent_span_id == server.span_id
    assert server.start_time_unix_nano <= wait.start_time_unix_nano
    assert wait.start_time_unix_nano < wait.end_time_unix_nano <= connect.start_time_unix_nano


async def test_a_tunnel_is_one_span_over_its_life(traced, sandbox, collector):
    reader, writer = await asyncio.open_connection("127.0.0.1", traced.port)
    writer.write(
        b"GET /ws HTTP/1.1\r\nHost: x\r\nX-Sandbox-ID: box\r\n"
        b"Connection: Upgrade\r\nUpgrade: echo\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    await asyncio.sleep(0.2)
    assert collector.spans == []
    writer.close()
    await collector.until(3)
    (server,) = collector.named(SERVER)
    assert server.end_time_unix_nano - server.start_time_unix_nano > 0.2e9
    said = values(server.attributes)
    assert said["http.response.status_code"] == 101
    assert said["sandbox_router.is_tunnel"] is True
    assert said["sandbox_router.bytes_from_client"] == 5
    (line,) = sandbox.trace_lines(0)
    assert split(line)[1] == server.span_id.hex()


async def test_what_the_router_refuses_says_why(traced, collector):
    status, _ = await traced.ask(sandbox="missing")
    await collector.until(1)
    assert status == 404
    (server,) = collector.spans
    said = values(server.attributes)
    assert said["sandbox_router.code"] == "sandbox_not_found"
    assert said["sandbox.name"] == "missing"
    assert server.status.code == Status.STATUS_CODE_UNSET  # the client's mistake, not the server's


async def test_a_sandbox_that_is_not_there_is_an_error_with_every_attempt(
    traced, sandbox, collector
):
    unused = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = unused.sockets[0].getsockname()[1]
    unused.close()
    traced.table.write_text(table_of(port))
    async with asyncio.timeout(DEADLINE_S):
        while f'"8888": {port}' not in await traced.admin("/debug/sandboxes?name=box"):
            await asyncio.sleep(0.05)
    status, _ = await traced.ask()
    await collector.until(3)
    assert status == 502
    (server,), attempts = collector.named(SERVER), collector.named("connect")
    assert server.status.code == Status.STATUS_CODE_ERROR
    assert values(server.attributes)["error.type"] == "sandbox_unreachable"
    assert len(attempts) == values(server.attributes)["sandbox_router.retries"] + 1 >= 2
    assert {values(span.attributes)["error.type"] for span in attempts} == {"connect_refused"}


async def test_a_load_balancers_check_makes_no_span(traced, collector):
    reader, writer = await asyncio.open_connection("127.0.0.1", traced.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b'{"status":"ok"}' in await reader.read()
    writer.close()
    await traced.ask(PARENT)
    await collector.until(3)
    assert len(collector.named(SERVER)) == 1


async def test_no_secret_reaches_the_collector(traced, collector):
    await traced.ask(
        "Authorization: Bearer top-secret",
        "Cookie: session=top-secret",
        "X-Sandbox-Token: top-secret",
        PARENT,
        target="/run?token=top-secret",
    )
    await collector.until(3)
    assert TRACE_ID in collector.raw.hex()
    assert b"top-secret" not in collector.raw


async def test_the_context_of_a_trace_that_is_not_recorded_crosses_byte_for_byte(
    traced, sandbox, collector
):
    lines = [f"TraceParent: 00-{TRACE_ID}-{PARENT_ID}-00", "tracestate:a=1"]
    await traced.ask(*lines)
    await traced.ask(PARENT)
    await collector.until(2)  # the second reused the connection
    assert sandbox.trace_lines(0) == lines
    assert len(collector.named(SERVER)) == 1
    assert (await traced.end())[0]["trace_id"] == TRACE_ID


async def test_the_last_spans_are_sent_at_the_end(tmp_path, sandbox, collector):
    async with router(
        tmp_path,
        sandbox,
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
        OTEL_BSP_SCHEDULE_DELAY="3600000",
    ) as running:
        await running.ask(PARENT)
        assert collector.spans == []
        await running.end()
    assert len(collector.named(SERVER)) == 1


async def test_every_worker_sends_its_own_spans(tmp_path, sandbox, collector):
    async with router(
        tmp_path, sandbox, "--workers=2", OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint
    ) as running:
        async with asyncio.timeout(DEADLINE_S):
            while len({said["service.instance.id"] for said in collector.resources}) < 2:
                await running.ask(PARENT)
        assert await running.admin("/metrics")
        await running.end()
    assert len(collector.named(SERVER)) == len(sandbox.heads)


async def test_the_collectors_own_credential_and_headers_are_those_of_the_environment(
    tmp_path, sandbox, collector
):
    async with router(
        tmp_path,
        sandbox,
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
        OTEL_EXPORTER_OTLP_HEADERS="x-api-key=for-the-collector",
        OTEL_RESOURCE_ATTRIBUTES="k8s.pod.name=router-0",
    ) as running:
        await running.ask()
        await collector.until(3)
    assert collector.requests[0]["x-api-key"] == "for-the-collector"
    assert collector.resources[0]["k8s.pod.name"] == "router-0"


# --- without a collector, and without tracing ------------------------------------------------


def spans_counted(metrics):
    return {
        sample.labels["outcome"]: sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == "sandbox_router_spans_total"
    }


async def test_a_collector_that_is_away_costs_spans_and_nothing_else(tmp_path, sandbox):
    async with router(
        tmp_path,
        sandbox,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1",
        OTEL_EXPORTER_OTLP_TIMEOUT="1",
    ) as running:
        for _ in range(20):
            assert (await running.ask())[0] == 200
        async with asyncio.timeout(DEADLINE_S):
            while not spans_counted(await running.admin("/metrics"))["failed"]:
                await asyncio.sleep(0.05)
        began_at = time.monotonic()
        await running.end()
        assert time.monotonic() - began_at < 10.0


async def test_a_collector_that_never_answers_does_not_hold_up_the_end(tmp_path, sandbox):
    never = asyncio.Event()

    async def hold(reader, writer):
        await never.wait()
        writer.close()

    stuck = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = stuck.sockets[0].getsockname()[1]
    async with router(
        tmp_path, sandbox, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}"
    ) as running:
        assert (await running.ask())[0] == 200
        began_at = time.monotonic()
        await running.end()
        assert (
            time.monotonic() - began_at < 10.0
        )  # its own timeout is 10 s, the SDK's for the end 30
    never.set()
    stuck.close()


@pytest.mark.parametrize(
    ("flags", "variables"),
    [
        ((), {}),
        (("--tracing=false",), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}),
        (("--tracing=true",), {"OTEL_SDK_DISABLED": "true"}),
    ],
    ids=["no endpoint", "said so", "the SDK's own switch"],
)
async def test_with_tracing_off_every_context_crosses_byte_for_byte(
    tmp_path, sandbox, flags, variables
):
    contexts = [
        [PARENT, "tracestate: a=1"],
        ["TRACEPARENT:nonsense", "TraceState: ,,"],
        [PARENT, PARENT],
        [],
    ]
    async with router(tmp_path, sandbox, *flags, **variables) as running:
        for context in contexts:
            await running.ask(*context)
        log = await running.end()
    assert [sandbox.trace_lines(request) for request in range(4)] == contexts
    assert log[0]["trace_id"] == TRACE_ID
    assert [line["trace_id"] for line in (log[1], log[3])] == ["", ""]


async def test_tracing_without_its_packages_stops_the_start_and_names_the_extra(tmp_path):
    missing = tmp_path / "opentelemetry"
    missing.mkdir()
    (missing / "__init__.py").write_text("")
    table = tmp_path / "sandboxes.yaml"
    table.write_text(table_of(1))
    process = await start("--tracing=true", table=table, variables={"PYTHONPATH": str(tmp_path)})
    try:
        async with asyncio.timeout(DEADLINE_S):
            _, errors = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert process.returncode == 1
    (said,) = [line for line in map(json.loads, errors.splitlines()) if line["level"] == "critical"]
    assert "pip install 'sandbox-router[otel]'" in said["reason"]
