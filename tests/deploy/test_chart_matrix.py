"""Tests that every way of running the router renders, by the real Helm, to objects that Kubernetes accepts."""

import json

import pytest
import yaml

from tests.deploy.judge import OLDEST_KUBERNETES_VERSION, judge
from tests.deploy.matrix import MATRIX
from tests.deploy.rendering import CHART, DEPLOY, MONITORING_KINDS, TOKEN_REVIEW, chart, found, run


@pytest.mark.parametrize("name", MATRIX)
def test_each_way_renders_to_valid_objects(name):
    objects = chart(MATRIX[name])

    assert judge(objects.items) >= 4


@pytest.mark.parametrize("name", MATRIX)
def test_each_way_is_valid_for_the_oldest_kubernetes_that_the_chart_takes(name):
    oldest = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"]
    assert oldest == f">={OLDEST_KUBERNETES_VERSION}.0-0"

    objects = chart(MATRIX[name], kubernetes=f"{OLDEST_KUBERNETES_VERSION}.0")
    assert judge(objects.items, OLDEST_KUBERNETES_VERSION) >= 4


@pytest.mark.parametrize("name", MATRIX)
def test_each_way_passes_the_strict_linter(name, tmp_path):
    values = tmp_path / "values.json"
    values.write_text(json.dumps(MATRIX[name]))

    shown = run([found("helm"), "lint", "--strict", str(CHART), "--values", str(values)])

    assert "1 chart(s) linted, 0 chart(s) failed" in shown


def test_no_two_objects_of_one_rendering_have_the_same_name():
    for values in MATRIX.values():
        items = chart(values).items
        names = [
            (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
            for item in items
        ]
        assert len(names) == len(set(names))


def test_two_installations_share_no_object():
    one, other = (
        {
            (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
            for item in chart(TOKEN_REVIEW, namespace=namespace).items
        }
        for namespace in ("agent-sandbox-system", "staging")
    )

    assert one.isdisjoint(other)


def test_monitoring_objects_come_by_themselves_where_the_cluster_has_their_kinds():
    without, with_kinds = chart(TOKEN_REVIEW), chart(TOKEN_REVIEW, kinds=MONITORING_KINDS)

    assert not without.of("ServiceMonitor") + without.of("PrometheusRule")
    assert judge(with_kinds.items) == len(without.items) + 2
    assert with_kinds.one("ServiceMonitor")
    assert with_kinds.one("PrometheusRule")


def test_monitoring_objects_can_be_refused_where_the_cluster_has_their_kinds():
    off = {"serviceMonitor": {"enabled": False}, "prometheusRule": {"enabled": False}}

    objects = chart({**TOKEN_REVIEW, "metrics": off}, kinds=MONITORING_KINDS)

    assert not objects.of("ServiceMonitor") + objects.of("PrometheusRule")


@pytest.mark.parametrize(
    ("kinds", "version"),
    [
        ((), "v1"),
        (("gateway.networking.k8s.io/v1alpha3/BackendTLSPolicy",), "v1alpha3"),
        (
            (
                "gateway.networking.k8s.io/v1/BackendTLSPolicy",
                "gateway.networking.k8s.io/v1alpha3/BackendTLSPolicy",
            ),
            "v1",
        ),
    ],
)
def test_the_tls_policy_takes_the_version_that_the_cluster_has(kinds, version):
    policy = chart(MATRIX["behind a Gateway that speaks TLS inside"], kinds=kinds).one(
        "BackendTLSPolicy"
    )

    assert policy["apiVersion"] == f"gateway.networking.k8s.io/{version}"


def test_the_operators_rules_are_those_of_the_file_with_the_waiting_room_of_the_settings():
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    small = {"config": {**TOKEN_REVIEW["config"], "waiting-room": 100}}

    default, fitted = (
        chart(values, kinds=MONITORING_KINDS).one("PrometheusRule")["spec"]
        for values in (TOKEN_REVIEW, small)
    )

    assert default == rules
    assert "sandbox_router_waiting_requests) > 80" in json.dumps(fitted)
    assert "> 819" not in json.dumps(fitted)


def test_the_charts_copies_are_the_files_of_deploy():
    for name, original in (("rules.yaml", "prometheus"), ("dashboard.json", "grafana")):
        copy = (CHART / "files" / name).read_bytes()
        assert copy == (DEPLOY / original / name).read_bytes()


def test_the_chart_packs_into_an_archive_with_everything_it_reads(tmp_path):
    shown = run([found("helm"), "package", str(CHART), "--destination", str(tmp_path)])

    (archive,) = tmp_path.glob("router-*.tgz")
    assert archive.name in shown
    listed = run(["tar", "-tzf", str(archive)])
    for file in (
        "values.schema.json",
        "files/rules.yaml",
        "files/dashboard.json",
        "templates/NOTES.txt",
    ):
        assert f"router/{file}" in listed
