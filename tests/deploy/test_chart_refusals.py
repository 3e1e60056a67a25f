"""Tests that values which would make a broken or an open router are refused, with a message that says what to do."""

import copy

import pytest

from tests.deploy.matrix import MATRIX
from tests.deploy.rendering import TOKEN_REVIEW, RefusedError, chart


def refusal(values) -> str:
    with pytest.raises(RefusedError) as caught:
        chart(values)
    return " ".join(str(caught.value).split())


def test_no_authentication_is_refused_as_the_router_refuses_to_start():
    for config in ({}, {"auth": []}):
        message = refusal({"config": config})
        assert "config.auth is not set: say who may call." in message
        assert "or {none} to let everybody in on purpose" in message


def test_an_unset_auth_is_refused_by_text_too():
    assert "at '/config/auth'" in refusal({"config": {"auth": ""}})


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        (
            "config.proxy-timout",
            "180s",
            "at '/config': additional properties 'proxy-timout' not allowed",
        ),
        ("replicas", 3, "additional properties 'replicas' not allowed"),
        ("config.http-bind", ":80", "at '/config': additional properties 'http-bind' not allowed"),
        ("config.static-token-file", "/t", "additional properties 'static-token-file' not allowed"),
        ("config.static-token", "secret", "additional properties 'static-token' not allowed"),
        ("config.auth", ["token"], "at '/config/auth"),
        ("config.proxy-timeout", "3 minutes", "at '/config/proxy-timeout'"),
        ("config.proxy-timeout", -1, "at '/config/proxy-timeout'"),
        ("config.default-port", 70000, "at '/config/default-port'"),
        ("config.mtls", "maybe", "at '/config/mtls'"),
        ("config.discovery", "consul", "at '/config/discovery'"),
        ("tls.enabled", "yes", "at '/tls/enabled': got string, want boolean"),
        ("image.digest", "sha256:abc", "at '/image/digest'"),
        ("image.pullPolicy", "Sometimes", "at '/image/pullPolicy'"),
        ("service.type", "ExternalName", "at '/service/type'"),
        ("metrics.serviceMonitor.enabled", "perhaps", "at '/metrics/serviceMonitor/enabled'"),
        ("podAnnotations", {"a": 1}, "at '/podAnnotations/a': got number, want string"),
        ("networkPolicy.sandboxPorts", [0], "at '/networkPolicy/sandboxPorts/0'"),
        ("gateway.requestTimeout", "forever", "at '/gateway/requestTimeout'"),
        ("ingress.controller", "haproxy", "at '/ingress/controller'"),
    ],
)
def test_values_of_another_shape_are_refused_by_the_schema(path, value, where):
    message = refusal(changed(TOKEN_REVIEW, path, value))

    assert "values don't meet the specifications of the schema" in message
    assert where in message


ONE = {**TOKEN_REVIEW, "replicaCount": 1}
STATIC = MATRIX["static"]
TLS = MATRIX["tls from a Secret"]
MTLS = MATRIX["mtls with cert-manager"]
GATEWAY = MATRIX["behind a Gateway that speaks TLS inside"]


@pytest.mark.parametrize(
    ("values", "path", "value", "says"),
    [
        (
            TOKEN_REVIEW,
            "config.auth",
            ["none", "static"],
            "none lets everybody in, so it must stand alone",
        ),
        (TOKEN_REVIEW, "config.auth", ["static"], "set files.staticToken.secret"),
        (TOKEN_REVIEW, "config.auth", ["jwt"], "set files.jwtSecret.secret, files.jwks.secret"),
        (TOKEN_REVIEW, "config.auth", ["mtls"], "no client certificate is ever seen"),
        (TOKEN_REVIEW, "config.mtls", "required", "config.mtls is required: set tls.enabled"),
        (TLS, "config.mtls", "optional", "config.mtls is optional: set tls.clientCA"),
        (TLS, "tls.clientCA", {"secret": "ca"}, "tls.clientCA is set, but config.mtls is off"),
        (TLS, "tls.secret", "", "tls.enabled needs tls.secret"),
        (MTLS, "tls.certManager.issuerRef.name", "", "needs tls.certManager.issuerRef.name"),
        (STATIC, "config.discovery", "file", "config.discovery is file: set files.sandboxes"),
        (STATIC, "config.trust-pod-ip-header", True, "is for config.discovery dns only"),
        (
            MATRIX["sandboxes from a file"],
            "networkPolicy.extraEgress",
            [],
            "set networkPolicy.extraEgress",
        ),
        (
            TOKEN_REVIEW,
            "terminationGracePeriodSeconds",
            35,
            "config.drain-delay + config.shutdown-timeout take 35 s",
        ),
        (TOKEN_REVIEW, "gateway.enabled", True, "gateway.enabled needs gateway.parentRefs"),
        (GATEWAY, "tls.enabled", False, "gateway.backendTLS.enabled needs tls.enabled"),
        (GATEWAY, "gateway.backendTLS.caConfigMap", "", "needs gateway.backendTLS.caConfigMap"),
        (TOKEN_REVIEW, "ingress.enabled", True, "ingress.enabled needs ingress.hosts"),
        (
            MATRIX["scaled by cpu and by requests"],
            "resources",
            {"requests": {"memory": "256Mi", "cpu": None}},
            "is a share of the CPU request, and there is none: set resources.requests.cpu",
        ),
        (
            MATRIX["scaled by cpu and by requests"],
            "extraContainers",
            [{"name": "side", "image": "side:1"}],
            'give extraContainers "side" resources.requests.cpu',
        ),
        (
            MATRIX["scaled by cpu and by requests"],
            "autoscaling.minReplicas",
            20,
            "autoscaling.minReplicas (20) is more than autoscaling.maxReplicas (10)",
        ),
        (ONE, "podDisruptionBudget.maxUnavailable", 0, "is 0 with one replica"),
        (ONE, "podDisruptionBudget.maxUnavailable", "0%", "is 0 with one replica"),
        (ONE, "podDisruptionBudget.minAvailable", 1, "minAvailable is 1 with 1 replicas"),
        (ONE, "podDisruptionBudget.minAvailable", "10%", "minAvailable is 10% with 1 replicas"),
        (
            {**TOKEN_REVIEW, "autoscaling": {"enabled": True, "minReplicas": 1}},
            "podDisruptionBudget.maxUnavailable",
            0,
            "is 0 with one replica",
        ),
        (TOKEN_REVIEW, "podDisruptionBudget.minAvailable", 2, "minAvailable is 2 with 2 replicas"),
        (TOKEN_REVIEW, "podDisruptionBudget.minAvailable", "100%", "with 2 replicas"),
        (
            TOKEN_REVIEW,
            "strategy.rollingUpdate",
            {"maxUnavailable": 0, "maxSurge": "0%"},
            "no rollout could ever begin",
        ),
        (
            {"config": {**TOKEN_REVIEW["config"], "workers": "auto"}},
            "resources.requests.cpu",
            None,
            "config.workers is auto, but the container has neither a CPU request nor a limit",
        ),
        (TOKEN_REVIEW, "commonLabels", {"app": "mine"}, "commonLabels sets app, which the chart"),
        (
            TOKEN_REVIEW,
            "podLabels",
            {"app.kubernetes.io/instance": "x"},
            "podLabels sets app.kubernetes.io/instance",
        ),
        (TOKEN_REVIEW, "service.nodePort", 30080, "but service.type is ClusterIP"),
        (TOKEN_REVIEW, "service.loadBalancerClass", "x", "service.type is not LoadBalancer"),
        (TOKEN_REVIEW, "dnsPolicy", "None", "dnsPolicy is None: set dnsConfig.nameservers"),
        (
            MATRIX["scaled by cpu and by requests"],
            "autoscaling",
            {"enabled": True, "targetCPUUtilizationPercentage": 0, "targetInflightRequests": 0},
            "needs autoscaling.targetCPUUtilizationPercentage or autoscaling.targetInflightRequests",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused_with_what_to_set(values, path, value, says):
    chart(values)  # as it was, it renders

    assert says in refusal(changed(values, path, value))


@pytest.mark.parametrize(
    ("values", "path", "value"),
    [
        (ONE, "podDisruptionBudget.maxUnavailable", 1),
        (ONE, "podDisruptionBudget.maxUnavailable", "10%"),  # rounded up, so one may go
        (ONE, "podDisruptionBudget", {"enabled": False, "maxUnavailable": 0}),
        (TOKEN_REVIEW, "podDisruptionBudget.maxUnavailable", 0),
        (TOKEN_REVIEW, "podDisruptionBudget.minAvailable", 1),
        (TOKEN_REVIEW, "strategy", {"type": "Recreate", "rollingUpdate": None}),
        (MATRIX["scaled by cpu and by requests"], "resources", {"limits": {"cpu": "2"}}),
    ],
)
def test_values_that_only_look_like_a_mistake_are_taken(values, path, value):
    assert chart(changed(values, path, value)).one("Deployment")


def test_an_off_that_yaml_reads_as_false_is_understood():
    assert chart(changed(TOKEN_REVIEW, "config.mtls", False)).config()["mtls"] is False


def changed(values, path: str, value):
    """Returns a copy of the values with one of them changed."""
    result = copy.deepcopy(values)
    *parents, last = path.split(".")
    inner = result
    for name in parents:
        inner = inner.setdefault(name, {})
    inner[last] = value
    return result
