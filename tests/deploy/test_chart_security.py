"""Tests that the chart's pods are hardened, and that the router may do and reach what it uses and no more."""

import pytest

from tests.deploy.matrix import MATRIX
from tests.deploy.rendering import NAMESPACE, TOKEN_REVIEW, chart

each = pytest.mark.parametrize("name", MATRIX)


@pytest.fixture
def objects(name):
    return chart(MATRIX[name])


@each
def test_pods_fit_the_restricted_profile_with_a_read_only_root(objects):
    pod, container = objects.pod(), objects.container()

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert pod["enableServiceLinks"] is False


DISCOVERY = {
    ("", ("pods",), ("list", "watch")),
    ("agents.x-k8s.io", ("sandboxes",), ("list", "watch")),
    ("extensions.agents.x-k8s.io", ("sandboxclaims",), ("list", "watch")),
}
TOKEN_REVIEWS = ("authentication.k8s.io", ("tokenreviews",), ("create",))
ACCESS_REVIEWS = ("authorization.k8s.io", ("subjectaccessreviews",), ("create",))


def granted(objects):
    """Returns (scope, api group, resources, verbs) of everything that is bound to the router's account."""
    account = objects.pod()["serviceAccountName"]
    objects = objects.of_the_router()
    roles = {
        (role["kind"], role["metadata"].get("namespace"), role["metadata"]["name"]): role["rules"]
        for kind in ("Role", "ClusterRole")
        for role in objects.of(kind)
    }
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        for binding in objects.of(kind):
            (subject,) = binding["subjects"]
            assert subject == {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
            scope = binding["metadata"].get("namespace")
            ref = binding["roleRef"]
            key = (ref["kind"], scope if ref["kind"] == "Role" else None, ref["name"])
            for rule in roles[key]:
                (group,) = rule["apiGroups"]
                yield scope, group, tuple(rule["resources"]), tuple(rule["verbs"])


@each
def test_the_router_may_do_exactly_what_its_settings_use(objects):
    config = objects.config()
    namespaces = config.get("namespaces") or []
    scopes = namespaces.split(",") if isinstance(namespaces, str) else namespaces
    expected = set()
    if config["discovery"] == "kubernetes":
        expected |= {(scope, *rule) for scope in scopes or [None] for rule in DISCOVERY}
    if "token-review" in config["auth"]:
        expected.add((None, *TOKEN_REVIEWS))
    if config.get("subject-access-review"):
        expected.add((None, *ACCESS_REVIEWS))

    assert set(granted(objects)) == expected


@each
def test_the_pod_has_a_token_only_when_it_talks_to_kubernetes(objects):
    assert objects.pod()["automountServiceAccountToken"] is bool(set(granted(objects)))
    assert objects.of_the_router().one("ServiceAccount")["automountServiceAccountToken"] is False


def test_the_role_for_callers_is_bound_to_nobody():
    objects = chart(MATRIX["roles and reviews"])
    role = objects.one("ClusterRole", f"{NAMESPACE}:sandbox-router-caller")

    assert role["rules"] == [
        {"apiGroups": ["agents.x-k8s.io"], "resources": ["sandboxes/proxy"], "verbs": ["connect"]}
    ]
    bound = {binding["roleRef"]["name"] for binding in objects.of("ClusterRoleBinding")}
    assert role["metadata"]["name"] not in bound


def test_by_default_the_admin_port_answers_monitoring_alone():
    policy = chart(TOKEN_REVIEW).one("NetworkPolicy")["spec"]
    (admin,) = [rule for rule in policy["ingress"] if rule["ports"][0]["port"] == 9090]

    assert admin["from"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    ]
    assert policy["policyTypes"] == ["Ingress", "Egress"]


def test_sandboxes_are_dialled_by_the_label_that_discovery_goes_by():
    policy = chart(TOKEN_REVIEW).one("NetworkPolicy")["spec"]
    peers = [peer for rule in policy["egress"] for peer in rule.get("to", ())]

    assert {
        "namespaceSelector": {},
        "podSelector": {
            "matchExpressions": [{"key": "agents.x-k8s.io/sandbox-name-hash", "operator": "Exists"}]
        },
    } in peers


def test_a_tight_network_names_gateways_ports_and_the_api_server():
    policy = chart(MATRIX["a tight network"]).one("NetworkPolicy")["spec"]
    proxied = next(rule for rule in policy["ingress"] if rule["ports"][0]["port"] == 8080)
    blocks = [
        peer["ipBlock"]
        for rule in policy["egress"]
        for peer in rule.get("to", ())
        if "ipBlock" in peer
    ]

    assert proxied["from"][0]["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "gateways"
    }
    assert blocks == [{"cidr": "10.96.0.1/32"}]
    assert {"port": 3000, "protocol": "TCP"} in policy["egress"][1]["ports"]
