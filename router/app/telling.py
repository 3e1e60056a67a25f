"""Builds what tells of requests: counters, access log, spans, activity."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from router.app.version import installed_version
from router.proxy.ports import Tracer
from router.settings import Settings
from router.telemetry import readings
from router.telemetry.access_log import AccessLog
from router.telemetry.activity import Activity
from router.telemetry.metrics import Metrics
from router.telemetry.recorder import RouterTelemetry
from router.telemetry.tracing import build_tracer


def build_telemetry(
    settings: Settings,
    resources: contextlib.AsyncExitStack,
    *,
    metrics: Metrics,
    access_log: AccessLog | None,
    activity: Activity,
    environment: Mapping[str, str],
) -> tuple[RouterTelemetry, Tracer | None]:
    """Returns what is told of each request, and what gives requests their place in a trace; both until `resources` are closed."""
    tracer = build_tracer(
        is_on=settings.logs.tracing, version=installed_version(), environment=environment
    )
    telemetry = RouterTelemetry(
        counters=metrics.counters, access_log=access_log, tracer=tracer, activity=activity
    )
    if access_log is not None:
        resources.push_async_callback(access_log.close)
        readings.read_access_log(metrics, access_log)
    if tracer is not None:
        resources.push_async_callback(tracer.close)
        readings.read_spans(metrics, tracer)
    return telemetry, tracer
