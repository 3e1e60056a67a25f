"""Tests that what the chart says fits the router, Kubernetes, and itself."""

import hashlib
import json
import re

import pytest
import yaml

from router.settings import Source, load
from router.settings.table import FILE_KEYS, PREFIX, TABLE
from tests.deploy.matrix import MATRIX
from tests.deploy.rendering import CHART, NAMESPACE, TOKEN_REVIEW, chart

MOUNTED = "/etc/sandbox-router"
SET_BY_THE_CHART = {
    *("http-bind", "https-bind", "extauthz-bind", "admin-bind", "kubeconfig"),
    *(key for key, row in TABLE.items() if row.kind.name == "path" and key != "kubeconfig"),
}

each = pytest.mark.parametrize("name", MATRIX)


@pytest.fixture
def objects(name):
    return chart(MATRIX[name]).of_the_router()


# --- the settings ---------------------------------------------------------------------------


@each
def test_the_router_accepts_the_rendered_settings(objects, tmp_path):
    config = objects.config()
    for key, value in config.items():
        if str(value).startswith(MOUNTED):
            file = tmp_path / key
            file.write_text("x" * 40)
            config[key] = str(file)
    settings_file = tmp_path / "config.yaml"
    settings_file.write_text(yaml.safe_dump(config))

    loaded = load(file=settings_file, in_cluster=True)

    assert {key for key, origin in loaded.origins.items() if origin.source is Source.FILE} == set(
        config
    )


@each
def test_every_environment_variable_is_a_setting_or_opentelemetrys(objects):
    variables = {row.variable for row in TABLE.values()} | {
        legacy for row in TABLE.values() for legacy in row.legacy
    }
    for entry in objects.container().get("env", ()):
        assert entry["name"] in variables or entry["name"].startswith("OTEL_")
        assert entry["name"].startswith((PREFIX, "OTEL_"))


def test_the_schema_offers_every_setting_but_those_that_the_chart_sets():
    schema = json.loads((CHART / "values.schema.json").read_text())

    offered = set(schema["properties"]["config"]["properties"])

    assert offered == set(FILE_KEYS) - SET_BY_THE_CHART


@pytest.mark.parametrize("key", sorted(set(FILE_KEYS) - SET_BY_THE_CHART - {"auth", "discovery"}))
def test_the_schema_takes_each_settings_default(key):
    default = TABLE[key].default
    values = {"config": {**TOKEN_REVIEW["config"], key: yaml.safe_load(default) if default else ""}}

    assert key in chart(values).config()


def test_big_numbers_reach_the_settings_as_plain_digits():
    text = chart(MATRIX["every knob of the pod"]).one("ConfigMap", "sandbox-router")["data"][
        "config.yaml"
    ]

    assert "max-body-bytes: 1073741824\n" in text


# --- files and mounts -----------------------------------------------------------------------


@each
def test_every_file_that_the_settings_name_lies_in_a_mounted_folder(objects):
    volumes = {volume["name"]: volume for volume in objects.pod()["volumes"]}
    folders = {mount["mountPath"]: mount for mount in objects.container()["volumeMounts"]}
    args = objects.container()["args"]
    paths = [str(value) for value in objects.config().values() if str(value).startswith(MOUNTED)]

    assert args[:2] == ["serve", "--config"]
    for path in [*paths, args[2]]:
        folder, _, file = path.rpartition("/")
        mount = folders[folder]
        assert mount["readOnly"] is True
        assert "subPath" not in mount, "a subPath mount never sees a rotated Secret"
        source = volumes[mount["name"]]
        own = {config_map["metadata"]["name"]: config_map for config_map in objects.of("ConfigMap")}
        if "configMap" in source and source["configMap"]["name"] in own:
            assert file in own[source["configMap"]["name"]]["data"]


@each
def test_every_volume_is_mounted_and_secrets_are_for_the_group_only(objects):
    pod = objects.pod()

    assert {volume["name"] for volume in pod["volumes"]} == {
        mount["name"] for mount in objects.container()["volumeMounts"]
    }
    for volume in pod["volumes"]:
        if "secret" in volume:
            assert volume["secret"]["defaultMode"] == 0o440
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]


def test_the_policy_and_the_sandboxes_said_inline_arrive_as_files():
    policy = chart(MATRIX["jwt with a key set in a ConfigMap and a policy"])
    sandboxes = chart(MATRIX["sandboxes from a file"])

    assert yaml.safe_load(policy.one("ConfigMap", "sandbox-router-policy")["data"]["policy.yaml"])[
        "rules"
    ]
    listed = yaml.safe_load(
        sandboxes.one("ConfigMap", "sandbox-router-sandboxes")["data"]["sandboxes.yaml"]
    )
    assert listed == {"sandboxes": [{"host": "10.1.2.3", "name": "box-a"}]}


def test_new_settings_roll_new_pods_and_a_new_policy_does_not():
    def checksum(values):
        annotations = chart(values).one("Deployment")["spec"]["template"]["metadata"]["annotations"]
        return annotations["checksum/config"]

    before = MATRIX["jwt with a key set in a ConfigMap and a policy"]
    with_policy = {
        **before,
        "files": {**before["files"], "policy": {"inline": {"rules": []}, "secret": "s"}},
    }
    with_setting = {**before, "config": {**before["config"], "proxy-timeout": "60s"}}

    assert checksum(before) == checksum(with_policy) != checksum(with_setting)
    text = chart(before).one("ConfigMap", "sandbox-router")["data"]["config.yaml"]
    assert checksum(before) == hashlib.sha256(text.rstrip("\n").encode()).hexdigest()


# --- names, labels, ports -------------------------------------------------------------------


@each
def test_sdks_and_managed_network_policies_find_what_they_look_for(objects):
    service = objects.one("Service", "sandbox-router-svc")
    labels = objects.one("Deployment")["spec"]["template"]["metadata"]["labels"]

    assert service["metadata"]["namespace"] == NAMESPACE
    assert next(port["port"] for port in service["spec"]["ports"]) == 8080
    assert labels["app"] == "sandbox-router"


@each
def test_every_selector_matches_the_pods(objects):
    template = objects.one("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    selectors = [objects.one("Deployment")["spec"]["selector"]["matchLabels"]]
    selectors += [service["spec"]["selector"] for service in objects.of("Service")]
    for kind, at in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        selectors += [item["spec"][at]["matchLabels"] for item in objects.of(kind)]
    for constraint in objects.pod().get("topologySpreadConstraints", ()):
        selectors.append(constraint["labelSelector"]["matchLabels"])

    for selector in selectors:
        assert selector
        assert selector.items() <= template


@each
def test_a_second_release_of_another_name_is_not_selected(objects, name):
    mine = objects.one("Deployment")["spec"]["selector"]["matchLabels"]
    others = chart(MATRIX[name], release="other").of_the_router()
    other = others.one("Deployment")["spec"]["template"]["metadata"]["labels"]

    assert not mine.items() <= other.items()


def test_the_operator_scrapes_the_admin_service_alone():
    objects = chart(MATRIX["watched by the operator"])
    monitor = objects.one("ServiceMonitor")["spec"]
    selected = [
        service["metadata"]["name"]
        for service in objects.of("Service")
        if monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    ]

    assert selected == ["sandbox-router-admin"]
    (endpoint,) = monitor["endpoints"]
    ports = objects.one("Service", "sandbox-router-admin")["spec"]["ports"]
    assert endpoint["port"] in {port["name"] for port in ports}
    assert endpoint["path"] == "/metrics"


@each
def test_binds_containers_services_and_policies_agree_on_the_ports(objects):
    config = objects.config()
    bound = {key: int(config[key].rpartition(":")[2]) for key in config if key.endswith("-bind")}
    ports = {port["name"]: port["containerPort"] for port in objects.container()["ports"]}

    assert {f"{name}-bind": port for name, port in ports.items()} == bound
    for service in objects.of("Service"):
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]
    for policy in objects.of("NetworkPolicy"):
        allowed = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert allowed == set(ports.values())


@each
def test_the_admin_port_is_never_on_the_service_that_clients_reach(objects):
    service = objects.one("Service", "sandbox-router-svc")

    assert 9090 not in {port["port"] for port in service["spec"]["ports"]}
    assert objects.one("Service", "sandbox-router-admin")["spec"]["type"] == "ClusterIP"
    for kind in ("HTTPRoute", "Ingress"):
        assert "9090" not in json.dumps(objects.of(kind))
        assert "admin" not in json.dumps([item["spec"] for item in objects.of(kind)])


@each
def test_routes_from_outside_lead_to_a_port_that_the_service_has(objects):
    ports = objects.one("Service", "sandbox-router-svc")["spec"]["ports"]
    numbers, names = {port["port"] for port in ports}, {port["name"] for port in ports}
    for route in objects.of("HTTPRoute"):
        for rule in route["spec"]["rules"]:
            (backend,) = rule["backendRefs"]
            assert (backend["name"], backend["port"] in numbers) == ("sandbox-router-svc", True)
    for ingress in objects.of("Ingress"):
        for rule in ingress["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                service = path["backend"]["service"]
                assert (service["name"], service["port"]["name"] in names) == (
                    "sandbox-router-svc",
                    True,
                )
    for policy in objects.of("BackendTLSPolicy"):
        assert policy["spec"]["targetRefs"][0]["sectionName"] in names


# --- probes and drain -----------------------------------------------------------------------


@each
def test_probes_ask_the_admin_port_for_pages_that_exist(objects):
    container = objects.container()
    admin = next(port for port in container["ports"] if port["name"] == "admin")

    assert admin["containerPort"] == 9090
    for probe, path in (
        ("startup", "/healthz"),
        ("liveness", "/healthz"),
        ("readiness", "/readyz"),
    ):
        assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "admin"}


@each
def test_pods_have_longer_to_leave_than_the_drain_takes(objects, tmp_path):
    config = {
        key: value
        for key, value in objects.config().items()
        if key in ("drain-delay", "shutdown-timeout")
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({**config, "auth": "none", "discovery": "dns"}))
    time = load(file=file).settings.time

    assert (
        objects.pod()["terminationGracePeriodSeconds"]
        > time.drain_delay_s + time.shutdown_timeout_s
    )


@pytest.mark.parametrize(
    ("drain", "shutdown", "grace"),
    [
        ("5s", "30s", 45),
        (0, "1s", 11),
        ("1m", "1h", 3670),
        ("500ms", "90", 101),
        (2.5, "1.5m", 103),
    ],
)
def test_the_grace_period_follows_durations_of_every_form(drain, shutdown, grace):
    config = {**TOKEN_REVIEW["config"], "drain-delay": drain, "shutdown-timeout": shutdown}

    assert chart({"config": config}).pod()["terminationGracePeriodSeconds"] == grace


def test_the_charts_idea_of_the_routers_defaults_is_the_routers():
    templates = "".join(file.read_text() for file in (CHART / "templates").glob("*.*"))

    for key, default in re.findall(r'"key" "([a-z-]+)" "default" "([^"]+)"', templates):
        assert TABLE[key].default == default
    for key, default in re.findall(
        r'get \S*[cC]onfig "([a-z-]+)" \| default "?([\w.]+)"?', templates
    ):
        assert default == "list" or TABLE[key].default == default


def test_a_rollout_never_takes_a_pod_before_its_successor_is_ready():
    strategy = chart(TOKEN_REVIEW).one("Deployment")["spec"]["strategy"]

    assert strategy["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


# --- fronts ---------------------------------------------------------------------------------


def test_the_route_sets_no_deadline_that_would_cut_a_stream():
    route = chart(MATRIX["behind a Gateway"]).one("HTTPRoute")["spec"]

    assert route["rules"][0]["timeouts"] == {"request": "0s"}
    assert route["hostnames"] == ["*.sandbox.example.com"]


def test_nginx_gets_what_streams_and_uploads_need_and_the_users_word_wins():
    annotations = chart(MATRIX["behind nginx"]).one("Ingress")["metadata"]["annotations"]

    assert {key.rpartition("/")[2]: value for key, value in annotations.items()} == {
        "proxy-body-size": "1g",
        "proxy-buffering": "off",
        "proxy-http-version": "1.1",
        "proxy-next-upstream": "off",
        "proxy-read-timeout": "3600",
        "proxy-request-buffering": "off",
        "proxy-send-timeout": "3600",
    }


def test_the_certificate_covers_the_service_and_the_base_domain():
    certificate = chart(MATRIX["mtls with cert-manager"]).one("Certificate")["spec"]

    assert certificate["dnsNames"] == [
        "sandbox-router-svc",
        f"sandbox-router-svc.{NAMESPACE}",
        f"sandbox-router-svc.{NAMESPACE}.svc",
        f"sandbox-router-svc.{NAMESPACE}.svc.cluster.local",
        "*.sandbox.example.com",
        "router.example.com",
    ]
    volumes = {
        volume["name"]: volume
        for volume in chart(MATRIX["mtls with cert-manager"]).pod()["volumes"]
    }
    assert volumes["tls"]["secret"]["secretName"] == certificate["secretName"]


def test_scaling_leaves_the_number_of_pods_to_the_autoscaler():
    objects = chart(MATRIX["scaled by cpu and by requests"])
    scaler = objects.one("HorizontalPodAutoscaler")["spec"]

    assert "replicas" not in objects.one("Deployment")["spec"]
    assert scaler["scaleTargetRef"]["name"] == objects.one("Deployment")["metadata"]["name"]
    assert [metric["type"] for metric in scaler["metrics"]] == ["Resource", "Pods"]
    assert scaler["metrics"][1]["pods"]["metric"]["name"] == "sandbox_router_inflight_requests"
    assert "cpu" in objects.container()["resources"]["requests"]
