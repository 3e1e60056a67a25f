"""Tests that the plain manifests render by the real kustomize, and say exactly what the chart says."""

import copy
import re

import pytest
import yaml

from tests.deploy.judge import judge
from tests.deploy.rendering import (
    DEPLOY,
    MONITORING_KINDS,
    NAMESPACE,
    TOKEN_REVIEW,
    chart,
    kustomize,
)

SAME_AS = {
    "base": TOKEN_REVIEW,
    "overlays/static-token": {
        "config": {"auth": ["static"]},
        "files": {"staticToken": {"secret": "sandbox-router-token"}},
    },
    "overlays/namespaced": {
        "config": {**TOKEN_REVIEW["config"], "namespaces": ["team-a", "team-b"]}
    },
    "overlays/wake": {"config": {**TOKEN_REVIEW["config"], "wake": "annotated"}},
    "overlays/suspend-idle": {**TOKEN_REVIEW, "suspendIdle": {"enabled": True}},
    "overlays/monitoring": {**TOKEN_REVIEW, "metrics": {"dashboard": {"enabled": True}}},
    "overlays/kind": {
        "config": {"auth": ["none"]},
        "replicaCount": 1,
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
    },
}
HELMS_OWN = ("helm.sh/chart", "app.kubernetes.io/managed-by", "checksum/config")
HASHED = re.compile(r"^sandbox-router-[a-z0-9]{10}$")

each = pytest.mark.parametrize("folder", SAME_AS)


def same_form(item):
    """Returns an object without what Helm and kustomize each add of their own, lists in one order."""
    item = copy.deepcopy(item)
    metadata = [item["metadata"]]
    if item["kind"] == "Deployment":
        template = item["spec"]["template"]
        metadata.append(template["metadata"])
        for volume in template["spec"].setdefault("volumes", []):
            if HASHED.match(volume.get("configMap", {}).get("name", "")):
                volume["configMap"]["name"] = "sandbox-router"
        template["spec"]["volumes"].sort(key=lambda volume: volume["name"])
        (container,) = template["spec"]["containers"]
        container.setdefault("volumeMounts", []).sort(key=lambda mount: mount["name"])
    for part in metadata:
        for where in ("labels", "annotations"):
            part[where] = {
                key: value for key, value in part.get(where, {}).items() if key not in HELMS_OWN
            }
    if item["kind"] == "ConfigMap":
        if HASHED.match(item["metadata"]["name"]):
            item["metadata"]["name"] = "sandbox-router"
        item["data"] = {
            name: yaml.safe_load(text) if name.endswith((".yaml", ".json")) else text
            for name, text in item["data"].items()
        }
    return item


def by_name(objects):
    return {
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]): item
        for item in map(same_form, objects.items)
    }


@each
def test_manifests_render_to_valid_objects(folder):
    objects = kustomize(DEPLOY / folder)

    assert judge(objects.items) >= 8


@each
def test_manifests_and_chart_say_the_same(folder):
    kinds = MONITORING_KINDS if folder.endswith("monitoring") else ()

    plain = by_name(kustomize(DEPLOY / folder))
    rendered = by_name(chart(SAME_AS[folder], kinds=kinds).without_hooks())

    assert set(plain) == set(rendered)
    for name, item in rendered.items():
        assert plain[name] == item, name


@each
def test_everything_that_has_a_namespace_is_in_the_routers_or_a_listed_one(folder):
    for item in kustomize(DEPLOY / folder).items:
        namespace = item["metadata"].get("namespace")
        if item["kind"].startswith(("Cluster", "ValidatingAdmission")):
            assert namespace is None
        else:
            assert namespace == NAMESPACE or folder.endswith("namespaced")


@each
def test_deleting_the_manifests_leaves_the_controllers_namespace_alone(folder):
    assert not kustomize(DEPLOY / folder).of("Namespace")


def test_a_changed_setting_rolls_the_pods_by_a_new_name():
    names = {
        folder: next(
            item["metadata"]["name"]
            for item in kustomize(DEPLOY / folder).of("ConfigMap")
            if "config.yaml" in item["data"]
        )
        for folder in ("base", "overlays/kind")
    }

    assert all(HASHED.match(name) for name in names.values())
    assert names["base"] != names["overlays/kind"]


def test_the_operators_rules_are_those_of_the_file():
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    wrapped = yaml.safe_load((DEPLOY / "prometheus" / "prometheusrule.yaml").read_text())

    assert wrapped["spec"] == rules
