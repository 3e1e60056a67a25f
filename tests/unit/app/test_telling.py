"""What is built to tell of requests, and that it ends with the resources."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from router.app.telling import build_telemetry
from router.settings import load
from router.telemetry.access_log import AccessLog
from router.telemetry.activity import Activity
from router.telemetry.metrics import Metrics


def settings(tmp_path: Any) -> Any:
    table = tmp_path / "s.yaml"
    table.write_text("sandboxes: []")
    return load({"auth": "none", "discovery": "file", "sandboxes-file": str(table)}).settings


async def test_each_request_is_counted_and_written_until_the_end(
    tmp_path: Any, make_outcome: Any
) -> None:
    metrics, sink = Metrics(version="1"), io.BytesIO()
    async with contextlib.AsyncExitStack() as resources:
        telemetry, tracer = build_telemetry(
            settings(tmp_path),
            resources,
            metrics=metrics,
            access_log=AccessLog(sink=sink),
            activity=Activity(),
            environment={},
        )
        telemetry.request_started()
        telemetry.request_finished(make_outcome())
    assert tracer is None
    assert sink.getvalue().count(b"\n") == 1
    assert dict(metrics.snapshot()["sandbox_router_requests_total"])["GET", "200", "team-a"] == [1]
    assert metrics.snapshot()["sandbox_router_access_log_dropped_total"] == [((), [0])]


async def test_without_an_access_log_the_counters_remain(tmp_path: Any, make_outcome: Any) -> None:
    metrics = Metrics(version="1")
    async with contextlib.AsyncExitStack() as resources:
        telemetry, _ = build_telemetry(
            settings(tmp_path),
            resources,
            metrics=metrics,
            access_log=None,
            activity=Activity(),
            environment={},
        )
        telemetry.request_finished(make_outcome())
    assert dict(metrics.snapshot()["sandbox_router_requests_total"])["GET", "200", "team-a"] == [1]
