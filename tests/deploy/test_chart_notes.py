"""Tests what Helm tells after an installation: where the router is, and what the operator should know about it."""

import json

import pytest

from tests.deploy.matrix import MATRIX
from tests.deploy.rendering import CHART, NAMESPACE, found, run


def notes(values, namespace=NAMESPACE) -> str:
    command = [found("helm"), "install", "sandbox-router", str(CHART), "--dry-run=client"]
    shown = run([*command, "--namespace", namespace, "--values", "-"], json.dumps(values))
    return shown.partition("\nNOTES:\n")[2]


def test_the_notes_say_where_the_router_is_and_how_to_try_it():
    text = notes(MATRIX["static"])

    assert f"is at sandbox-router-svc.{NAMESPACE}:8080 (authentication: static)" in text
    assert '-H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/' in text
    assert "WARNING" not in text
    assert "NOTE:" not in text


@pytest.mark.parametrize(
    ("name", "namespace", "says"),
    [
        ("nobody checked", NAMESPACE, "WARNING: authentication is off"),
        ("static", "elsewhere", "NOTE: sandboxes' managed NetworkPolicies admit only routers in"),
    ],
)
def test_the_notes_warn_of_an_open_door_and_of_a_namespace_that_policies_shut_out(
    name, namespace, says
):
    assert says in notes(MATRIX[name], namespace)


def test_the_notes_tell_how_to_test_the_release_and_only_where_it_can_be():
    assert f"helm -n {NAMESPACE} test sandbox-router" in notes(MATRIX["static"])
    assert "helm -n" not in notes(MATRIX["DNS on one port, no test"])


def test_the_notes_warn_of_a_budget_that_holds_up_node_drains():
    values = {**MATRIX["static"], "podDisruptionBudget": {"maxUnavailable": 0}}

    assert (
        "podDisruptionBudget.maxUnavailable is 0: node drains and cluster upgrades wait"
        in notes(values)
    )
