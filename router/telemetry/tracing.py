"""Tracing, switched on or off: builds what makes spans, and says what it lacks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from router.telemetry.spans import SpanTracer

logger = logging.getLogger("sandbox_router.server")

_PROTOCOL: Final = "http/protobuf"
_GRPC_PORT: Final = 4317
_DEFAULT_QUEUE_SPANS: Final = 2048


def build_tracer(*, is_on: bool, version: str, environment: Mapping[str, str]) -> SpanTracer | None:
    """Returns what makes spans, None when tracing is off: then OpenTelemetry isn't even imported.

    OTEL_SDK_DISABLED and OTEL_TRACES_EXPORTER=none switch it off too. Raises ValueError when tracing is on and can't work.
    """
    if not is_on or _is_disabled(environment):
        return None
    _check_protocol(environment)
    _check_endpoint(environment)
    max_queue_spans = _queue_spans(environment.get("OTEL_BSP_MAX_QUEUE_SIZE", ""))
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from router.telemetry.spans import SpanTracer
    except ModuleNotFoundError as exc:
        raise ValueError(
            f"tracing is on, but the package of `{exc.name}` is not installed:"
            " pip install 'sandbox-router[otel]', or set tracing to false"
        ) from exc
    try:
        return SpanTracer(
            exporter=OTLPSpanExporter(), version=version, max_queue_spans=max_queue_spans
        )
    except ValueError as exc:
        raise ValueError(f"the OTEL_* variables: {exc}") from exc


def _is_disabled(environment: Mapping[str, str]) -> bool:
    return (
        environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"
    )


def _first_said(environment: Mapping[str, str], for_traces: str, for_all: str) -> tuple[str, str]:
    """Returns the name and the value of the variable that decides; the value is "" when neither is set."""
    for name in (for_traces, for_all):
        value = environment.get(name, "").strip()
        if value:
            return name, value
    return for_all, ""


def _check_protocol(environment: Mapping[str, str]) -> None:
    name, protocol = _first_said(
        environment, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    if protocol not in ("", _PROTOCOL):
        raise ValueError(
            f"{name} is {protocol[:40]!r}; traces are sent as {_PROTOCOL} alone (a collector's port 4318)"
        )


def _check_endpoint(environment: Mapping[str, str]) -> None:
    """Refuses what would fail at every export; the value may hold a credential and is never shown."""
    name, endpoint = _first_said(
        environment, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    if not endpoint:
        return
    try:
        parts = urlsplit(endpoint)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
        port = parts.port
    except ValueError:
        is_url, port = False, None
    if not is_url:
        raise ValueError(f"{name} is no URL such as http://collector.tracing:4318")
    if port == _GRPC_PORT:
        logger.warning(
            "traces are sent over HTTP, for which collectors listen on 4318; 4317 is for gRPC",
            extra={"fields": {"variable": name}},
        )


def _queue_spans(text: str) -> int:
    """Returns OTEL_BSP_MAX_QUEUE_SIZE. Raises ValueError."""
    text = text.strip()
    if not text:
        return _DEFAULT_QUEUE_SPANS
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise ValueError(f"OTEL_BSP_MAX_QUEUE_SIZE is {text[:40]!r}, which is no number of spans")
    return int(text)
