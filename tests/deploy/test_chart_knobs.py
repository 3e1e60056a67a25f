"""Tests that values which are handed on to Kubernetes arrive where they belong."""

import pytest

from tests.deploy.matrix import MATRIX
from tests.deploy.rendering import TOKEN_REVIEW, chart

COMPANY = MATRIX["company beside the router"]


def test_the_services_take_the_ip_families_and_the_one_for_clients_its_load_balancer():
    objects = chart(MATRIX["both families, by a load balancer of its own class"])
    service, admin = objects.of("Service")

    for item in (service, admin):
        assert item["spec"]["ipFamilyPolicy"] == "PreferDualStack"
        assert item["spec"]["ipFamilies"] == ["IPv6", "IPv4"]
    assert service["spec"]["loadBalancerClass"] == "service.k8s.aws/nlb"
    assert service["spec"]["ports"][0]["nodePort"] == 30080
    assert "nodePort" not in admin["spec"]["ports"][0]
    assert "loadBalancerClass" not in admin["spec"]


def test_nothing_is_said_of_families_classes_and_node_ports_by_default():
    for item in chart(TOKEN_REVIEW).of("Service"):
        assert not {"ipFamilyPolicy", "ipFamilies", "loadBalancerClass"} & set(item["spec"])
        assert not any("nodePort" in port for port in item["spec"]["ports"])


def test_a_node_port_of_the_tls_port_is_for_the_tls_port():
    values = {
        **MATRIX["tls from a Secret"],
        "service": {"type": "NodePort", "httpsNodePort": 30443},
    }
    ports = chart(values).one("Service", "sandbox-router-svc")["spec"]["ports"]

    assert [(port["name"], port.get("nodePort")) for port in ports] == [
        ("http", None),
        ("https", 30443),
    ]


def test_a_budget_says_how_many_must_stay_or_how_many_may_go_never_both():
    budget = chart(COMPANY).one("PodDisruptionBudget")["spec"]
    default = chart(TOKEN_REVIEW).one("PodDisruptionBudget")["spec"]

    assert (budget["minAvailable"], "maxUnavailable" in budget) == ("50%", False)
    assert (default["maxUnavailable"], "minAvailable" in default) == (1, False)


def test_containers_annotations_and_dns_settings_reach_the_pod():
    objects = chart(COMPANY)
    pod = objects.pod()

    assert [container["name"] for container in pod["containers"]] == ["router", "sidecar"]
    assert [container["name"] for container in pod["initContainers"]] == ["first"]
    assert pod["dnsPolicy"] == "ClusterFirst"
    assert pod["dnsConfig"] == {"options": [{"name": "ndots", "value": "1"}]}
    annotations = objects.one("Deployment")["metadata"]["annotations"]
    assert annotations == {"reloader.stakater.com/auto": "true"}


def test_more_objects_are_rendered_from_yaml_and_from_text():
    objects = chart(COMPANY)

    assert objects.one("ConfigMap", "more")["data"] == {"service": "sandbox-router-svc"}
    assert objects.one("ConfigMap", "more")["metadata"]["namespace"] == "agent-sandbox-system"
    assert objects.one("ConfigMap", "text")["data"] == {"release": "sandbox-router"}


def test_names_are_asked_for_where_dns_pods_listen_openshifts_too():
    def ports(values):
        rules = chart(values).one("NetworkPolicy")["spec"]["egress"]
        return {
            (port["port"], port["protocol"]) for port in rules[0]["ports"] if "to" not in rules[0]
        }

    assert ports(TOKEN_REVIEW) == {(53, "UDP"), (53, "TCP"), (5353, "UDP"), (5353, "TCP")}
    assert ports(MATRIX["DNS on one port, no test"]) == {(53, "UDP"), (53, "TCP")}


# --- workers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "workers"),
    [
        ({"requests": {"cpu": "500m"}}, 1),
        ({"requests": {"cpu": "1500m"}}, 2),
        ({"requests": {"cpu": 2}}, 2),
        ({"requests": {"cpu": "2.5"}}, 3),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}, "auto"),
    ],
)
def test_auto_workers_go_by_the_limit_or_else_by_the_request_never_by_the_node(resources, workers):
    values = {"config": {**TOKEN_REVIEW["config"], "workers": "auto"}, "resources": resources}

    assert chart(values).config()["workers"] == workers


def test_a_number_of_workers_is_the_users_business():
    values = {"config": {**TOKEN_REVIEW["config"], "workers": 3}}

    assert chart(values).config()["workers"] == 3
