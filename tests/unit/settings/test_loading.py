"""Tests of who wins, of the older names, and of the one message about everything that is wrong."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from router.settings import Loaded, Origin, SettingsError, Source, load

LEAST = {"auth": "none", "discovery": "dns"}


def refusal(*args: object, **kwargs: object) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(*args, **kwargs)  # type: ignore[arg-type]
    return [str(problem) for problem in caught.value.problems]


def load_least(environment: dict[str, str] | None = None, **kwargs: object) -> Loaded:
    return load(LEAST, environment, **kwargs)  # type: ignore[arg-type]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "router.yaml"
    path.write_text(text, "utf-8")
    return path


# --- precedence ---


@pytest.mark.parametrize(
    "present", [set(c) for n in range(5) for c in itertools.combinations(range(4), n)]
)
def test_the_strongest_source_that_gives_a_value_wins(present: set[int], tmp_path: Path) -> None:
    flags = LEAST | ({"proxy-timeout": "1s"} if 0 in present else {})
    environment = {"SANDBOX_ROUTER_PROXY_TIMEOUT": "2s"} if 1 in present else {}
    environment |= {"PROXY_TIMEOUT_SECONDS": "3"} if 2 in present else {}
    file = written(tmp_path, "proxy-timeout: 4s\n" if 3 in present else "")

    loaded = load(flags, environment, file)

    expected = {
        0: (1.0, Origin(Source.FLAG, "--proxy-timeout")),
        1: (2.0, Origin(Source.ENVIRONMENT, "SANDBOX_ROUTER_PROXY_TIMEOUT")),
        2: (3.0, Origin(Source.ENVIRONMENT, "PROXY_TIMEOUT_SECONDS")),
        3: (4.0, Origin(Source.FILE, str(file), 1)),
    }.get(min(present, default=4), (180.0, Origin(Source.DEFAULT)))
    assert (loaded.settings.time.proxy_timeout_s, loaded.origins["proxy-timeout"]) == expected


def test_the_file_may_be_named_by_a_variable_and_a_flag_wins_over_it(tmp_path: Path) -> None:
    named = written(tmp_path, "workers: 2\n")
    other = tmp_path / "other.yaml"
    other.write_text("workers: 3\n")
    environment = {"SANDBOX_ROUTER_CONFIG": str(named)}

    assert load_least(environment).settings.listeners.workers == 2
    assert load_least(environment, file=other).settings.listeners.workers == 3


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    file = written(tmp_path, "workers: 2\n")
    environment = {"SANDBOX_ROUTER_WORKERS": "", "SANDBOX_ROUTER_CONFIG": "", "KUBECONFIG": ""}

    assert load_least(environment, file=file).settings.listeners.workers == 2


def test_an_empty_flag_empties_a_list_that_the_file_fills(tmp_path: Path) -> None:
    file = written(tmp_path, "trusted-proxies: [10.0.0.0/8]\n")

    assert load({**LEAST, "trusted-proxies": ""}, {}, file).settings.routing.trusted_proxies == ()


def test_a_flag_that_no_row_has_is_a_mistake_in_the_program() -> None:
    with pytest.raises(TypeError, match="static-token"):
        load({"static-token": "x"})


# --- the environment of a pod ---


def test_names_that_kubernetes_makes_for_services_are_ignored() -> None:
    links = {
        "SANDBOX_ROUTER_SVC_PORT": "tcp://10.0.0.1:8080",
        "SANDBOX_ROUTER_SVC_SERVICE_HOST": "10.0.0.1",
        "SANDBOX_ROUTER_SVC_SERVICE_PORT_HTTP": "8080",
        "SANDBOX_ROUTER_SVC_PORT_8080_TCP_ADDR": "10.0.0.1",
        "SANDBOX_ROUTER_PORT": "tcp://10.0.0.1:8080",
        "SANDBOX_ROUTER_SERVICE_HOST": "10.0.0.1",
        "SANDBOX_ROUTER_SERVICE_PORT": "8080",
        "SANDBOX_ROUTER_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "SANDBOX_ROUTER_PORT_8080_TCP_PROTO": "tcp",
    }

    loaded = load_least(links)

    assert loaded.settings == load_least().settings
    assert loaded.warnings == ()


def test_a_service_called_like_a_setting_does_not_stop_the_start() -> None:
    loaded = load_least({"SANDBOX_ROUTER_DEFAULT_PORT": "tcp://10.0.0.1:80"})

    assert loaded.settings.routing.default_port == 8888
    assert load_least({"SANDBOX_ROUTER_DEFAULT_PORT": "80"}).settings.routing.default_port == 80


def test_in_a_cluster_the_watch_is_the_default() -> None:
    loaded = load({"auth": "none"}, in_cluster=True)

    assert loaded.settings.discovery.discovery == "kubernetes"
    assert str(loaded.origins["discovery"]) == "default"


def test_in_a_cluster_another_discovery_may_be_said() -> None:
    assert load_least(in_cluster=True).settings.discovery.discovery == "dns"


# --- what is found out ---


def test_auto_workers_are_the_usable_cores() -> None:
    flags = LEAST | {"workers": "auto"}

    assert load(flags, cores=6).settings.listeners.workers == 6
    assert load(flags, cores=0).settings.listeners.workers == 1
    assert load(LEAST, cores=6).settings.listeners.workers == 1


@pytest.mark.parametrize(
    ("tracing", "endpoint", "expected"),
    [
        (None, "http://collector:4317", True),
        (None, "", False),
        ("false", "http://collector:4317", False),
        ("true", "", True),
    ],
)
def test_tracing_follows_the_endpoint_unless_it_is_said(
    tracing: str | None, endpoint: str, expected: bool
) -> None:
    flags = LEAST | ({"tracing": tracing} if tracing else {})

    loaded = load(flags, {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})

    assert loaded.settings.logs.tracing is expected


# --- the switches of older deployments ---


def test_a_token_alone_switches_static_on() -> None:
    loaded = load({"discovery": "dns"}, {"ROUTER_AUTH_TOKEN": " correct-horse-battery\n"})

    assert loaded.settings.auth.auth == ("static",)
    assert loaded.settings.auth.static_token == "correct-horse-battery"
    assert loaded.origins["auth"] == Origin(Source.ENVIRONMENT, "ROUTER_AUTH_TOKEN")


def test_the_open_door_must_be_said_with_a_true_word() -> None:
    flags = {"discovery": "dns"}

    assert load(flags, {"ALLOW_UNAUTHENTICATED_ROUTER": "true"}).settings.auth.auth == ("none",)
    (problem,) = refusal(flags, {"ALLOW_UNAUTHENTICATED_ROUTER": "false"})
    assert problem.startswith("auth: no authentication mode is set; ")


def test_a_token_and_an_open_door_contradict_each_other() -> None:
    environment = {"ROUTER_AUTH_TOKEN": "x" * 20, "ALLOW_UNAUTHENTICATED_ROUTER": "true"}

    assert refusal({"discovery": "dns"}, environment) == [
        "ROUTER_AUTH_TOKEN and ALLOW_UNAUTHENTICATED_ROUTER (environment): ask for a token and for none; set only one of them"
    ]


def test_a_bad_word_for_the_open_door_is_named() -> None:
    assert refusal({"discovery": "dns"}, {"ALLOW_UNAUTHENTICATED_ROUTER": "maybe"}) == [
        "auth = 'maybe' (environment ALLOW_UNAUTHENTICATED_ROUTER): is neither true nor false; write true or false"
    ]


def test_an_open_door_never_weakens_what_the_file_says(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("k" * 32)
    file = written(tmp_path, f"auth: jwt\njwt-secret-file: {keys}\n")

    loaded = load({"discovery": "dns"}, {"ALLOW_UNAUTHENTICATED_ROUTER": "true"}, file)

    assert loaded.settings.auth.auth == ("jwt",)
    assert [str(warning) for warning in loaded.warnings] == [
        "ALLOW_UNAUTHENTICATED_ROUTER (environment): is ignored: auth is set elsewhere; unset it"
    ]


def test_a_bad_auth_is_not_replaced_by_the_open_door() -> None:
    problems = refusal({"auth": "jwtt", "discovery": "dns"}, {"ALLOW_UNAUTHENTICATED_ROUTER": "1"})

    assert problems == [
        "auth = 'jwtt' (flag --auth): is unknown (did you mean jwt?); write jwt, static, token-review, mtls, forwarded or none"
    ]


def test_a_token_file_wins_over_the_token_in_the_environment(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse-battery\n")
    flags = {"discovery": "dns", "static-token-file": str(token)}

    loaded = load(flags, {"ROUTER_AUTH_TOKEN": "another-horse-battery"})

    assert loaded.settings.auth.static_token is None
    assert loaded.settings.auth.static_token_file == token


def test_a_token_that_no_mode_compares_is_forgotten() -> None:
    loaded = load_least({"ROUTER_AUTH_TOKEN": "correct-horse-battery"})

    assert loaded.settings.auth.auth == ("none",)
    assert loaded.settings.auth.static_token is None


@pytest.mark.parametrize(
    ("name", "value", "group", "attribute", "expected"),
    [
        ("CLUSTER_DOMAIN", "k8s.example", "discovery", "cluster_domain", "k8s.example"),
        ("MAX_KEEPALIVE_CONNECTIONS", "7", "limits", "max_idle_upstream", 7),
        ("WEBSOCKET_IDLE_TIMEOUT_SECONDS", "90", "time", "tunnel_idle_timeout_s", 90.0),
        ("WEBSOCKET_MAX_LIFETIME_SECONDS", "0", "time", "tunnel_max_lifetime_s", 0.0),
        ("WEBSOCKET_MAX_CONNECTIONS_PER_CLIENT", "3", "limits", "max_tunnels_per_client", 3),
        ("KUBECONFIG", "/nowhere/config", "discovery", "kubeconfig", Path("/nowhere/config")),
    ],
)
def test_an_older_name_sets_its_setting(
    name: str, value: str, group: str, attribute: str, expected: object
) -> None:
    settings = load_least({name: value}).settings

    assert getattr(getattr(settings, group), attribute) == expected


def test_trusted_proxies_may_be_given_by_the_older_name() -> None:
    networks = load_least(
        {"TRUSTED_PROXY_CIDRS": "10.0.0.0/8, fd00::/8"}
    ).settings.routing.trusted_proxies

    assert [str(network) for network in networks] == ["10.0.0.0/8", "fd00::/8"]


# --- one message ---


def test_one_message_names_everything_that_is_wrong_wherever_it_came_from(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "acces-log: false\n"
        "auth: jwt\n"
        "mtls: [off]\n"
        "proxy-timeout: 5 min\n"
        "trusted-proxies:\n"
        "  - 10.1.0.0/8\n",
    )
    flags = {"http-bind": "8080", "proxy-timeout": "nan"}
    environment = {
        "SANDBOX_ROUTER_MAX_CONNECTIONS": "1_000",
        "WEBSOCKET_IDLE_TIMEOUT_SECONDS": "-1",
    }

    with pytest.raises(SettingsError) as caught:
        load(flags, environment, file)

    assert str(caught.value) == (
        "the settings have 10 problems:\n"
        f"  - acces-log (file {file}, line 1): is no setting; did you mean access-log?\n"
        "  - http-bind = '8080' (flag --http-bind): is not an address to listen on; write :8080 (every address), 127.0.0.1:8080, [::1]:8080 or off\n"
        f"  - mtls = 'off' (file {file}, line 3): is a list; write one value\n"
        f"  - trusted-proxies = '10.1.0.0/8' (file {file}, line 5): has a network with host bits set: '10.1.0.0/8'; did you mean 10.0.0.0/8?\n"
        f"  - proxy-timeout = '5 min' (file {file}, line 4): is not a duration; write 180s, 5m, 1h, 250ms or plain seconds\n"
        "  - proxy-timeout = 'nan' (flag --proxy-timeout): is not a duration; write 180s, 5m, 1h, 250ms or plain seconds\n"
        "  - tunnel-idle-timeout = '-1' (environment WEBSOCKET_IDLE_TIMEOUT_SECONDS): is not a duration; write 180s, 5m, 1h, 250ms or plain seconds\n"
        "  - max-connections = '1_000' (environment SANDBOX_ROUTER_MAX_CONNECTIONS): is not a whole number; write plain decimal digits\n"
        f"  - auth = jwt (file {file}, line 2): jwt has no keys; set jwt-secret-file, jwks-file or jwks-url\n"
        "  - discovery: must be said outside of a cluster; set discovery to file (with sandboxes-file), kubernetes (with kubeconfig) or dns"
    )


def test_nothing_at_all_is_told_the_two_things_that_must_be_said() -> None:
    assert refusal() == [
        "auth: no authentication mode is set; set auth to jwt, static, token-review, mtls or forwarded (flag --auth, environment "
        "SANDBOX_ROUTER_AUTH, file key auth), or give a token in ROUTER_AUTH_TOKEN; to let every caller reach every "
        "sandbox, say so: auth: none",
        "discovery: must be said outside of a cluster; set discovery to file (with sandboxes-file), kubernetes (with "
        "kubeconfig) or dns",
    ]


def test_a_file_that_can_not_be_read_is_not_followed_by_what_it_might_have_said(
    tmp_path: Path,
) -> None:
    missing = tmp_path / "none.yaml"

    assert refusal({}, {}, missing) == [
        f"the configuration (file {missing}): can't be read: No such file or directory; name a readable YAML file"
    ]


def test_a_bad_token_is_never_repeated() -> None:
    (problem, *_) = refusal(
        {"auth": "static", "discovery": "dns"}, {"ROUTER_AUTH_TOKEN": "correct\x00horse"}
    )

    assert problem == (
        "static-token = (hidden) (environment ROUTER_AUTH_TOKEN): has control characters; write printable characters only"
    )


def test_a_password_in_a_url_is_never_repeated() -> None:
    (problem,) = refusal({**LEAST, "jwks-url": "https://user:s3cret@issuer/keys"})

    assert "s3cret" not in problem
    assert "'https://(hidden)@issuer/keys'" in problem


def test_a_long_or_strange_value_is_printed_escaped_and_short() -> None:
    (problem,) = refusal({**LEAST, "origin": "\x1b[31m" + "x" * 500})

    assert "\x1b" not in problem
    assert len(problem) < 250
