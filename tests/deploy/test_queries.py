"""Tests that rules and dashboard ask only for metrics, labels and label values that the router has."""

import re
import subprocess

import pytest
import yaml

from router.suspender import metrics as suspender
from router.telemetry import metric_catalogue
from router.telemetry.metric_family import Kind
from tests.deploy import queries
from tests.deploy.queries import FROM_THE_SCRAPE, Query
from tests.deploy.rendering import DEPLOY, ROOT, found

BY_NAME = metric_catalogue.BY_NAME | {family.name: family for family in suspender.FAMILIES}
"""Of the router, and of the suspender beside it."""
QUERIES = [*queries.rule_queries(), *queries.dashboard_queries()]
RECORDED = {rule["record"] for rule in queries.rules() if "record" in rule}

OTHERS = {"kube_pod_status_ready": "kube-state-metrics"}
"""Metrics of other exporters, with the exporter's name."""


def family_of(series: str):
    """Returns the catalogue's family of a series, None for one that it doesn't have."""
    if series in BY_NAME:
        return None if BY_NAME[series].kind is Kind.HISTOGRAM else BY_NAME[series]
    base = re.sub(r"_(bucket|sum|count)$", "", series)
    family = BY_NAME.get(base)
    return family if family is not None and family.kind is Kind.HISTOGRAM else None


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.place)
def test_a_query_names_only_series_that_exist(query: Query):
    named = query.metrics()

    assert named
    unknown = [
        name
        for name in named
        if name not in RECORDED and name not in OTHERS and family_of(name) is None
    ]
    assert unknown == []


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.place)
def test_a_query_matches_only_labels_and_values_that_exist(query: Query):
    for metric, label, value in query.matchers():
        family = family_of(metric)
        if family is None or label in FROM_THE_SCRAPE:
            continue
        assert label in family.labels, f"{metric} has no label {label}"
        allowed = family.values[family.labels.index(label)]
        for word in filter(None, value.split("|")):
            assert allowed is None or word in allowed, f"{metric} never has {label}={word}"


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.place)
def test_a_query_groups_only_by_labels_that_its_series_have(query: Query):
    families = [family for family in map(family_of, query.metrics()) if family is not None]
    known = FROM_THE_SCRAPE.union(*(family.labels for family in families))

    assert query.grouped_labels() <= known


def test_counters_are_only_read_as_rates_and_gauges_never():
    over_time = re.compile(r"(?:rate|increase)\((\w+)")
    for query in QUERIES:
        for name in over_time.findall(query.text):
            assert family_of(name).kind is not Kind.GAUGE, (
                f"{query.place}: rate of the gauge {name}"
            )
        for name in query.metrics() - set(over_time.findall(query.text)):
            family = family_of(name)
            is_total = family is not None and family.kind is not Kind.GAUGE
            assert not is_total or query.place in ("namespace", "pod", "sandbox_namespace"), (
                f"{query.place} reads the counter {name} as it stands"
            )


def test_every_metric_of_the_router_has_a_place_on_the_dashboard():
    shown = {name for query in queries.dashboard_queries() for name in query.metrics()}

    missing = [
        name
        for name, family in BY_NAME.items()
        if name.startswith("sandbox_router")
        and name not in shown
        and (family.kind is not Kind.HISTOGRAM or f"{name}_bucket" not in shown)
    ]
    assert missing == []


def test_the_dashboards_queries_are_promql(tmp_path):
    promtool = found("promtool")
    rules = [
        {"record": f"panel:{index}", "expr": queries.without_variables(query.text)}
        for index, query in enumerate(queries.dashboard_queries())
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

    done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_the_dashboards_panels_fill_the_grid_without_overlapping():
    board = queries.dashboard()
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        for cell in (
            (column, line)
            for column in range(grid["x"], grid["x"] + grid["w"])
            for line in range(grid["y"], grid["y"] + grid["h"])
        ):
            assert cell not in taken, f"{panel['title']} lies on {taken[cell]}"
            taken[cell] = panel["title"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_the_rules_pass_the_strict_linter_of_prometheus():
    command = [found("promtool"), "check", "rules", "--lint=all", "--lint-fatal"]

    done = subprocess.run(
        [*command, str(DEPLOY / "prometheus" / "rules.yaml")], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr + done.stdout


def test_the_rules_fire_when_they_should_and_only_then():
    command = [found("promtool"), "test", "rules", "rules.test.yaml"]

    done = subprocess.run(command, cwd=DEPLOY / "prometheus", capture_output=True, text=True)

    assert done.returncode == 0, done.stderr + done.stdout


def test_every_alert_has_a_scenario_in_which_it_fires():
    text = (DEPLOY / "prometheus" / "rules.test.yaml").read_text()
    fired = set(re.findall(r'alertname="(\w+)"', text))

    assert fired == set(queries.alerts())


def test_every_alert_says_how_bad_it_is_and_where_to_read_what_to_do():
    operations = (ROOT / "docs" / "operations.md").read_text()
    for name, rule in queries.alerts().items():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        notes = rule["annotations"]
        assert notes["summary"].endswith(".")
        assert notes["description"].endswith(".") or "(target" in notes["description"]
        assert notes["runbook"] == f"docs/operations.md#{name.lower()}"
        assert f"\n### {name}\n" in operations
