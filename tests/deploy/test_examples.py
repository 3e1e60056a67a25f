"""Tests that the examples for fronts are valid, lead to our Service, and that our limits and theirs fit together."""

import re

import pytest
import yaml

from router.settings.table import TABLE
from tests.deploy.judge import judge
from tests.deploy.matrix import MATRIX
from tests.deploy.rendering import DEPLOY, NAMESPACE, TOKEN_REVIEW, chart, parsed

EXAMPLES = DEPLOY / "examples"
MANIFESTS = (
    "envoy-gateway/gateway.yaml",
    "gke/gateway.yaml",
    "ingress-nginx/ingress.yaml",
    "traefik/ingressroute.yaml",
)

each = pytest.mark.parametrize("file", MANIFESTS)


def example(file):
    return parsed((EXAMPLES / file).read_text())


@each
def test_an_example_is_valid(file):
    assert judge(example(file).items) >= 1


@each
def test_an_example_leads_to_our_service_and_port_in_our_namespace(file):
    service = chart(TOKEN_REVIEW).one("Service", "sandbox-router-svc")
    (port,) = service["spec"]["ports"]
    text = (EXAMPLES / file).read_text()

    assert {item["metadata"]["namespace"] for item in example(file).items} == {NAMESPACE}
    assert "name: sandbox-router-svc" in text
    assert f"port: {port['port']}" in text or f"name: {port['name']}" in text


@each
def test_policies_hang_on_objects_of_the_same_example_or_on_our_service(file):
    objects = example(file)
    there = {(item["kind"], item["metadata"]["name"]) for item in objects.items}
    there.add(("Service", "sandbox-router-svc"))
    for item in objects.items:
        spec = item["spec"]
        single = [spec["targetRef"]] if "targetRef" in spec else []
        for target in spec.get("targetRefs", single):
            assert (target["kind"], target["name"]) in there
        for parent in spec.get("parentRefs", ()):
            assert ("Gateway", parent["name"]) in there


def test_the_nginx_example_is_what_the_chart_makes():
    mine = example("ingress-nginx/ingress.yaml").one("Ingress")["metadata"]["annotations"]
    values = {
        **MATRIX["behind nginx"],
        "ingress": {**MATRIX["behind nginx"]["ingress"], "annotations": {}},
    }

    assert chart(values).one("Ingress")["metadata"]["annotations"] == mine


def test_every_front_closes_idle_connections_before_the_router_does():
    ours_s = seconds(TABLE["keepalive-timeout"].default)
    envoy = yaml.safe_load((EXAMPLES / "envoy/envoy.yaml").read_text())
    (cluster,) = envoy["static_resources"]["clusters"]
    (options,) = cluster["typed_extension_protocol_options"].values()
    traefik = yaml.safe_load((EXAMPLES / "traefik/dynamic.yaml").read_text())
    (transport,) = traefik["http"]["serversTransports"].values()
    policy = example("envoy-gateway/gateway.yaml").one("BackendTrafficPolicy")["spec"]["timeout"][
        "http"
    ]
    nginx = (EXAMPLES / "nginx/nginx.conf").read_text()
    haproxy = (EXAMPLES / "haproxy/haproxy.cfg").read_text()
    caddy = (EXAMPLES / "caddy/Caddyfile").read_text()

    for theirs in (
        options["common_http_protocol_options"]["idle_timeout"],
        transport["forwardingTimeouts"]["idleConnTimeout"],
        policy["connectionIdleTimeout"],
        example("traefik/ingressroute.yaml").one("ServersTransport")["spec"]["forwardingTimeouts"][
            "idleConnTimeout"
        ],
        nginx.partition("keepalive_timeout ")[2].partition(";")[0],
        haproxy.partition("pool-purge-delay ")[2].partition("\n")[0],
        caddy.partition("keepalive ")[2].partition("\n")[0],
    ):
        assert seconds(theirs) < ours_s


def test_the_load_balancer_of_gke_outlives_our_longest_tunnel_and_drains_as_long_as_we_do():
    policy = example("gke/gateway.yaml").one("GCPBackendPolicy")["spec"]["default"]
    drain_s = seconds(TABLE["drain-delay"].default) + seconds(TABLE["shutdown-timeout"].default)

    assert policy["timeoutSec"] >= seconds(TABLE["tunnel-max-lifetime"].default)
    assert policy["connectionDraining"]["drainingTimeoutSec"] >= drain_s


def seconds(text: str) -> float:
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def test_the_health_check_of_haproxy_notices_a_leaving_router_within_its_drain():
    (line,) = re.findall(
        r"check inter (\d+s) fall (\d+)", (EXAMPLES / "haproxy/haproxy.cfg").read_text()
    )

    assert seconds(line[0]) * int(line[1]) < seconds(TABLE["drain-delay"].default)
