import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from router.telemetry.exposition import content_type_for, render
from router.telemetry.metric_catalogue import BY_NAME
from router.telemetry.metric_family import Kind
from router.telemetry.metrics import Metrics
from router.telemetry.process_metrics import process_snapshot
from router.telemetry.snapshot import FORGOTTEN, merge

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
PARSERS = {OPENMETRICS: parse_openmetrics, TEXT: parse_text}


@pytest.fixture
def snapshot(make_outcome):
    metrics = Metrics(version="1")
    metrics.read_at_scrape("sandbox_router_index_age_seconds", lambda: 1e-07)
    for number in range(30):
        metrics.counters.inflight_requests += 1
        metrics.counters.request_finished(
            make_outcome(
                namespace=f"ns-{number % 3}",
                total_s=number / 7,
                connect_s=number / 1000,
                upstream_error="reset",
            )
        )
    return merge([metrics.snapshot(), process_snapshot()])


def samples(snapshot, content_type):
    text = render(snapshot, content_type).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in PARSERS[content_type](text)
        for sample in family.samples
    }


@pytest.mark.parametrize("content_type", PARSERS)
def test_prometheus_own_parsers_read_back_every_number(snapshot, content_type):
    found = samples(snapshot, content_type)

    for name, rows in snapshot.items():
        family = BY_NAME[name]
        for values, series in rows:
            labels = tuple(sorted(zip(family.labels, values, strict=True)))
            if family.kind is Kind.HISTOGRAM:
                assert found[f"{name}_count", labels] == sum(series[:-1])
                assert found[f"{name}_sum", labels] == series[-1]
            else:
                assert found[name, labels] == series[0]


def test_a_namespace_that_a_process_has_forgotten_is_not_shown(snapshot):
    text = render({**snapshot, FORGOTTEN: [(("ns-1",), [])]}, TEXT).decode()

    assert 'sandbox_namespace="ns-1"' in render(snapshot, TEXT).decode()
    assert 'sandbox_namespace="ns-1"' not in text
    assert 'sandbox_namespace="ns-2"' in text
    assert FORGOTTEN not in text


@pytest.mark.parametrize("content_type", PARSERS)
def test_buckets_are_cumulative_and_end_at_infinity(snapshot, content_type):
    found = samples(snapshot, content_type)

    name = "sandbox_router_connect_duration_seconds"
    buckets = [
        (float(dict(labels)["le"]), value)
        for (sample, labels), value in found.items()
        if sample == f"{name}_bucket" and ("outcome", "connected") in labels
    ]
    assert [bound for bound, _ in buckets] == [*BY_NAME[name].buckets_s, float("inf")]
    assert [value for _, value in buckets] == [
        sum(number / 1000 <= bound for number in range(30)) for bound, _ in buckets
    ]


@pytest.mark.parametrize("content_type", PARSERS)
def test_every_family_has_its_type_and_help(snapshot, content_type):
    text = render(snapshot, content_type).decode()

    for family in PARSERS[content_type](text):
        entry = BY_NAME.get(family.name) or BY_NAME[f"{family.name}_total"]
        assert (family.type, family.documentation) == (entry.kind.value, entry.help)


@pytest.mark.parametrize("content_type", PARSERS)
def test_a_label_value_cannot_break_out_of_its_quotes(content_type):
    hostile = 'a"} 1\nsandbox_router_fake_total 9\\'
    snapshot = {"sandbox_router_build_info": [((hostile, "3", "pure"), [1])]}

    found = samples(snapshot, content_type)

    assert found == {
        ("sandbox_router_build_info", (("form", "pure"), ("python", "3"), ("version", hostile))): 1,
    }


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain;version=0.0.4", TEXT),
        ("application/openmetrics-text; version=1.0.0, text/plain;q=0.5", OPENMETRICS),
        ("text/plain;q=0.5, Application/OpenMetrics-Text;q=0.9", OPENMETRICS),
        ("application/openmetrics-textual", TEXT),
        ("\x00,,;;", TEXT),
    ],
)
def test_openmetrics_is_for_those_who_ask_for_it(accept, content_type):
    assert content_type_for(accept) == content_type


def test_an_empty_snapshot_is_a_valid_text():
    assert render({}, TEXT) == b""
    assert list(parse_openmetrics(render({}, OPENMETRICS).decode())) == []
