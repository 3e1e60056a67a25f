"""Tests that several routers, and parents that bring the chart along, don't get into each other's way."""

import json
import shutil

import pytest
import yaml

from tests.deploy.judge import judge
from tests.deploy.matrix import MATRIX
from tests.deploy.rendering import CHART, NAMESPACE, TOKEN_REVIEW, chart, found, parsed, run

TEAMS = MATRIX["roles in listed namespaces"]


def names(objects):
    return {
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        for item in objects.items
    }


@pytest.mark.parametrize("values", [TOKEN_REVIEW, TEAMS], ids=["cluster", "teams"])
def test_routers_of_two_namespaces_share_no_object_not_even_in_their_teams(values):
    one, other = (names(chart(values, namespace=namespace)) for namespace in (NAMESPACE, "staging"))

    assert one.isdisjoint(other)


@pytest.mark.parametrize("override", ["nameOverride", "fullnameOverride"])
def test_two_routers_in_one_namespace_share_nothing_but_a_contracts_label(override):
    blue, green = (
        chart({**TEAMS, override: name, "service": {"name": f"{name}-svc"}}, release=name)
        for name in ("blue", "green")
    )

    assert judge([*blue.items, *green.items])
    assert names(blue).isdisjoint(names(green))
    assert not selects(blue, green)
    assert not selects(green, blue)


def selects(one, other) -> bool:
    """Returns whether anything of `one` would take the pods of `other` for its own."""
    pods = [other.one("Deployment")["spec"]["template"]["metadata"]["labels"].items()]
    pods += [pod["metadata"]["labels"].items() for pod in other.of("Pod")]
    selectors = [one.one("Deployment")["spec"]["selector"]["matchLabels"]]
    selectors += [service["spec"]["selector"] for service in one.of("Service")]
    selectors += [item["spec"]["podSelector"]["matchLabels"] for item in one.of("NetworkPolicy")]
    selectors += [item["spec"]["selector"]["matchLabels"] for item in one.of("PodDisruptionBudget")]
    return any(selector.items() <= labels for selector in selectors for labels in pods)


def test_a_role_in_a_teams_namespace_is_bound_under_its_own_name():
    objects = chart(TEAMS)
    roles = {
        (role["metadata"]["namespace"], role["metadata"]["name"]) for role in objects.of("Role")
    }

    assert roles == {
        (team, f"{NAMESPACE}:sandbox-router-discovery") for team in ("team-a", "team-b")
    }
    for binding in objects.of("RoleBinding"):
        assert (binding["metadata"]["namespace"], binding["roleRef"]["name"]) in roles


def test_the_selector_of_a_first_release_stays_as_it_was_for_it_can_not_change():
    assert chart(TOKEN_REVIEW).one("Deployment")["spec"]["selector"]["matchLabels"] == {
        "app": "sandbox-router",
        "app.kubernetes.io/instance": "sandbox-router",
    }


def test_common_labels_are_on_every_object_and_pod():
    objects = chart(MATRIX["company beside the router"])

    for item in objects.items:
        if item["metadata"]["name"] not in ("more", "text"):
            assert item["metadata"]["labels"]["cost-center"] == "platform", item["metadata"]
    template = objects.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert template["cost-center"] == "platform"


# --- as a part of a parent chart ------------------------------------------------------------


def parent(folder, values, dependencies):
    """Returns what a chart with these dependencies on ours renders."""
    top = folder / "platform"
    for entry in dependencies:
        shutil.copytree(CHART, top / "charts" / "router", dirs_exist_ok=True)
        entry |= {"name": "router", "version": "0.1.0"}
    (top / "Chart.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v2",
                "name": "platform",
                "version": "1.0.0",
                "dependencies": dependencies,
            }
        )
    )
    command = [found("helm"), "template", "platform", str(top), "--namespace", NAMESPACE]
    return parsed(run([*command, "--values", "-"], json.dumps(values)))


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(
    "condition", [{"condition": "router.enabled"}, {}], ids=["condition", "no condition"]
)
def test_a_parent_switches_the_router_by_enabled(tmp_path, enabled, condition):
    values = {"global": {"region": "eu"}, "router": {**TOKEN_REVIEW, "enabled": enabled}}

    objects = parent(tmp_path, values, [dict(condition)])

    assert bool(objects.items) is enabled
    assert judge(objects.items) == len(objects.items)


def test_two_routers_of_one_parent_are_two(tmp_path):
    values = {
        name: {**TEAMS, "fullnameOverride": name, "service": {"name": f"{name}-svc"}}
        for name in ("inner", "outer")
    }

    objects = parent(tmp_path, values, [{"alias": "inner"}, {"alias": "outer"}])

    assert len(names(objects)) == len(objects.items)
    pods = {
        item["metadata"]["name"]: item["spec"]["template"]["metadata"]["labels"].items()
        for item in objects.of("Deployment")
    }
    for item in objects.of("Service"):
        taken = [
            name for name, labels in pods.items() if item["spec"]["selector"].items() <= labels
        ]
        assert taken == [item["metadata"]["name"].partition("-")[0]]
