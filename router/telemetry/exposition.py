"""Exposition: a Snapshot as the text that Prometheus reads.

Written out here because prometheus_client's own writer takes half a second for 4,000 label sets of the request histogram,
in the process that carries the requests: ten times as long as this one (bench/telemetry.py). Its parsers judge the
result in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE_OPENMETRICS

from router.telemetry.metric_catalogue import BY_NAME, FAMILIES
from router.telemetry.metric_family import Family, Kind
from router.telemetry.snapshot import Series, Snapshot, without_forgotten

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def content_type_for(accept: str) -> str:
    """Returns the format for an Accept header: OpenMetrics when it is asked for, else the classic text format."""
    wanted = (part.split(";")[0].strip().lower() for part in accept.split(","))
    return (
        CONTENT_TYPE_OPENMETRICS
        if "application/openmetrics-text" in wanted
        else CONTENT_TYPE_PLAIN_0_0_4
    )


def render(snapshot: Snapshot, content_type: str) -> bytes:
    """Returns the text; pure and a matter of milliseconds, so a thread may do it."""
    is_openmetrics = content_type == CONTENT_TYPE_OPENMETRICS
    lines: list[str] = []
    for name, rows in without_forgotten(snapshot).items():
        family = BY_NAME.get(name)
        if family is None:
            continue
        # OpenMetrics names a counter's family without the suffix of its sample.
        title = name.removesuffix("_total") if is_openmetrics else name
        lines.append(f"# HELP {title} {family.help}\n# TYPE {title} {family.kind.value}\n")
        for labels, series in rows:
            text = _label_text(family, labels)
            if family.kind is Kind.HISTOGRAM:
                lines.extend(_histogram(family, text, series))
            else:
                lines.append(
                    f"{name}{{{text}}} {_number(series[0])}\n"
                    if text
                    else f"{name} {_number(series[0])}\n"
                )
    if is_openmetrics:
        lines.append("# EOF\n")
    return "".join(lines).encode()


def _histogram(family: Family, labels: str, series: Series) -> Iterator[str]:
    """Yields the lines of one histogram; buckets are cumulative in the text, and alone in a Series."""
    name = family.name
    start = f"{name}_bucket{{{labels}," if labels else f"{name}_bucket{{"
    count: float = 0
    for end, in_bucket in zip(_BUCKET_ENDS[name], series[:-1], strict=True):
        count += in_bucket
        yield f"{start}{end}{count}\n"
    braces = f"{{{labels}}}" if labels else ""
    yield f"{name}_sum{braces} {_number(series[-1])}\n{name}_count{braces} {count}\n"


def _label_text(family: Family, values: tuple[str, ...]) -> str:
    return ",".join(
        f'{label}="{value.translate(_ESCAPES)}"'
        for label, value in zip(family.labels, values, strict=True)
    )


def _number(value: float) -> str:
    return "+Inf" if value == math.inf else repr(value)


_BUCKET_ENDS = {
    family.name: tuple(
        f'le="{_number(float(bound_s))}"}} ' for bound_s in (*family.buckets_s, math.inf)
    )
    for family in FAMILIES
    if family.kind is Kind.HISTOGRAM
}
