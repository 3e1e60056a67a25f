"""Tracing, switched on or off: builds what makes spans, and says what it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from router.server.spans import SpanTracer

_PROTOCOL: Final = "http/protobuf"
_DEFAULT_QUEUE_SPANS: Final = 2048


def build_tracer(*, is_on: bool, version: str, environment: Mapping[str, str]) -> SpanTracer | None:
    """Returns what makes spans, None when tracing is off: then OpenTelemetry isn't even imported.

    OTEL_SDK_DISABLED and OTEL_TRACES_EXPORTER=none switch it off too. Raises ValueError when tracing is on and can't work.
    """
    if (
        not is_on
        or environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"
    ):
        return None
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environment.get(name, "").strip()
        if protocol and protocol != _PROTOCOL:
            raise ValueError(
                f"{name} is {protocol[:40]!r}; traces are sent as {_PROTOCOL} alone (a collector's port 4318)"
            )
        if protocol:
            break
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from router.server.spans import SpanTracer
    except ModuleNotFoundError as exc:
        raise ValueError(
            f"tracing is on, but the package of `{exc.name}` is not installed:"
            " pip install 'sandbox-router[otel]', or set tracing to false"
        ) from exc
    max_queue_spans = _queue_spans(environment.get("OTEL_BSP_MAX_QUEUE_SIZE", ""))
    try:
        return SpanTracer(
            exporter=OTLPSpanExporter(), version=version, max_queue_spans=max_queue_spans
        )
    except ValueError as exc:
        raise ValueError(f"the OTEL_* variables: {exc}") from exc


def _queue_spans(text: str) -> int:
    """Returns OTEL_BSP_MAX_QUEUE_SIZE. Raises ValueError."""
    text = text.strip()
    if not text:
        return _DEFAULT_QUEUE_SPANS
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise ValueError(f"OTEL_BSP_MAX_QUEUE_SIZE is {text[:40]!r}, which is no number of spans")
    return int(text)
