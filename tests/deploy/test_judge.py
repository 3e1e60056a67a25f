"""Tests that the judge of rendered objects is strict: what it lets pass means something."""

import copy

import jsonschema
import kubernetes_validate
import pytest

from tests.deploy.judge import judge
from tests.deploy.matrix import MATRIX
from tests.deploy.rendering import MONITORING_KINDS, chart


def put(item, path, value):
    *parents, last = path
    inner = item
    for step in parents:
        inner = inner[step]
    inner[last] = value


CONTAINER = ("spec", "template", "spec", "containers", 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "replica"), 2),
        (("spec", "replicas"), "two"),
        ((*CONTAINER, "readinessprobe"), {}),
        ((*CONTAINER, "ports", 0, "containerPort"), "http"),
        (("spec", "template", "spec", "terminationGracePeriodSeconds"), "45s"),
    ],
)
def test_a_deployment_with_a_wrong_field_is_refused(path, value):
    deployment = copy.deepcopy(chart(MATRIX["token-review"]).one("Deployment"))
    assert judge([deployment]) == 1

    put(deployment, path, value)

    with pytest.raises(kubernetes_validate.ValidationError):
        judge([deployment])


@pytest.mark.parametrize(
    ("name", "kind", "path", "value"),
    [
        ("behind a Gateway", "HTTPRoute", ("spec", "parentRef"), []),
        ("behind a Gateway", "HTTPRoute", ("spec", "rules", 0, "timeouts", "request"), "forever"),
        ("behind a Gateway", "HTTPRoute", ("spec", "rules", 0, "backendRefs", 0, "port"), "http"),
        ("watched by the operator", "ServiceMonitor", ("spec", "endpoints", 0, "intervall"), "30s"),
        (
            "watched by the operator",
            "PrometheusRule",
            ("spec", "groups", 0, "rules", 0, "for"),
            "5m",
        ),
        ("mtls with cert-manager", "Certificate", ("spec", "usages"), ["everything"]),
    ],
)
def test_a_custom_resource_with_a_wrong_field_is_refused(name, kind, path, value):
    item = copy.deepcopy(chart(MATRIX[name], kinds=MONITORING_KINDS).one(kind))
    assert judge([item]) == 1

    put(item, path, value)

    with pytest.raises(jsonschema.ValidationError):
        judge([item])


def test_an_object_of_an_unknown_kind_is_refused():
    with pytest.raises(kubernetes_validate.SchemaNotFoundError):
        judge([{"apiVersion": "example.com/v1", "kind": "Strange", "metadata": {"name": "a"}}])
