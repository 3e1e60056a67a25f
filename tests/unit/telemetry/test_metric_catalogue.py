from pathlib import Path

import pytest

from router.proxy.request import UPSTREAM_ERRORS
from router.telemetry.metric_catalogue import BY_NAME, FAMILIES, markdown_table
from router.telemetry.metric_family import Kind
from router.telemetry.metric_labels import OTHER

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"

# Label for label what the contract and the dashboards of earlier routers name.
CONTRACT = {
    "sandbox_router_requests_total": ("method", "code", "sandbox_namespace"),
    "sandbox_router_request_duration_seconds": ("method", "code", "sandbox_namespace"),
    "sandbox_router_inflight_requests": (),
    "sandbox_router_upstream_errors_total": ("sandbox_namespace", "reason"),
    "sandbox_router_upstream_retries_total": (),
    "sandbox_router_cache_invalidations_total": (),
    "sandbox_router_authz_decisions_total": ("sandbox_namespace", "decision"),
    "sandbox_router_cert_reloads_total": ("outcome",),
}


@pytest.mark.parametrize(("name", "labels"), CONTRACT.items())
def test_the_contracts_metrics_keep_their_names_and_labels(name, labels):
    assert BY_NAME[name].labels == labels


def test_the_page_about_metrics_is_current():
    assert markdown_table() in PAGE.read_text(), (
        "docs/metrics.md is old: replace its table with what `python -m router.telemetry.metric_catalogue` prints"
    )


def test_no_two_families_share_a_name():
    assert len(BY_NAME) == len(FAMILIES)


def test_no_label_could_ever_name_a_sandbox():
    labels = {label for family in FAMILIES for label in family.labels}

    assert labels <= {
        *("method", "code", "sandbox_namespace", "reason", "decision", "outcome", "direction"),
        *("state", "event", "resource", "file", "mode", "version", "python", "form"),
    }


def test_names_end_as_prometheus_wants_them():
    for family in FAMILIES:
        if family.kind is Kind.COUNTER:
            assert family.name.endswith("_total")
        if family.kind is Kind.HISTOGRAM:
            assert family.name.endswith("_seconds")
            assert family.buckets_s == tuple(sorted(set(family.buckets_s)))


def test_every_label_has_its_set_of_values():
    assert all(len(family.labels) == len(family.values) for family in FAMILIES if family.labels)


def test_every_upstream_error_is_in_the_closed_set():
    family = BY_NAME["sandbox_router_upstream_errors_total"]

    assert {family.closed(1, reason) for reason in UPSTREAM_ERRORS} == set(UPSTREAM_ERRORS)


def test_a_value_outside_its_closed_set_counts_as_other():
    assert BY_NAME["sandbox_router_watch_restarts_total"].closed(0, "secrets") == OTHER


def test_an_open_set_takes_any_value():
    assert BY_NAME["sandbox_router_requests_total"].closed(2, "team-a") == "team-a"


def test_zero_series_exist_only_where_every_value_is_known_beforehand():
    assert list(BY_NAME["sandbox_router_cert_reloads_total"].zero_series()) == [
        ("success",),
        ("failure",),
    ]
    assert list(BY_NAME["sandbox_router_upstream_retries_total"].zero_series()) == [()]
    assert list(BY_NAME["sandbox_router_requests_total"].zero_series()) == []
