"""Tests of what the chart brings for suspending: off unless asked for, with rights of its own that reach no further than it needs."""

from __future__ import annotations

import shlex

import pytest
from click.testing import CliRunner

from router.cli.commands import main
from router.suspender.options import Options
from tests.deploy.matrix import MATRIX
from tests.deploy.rendering import NAMESPACE, SUSPENDER, TOKEN_REVIEW, Objects, chart

ON = {**TOKEN_REVIEW, "suspendIdle": {"enabled": True}}
DRY = MATRIX["idle sandboxes of listed namespaces would be suspended"]
POLICY = "ValidatingAdmissionPolicy"


def rights(objects: Objects) -> set[tuple[str | None, str, str]]:
    """Returns (namespace, resource, verb) of everything that is bound to the suspender's account."""
    found = set()
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        for binding in objects.of(kind):
            (subject,) = binding["subjects"]
            if subject["name"] != SUSPENDER:
                continue
            ref = binding["roleRef"]
            (role,) = [
                role
                for role in objects.of(ref["kind"])
                if role["metadata"]["name"] == ref["name"]
                and role["metadata"].get("namespace") == binding["metadata"].get("namespace")
            ]
            found |= {
                (binding["metadata"].get("namespace"), resource, verb)
                for rule in role["rules"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return found


def test_it_is_off_by_default() -> None:
    objects = chart(TOKEN_REVIEW)

    assert SUSPENDER not in str(objects.items)
    assert objects.of(POLICY) == []


def test_its_account_may_do_what_it_does_and_nothing_more() -> None:
    assert rights(chart(ON)) == {
        *((None, "sandboxes", verb) for verb in ("get", "list", "watch", "patch")),
        (NAMESPACE, "endpointslices", "list"),
        *((NAMESPACE, "leases", verb) for verb in ("create", "get", "update")),
    }


def test_a_dry_run_may_change_nothing_and_listed_namespaces_need_roles_alone() -> None:
    assert rights(chart(DRY)) == {
        *(
            (namespace, "sandboxes", verb)
            for namespace in ("team-a", "team-b")
            for verb in ("get", "list", "watch")
        ),
        (NAMESPACE, "endpointslices", "list"),
    }


@pytest.mark.parametrize("values", [ON, DRY])
def test_its_command_is_one_that_the_program_takes(
    values: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Options] = []
    monkeypatch.setattr("router.suspender.run.run", lambda options, _: seen.append(options) or 0)
    (container,) = chart(values).one("Deployment", SUSPENDER)["spec"]["template"]["spec"][
        "containers"
    ]

    result = CliRunner().invoke(main, shlex.split(shlex.join(container["args"])))

    assert result.exit_code == 0, result.output
    (options,) = seen
    assert options.service is not None
    assert (options.lease_namespace, options.lease_name) == (NAMESPACE, SUSPENDER)
    assert options.is_dry_run is (values is DRY)
    assert options.namespaces == (("team-a", "team-b") if values is DRY else ())
    service = chart(values).one("Service", options.service.name)
    assert [port["name"] for port in service["spec"]["ports"]] == ["admin"]


def test_its_pod_is_as_hardened_as_the_routers_and_not_taken_for_one() -> None:
    objects = chart(ON)
    template = objects.one("Deployment", SUSPENDER)["spec"]["template"]
    (container,) = template["spec"]["containers"]

    assert template["spec"]["securityContext"] == objects.pod()["securityContext"]
    assert container["securityContext"] == objects.container()["securityContext"]
    labels = template["metadata"]["labels"].items()
    for service in objects.of("Service"):
        is_its_own = service["metadata"]["name"] == SUSPENDER
        assert (service["spec"]["selector"].items() <= labels) is is_its_own


def test_it_reaches_the_routers_admin_port_and_they_let_it_in() -> None:
    objects = chart(ON)
    labels = objects.one("Deployment", SUSPENDER)["spec"]["template"]["metadata"]["labels"]
    router = objects.of_the_router().one("Deployment")["spec"]["template"]["metadata"]["labels"]

    def peers(policy: str, way: str, ends: str) -> list[dict[str, str]]:
        rules = objects.one("NetworkPolicy", policy)["spec"][way]
        return [
            peer["podSelector"]["matchLabels"]
            for rule in rules
            if {"port": 9090, "protocol": "TCP"} in rule["ports"]
            for peer in rule.get(ends, ())
            if "podSelector" in peer
        ]

    assert any(
        wanted.items() <= labels.items() for wanted in peers("sandbox-router", "ingress", "from")
    )
    assert any(wanted.items() <= router.items() for wanted in peers(SUSPENDER, "egress", "to"))


def test_the_policy_holds_the_account_and_can_be_left_out() -> None:
    policy = chart(ON).one(POLICY)
    (condition,) = policy["spec"]["matchConditions"]

    assert f"system:serviceaccount:{NAMESPACE}:{SUSPENDER}" in condition["expression"]
    assert f'system:serviceaccount:{NAMESPACE}:sandbox-router"' not in condition["expression"]
    assert policy["spec"]["failurePolicy"] == "Fail"
    binding = chart(ON).one("ValidatingAdmissionPolicyBinding")
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert chart({**ON, "admissionPolicy": {"enabled": False}}).of(POLICY) == []


@pytest.mark.parametrize(("wake", "verbs"), [("all", "patch"), ("annotated", "patch"), ("off", "")])
def test_the_router_may_patch_only_when_requests_wake_and_is_held_to_running(
    wake: str, verbs: str
) -> None:
    objects = chart({"config": {**TOKEN_REVIEW["config"], "wake": wake}})
    role = objects.one("ClusterRole", f"{NAMESPACE}:sandbox-router-discovery")
    (rule,) = [rule for rule in role["rules"] if rule["resources"] == ["sandboxes"]]

    assert rule["verbs"] == (["get", "list", "watch", "patch"] if verbs else ["list", "watch"])
    policies = objects.of(POLICY)
    assert bool(policies) is bool(verbs)
    for policy in policies:
        assert f'"system:serviceaccount:{NAMESPACE}:sandbox-router":"Running"' in str(policy)
