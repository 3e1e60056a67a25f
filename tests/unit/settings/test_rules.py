"""Tests of what must be true of settings together: each rule refuses, and accepts its nearest good neighbour."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from router.settings import SettingsError, load
from router.settings.rules import unreadable_reason

LEAST = {"auth": "none", "discovery": "dns"}


def problems(
    environment: dict[str, str] | None = None, /, *, in_cluster: bool = False, **flags: str
) -> list[str]:
    """Returns the broken rules of the least configuration with some changes; [] when there are none."""
    changed = LEAST | {key.replace("_", "-"): value for key, value in flags.items()}
    try:
        load(
            {key: value for key, value in changed.items() if value != "unsaid"},
            environment,
            in_cluster=in_cluster,
        )
    except SettingsError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "file"
    path.write_text("correct-horse-battery\n")
    return str(path)


# --- who may call ---


def test_without_a_mode_nothing_starts() -> None:
    (problem,) = problems(auth="unsaid")

    assert problem.startswith("auth: no authentication mode is set; ")
    assert problem.endswith("to let every caller reach every sandbox, say so: auth: none")


def test_an_empty_list_of_modes_is_no_mode() -> None:
    (problem,) = problems(auth="")

    assert problem.startswith("auth = (empty) (flag --auth): no authentication mode is set; ")


@pytest.mark.parametrize("word", ["all", "none"])
def test_a_word_for_the_namespaces_of_metrics_stands_alone(word: str) -> None:
    assert problems(auth="none", metrics_namespaces=f"{word},team-a") == [
        f"metrics-namespaces = {word},team-a (flag --metrics-namespaces): has {word} beside other names;"
        f" write {word} alone, or the names alone"
    ]
    assert problems(auth="none", metrics_namespaces="team-a,team-b") == []


def test_none_stands_alone(file: str) -> None:
    assert problems(auth="none,static", static_token_file=file) == [
        "auth = none,static (flag --auth): has none beside other modes; write none alone, or leave it out"
    ]


def test_static_needs_a_token(file: str) -> None:
    refused = [
        "auth = static (flag --auth): static has no token; name a static-token-file, or set ROUTER_AUTH_TOKEN"
    ]

    assert problems(auth="static") == refused
    assert problems({"ROUTER_AUTH_TOKEN": ""}, auth="static") == refused
    assert problems({"ROUTER_AUTH_TOKEN": " \n"}, auth="static") == refused
    assert problems({"ROUTER_AUTH_TOKEN": "x"}, auth="static") == []
    assert problems(auth="static", static_token_file=file) == []


def test_a_blank_token_in_the_environment_does_not_open_the_door() -> None:
    assert problems({"ROUTER_AUTH_TOKEN": " "}, auth="unsaid") == [
        "auth = static (environment ROUTER_AUTH_TOKEN): static has no token; name a static-token-file, or set ROUTER_AUTH_TOKEN"
    ]


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text(" \n")

    assert problems(auth="static", static_token_file=str(empty)) == [
        f"static-token-file = {empty} (flag --static-token-file): is empty; put the token in it"
    ]


@pytest.mark.parametrize("key", ["jwt_secret_file", "jwks_file", "jwks_url"])
def test_jwt_needs_keys_from_anywhere(key: str, file: str) -> None:
    value = "https://issuer/keys" if key == "jwks_url" else file

    assert problems(auth="jwt") == [
        "auth = jwt (flag --auth): jwt has no keys; set jwt-secret-file, jwks-file or jwks-url"
    ]
    assert problems(auth="jwt", **{key: value}) == []


def test_the_mode_mtls_needs_certificates_to_arrive(file: str) -> None:
    tls = {
        "https_bind": ":8443",
        "tls_cert_file": file,
        "tls_key_file": file,
        "tls_client_ca_file": file,
    }

    assert problems(auth="mtls") == [
        "auth = mtls (flag --auth): mtls is a mode, but no client certificate is ever seen; set mtls to optional or "
        "required, or name the trusted-proxies that hand on X-Forwarded-Client-Cert"
    ]
    assert problems(auth="mtls", mtls="required", **tls) == []
    assert problems(auth="mtls", trusted_proxies="10.0.0.0/8") == []


# --- listeners and TLS ---


def test_somewhere_clients_must_be_able_to_connect(file: str) -> None:
    assert problems(http_bind="off") == [
        "http-bind = off (flag --http-bind): https-bind is off too; set one of them to an address such as :8080"
    ]
    assert (
        problems(http_bind="off", https_bind=":8443", tls_cert_file=file, tls_key_file=file) == []
    )


@pytest.mark.parametrize(
    ("http", "admin"),
    [
        (":80", ":80"),
        ("127.0.0.1:80", "0.0.0.0:80"),
        ("[::1]:80", ":80"),
        ("10.0.0.1:80", "10.0.0.1:80"),
    ],
)
def test_two_listeners_do_not_share_an_address(http: str, admin: str) -> None:
    (problem,) = problems(http_bind=http, admin_bind=admin)

    assert problem.endswith(f"is taken by http-bind = {http}; give each listener its own port")


@pytest.mark.parametrize(
    ("http", "admin"),
    [(":0", ":0"), ("127.0.0.1:80", "10.0.0.1:80"), (":80", "off"), (":80", ":81")],
)
def test_listeners_that_differ_or_ask_for_any_port_are_fine(http: str, admin: str) -> None:
    assert problems(http_bind=http, admin_bind=admin) == []


def test_tls_needs_certificate_and_key(file: str) -> None:
    assert problems(https_bind=":8443") == [
        "https-bind = :8443 (flag --https-bind): TLS needs tls-cert-file; set tls-cert-file, or https-bind to off",
        "https-bind = :8443 (flag --https-bind): TLS needs tls-key-file; set tls-key-file, or https-bind to off",
    ]
    assert problems(https_bind=":8443", tls_cert_file=file, tls_key_file=file) == []


@pytest.mark.parametrize("key", ["tls-cert-file", "tls-key-file", "tls-client-ca-file"])
def test_a_certificate_without_a_tls_listener_is_refused(key: str, file: str) -> None:
    assert problems(**{key: file}) == [
        f"{key} = {file} (flag --{key}): https-bind is off; set https-bind, for example to :8443, or remove the file"
    ]


@pytest.mark.parametrize("mtls", ["optional", "required"])
def test_mtls_needs_a_tls_listener_and_an_authority(mtls: str) -> None:
    assert problems(mtls=mtls) == [
        f"mtls = {mtls} (flag --mtls): https-bind is off; set https-bind, for example to :8443, or mtls to off",
        f"mtls = {mtls} (flag --mtls): no authority to check certificates by; set tls-client-ca-file, or mtls to off",
    ]


def test_an_authority_needs_mtls(file: str) -> None:
    tls = {
        "https_bind": ":8443",
        "tls_cert_file": file,
        "tls_key_file": file,
        "tls_client_ca_file": file,
    }

    assert problems(**tls) == [
        f"tls-client-ca-file = {file} (flag --tls-client-ca-file): mtls is off; set mtls to optional or required, or remove the file"
    ]
    assert problems(mtls="optional", **tls) == []


# --- finding sandboxes ---


def test_outside_of_a_cluster_discovery_must_be_said() -> None:
    (problem,) = problems(discovery="unsaid")

    assert problem.startswith("discovery: must be said outside of a cluster; ")
    assert problems(discovery="unsaid", in_cluster=True) == []


def test_file_discovery_needs_the_file(file: str) -> None:
    assert problems(discovery="file") == [
        "discovery = file (flag --discovery): no sandboxes-file is named; set sandboxes-file to the YAML list of sandboxes"
    ]
    assert problems(discovery="file", sandboxes_file=file) == []


@pytest.mark.parametrize("discovery", ["kubernetes", "file"])
def test_addresses_from_clients_are_trusted_only_without_a_table(discovery: str, file: str) -> None:
    flags = {"trust_pod_ip_header": "true", "sandboxes_file": file}

    assert problems(discovery=discovery, **flags) == [
        f"trust-pod-ip-header = true (flag --trust-pod-ip-header): discovery is {discovery}, which knows the addresses itself; "
        "remove it, or set discovery to dns"
    ]
    assert problems(discovery="dns", **flags) == []


@pytest.mark.parametrize("discovery", ["file", "dns"])
@pytest.mark.parametrize("wake", ["annotated", "all"])
def test_only_sandboxes_of_kubernetes_can_be_woken(discovery: str, wake: str, file: str) -> None:
    flags = {"sandboxes_file": file} if discovery == "file" else {}

    assert problems(discovery=discovery, wake=wake, **flags) == [
        f"wake = {wake} (flag --wake): discovery is {discovery}, whose sandboxes the router can't wake; "
        "set wake to off, or discovery to kubernetes"
    ]
    assert problems(discovery=discovery, wake="off", **flags) == []
    assert problems(discovery="kubernetes", wake=wake) == []


# --- numbers ---


def test_a_head_smaller_than_the_longest_request_line_is_no_reason_not_to_start() -> None:
    assert problems(max_header_bytes="8KiB") == []
    assert problems(max_request_line_bytes="1MiB") == []


def test_a_rule_about_a_bad_value_is_left_out() -> None:
    assert problems(max_header_bytes="8K") == [
        "max-header-bytes = '8K' (flag --max-header-bytes): is not a size in bytes; write 65536, 64KiB, 1MiB or 1GiB"
    ]


@pytest.mark.parametrize(
    ("key", "value", "wrong"),
    [
        ("shutdown-timeout", "0", "is too short; write at least 1ms"),
        ("shutdown-timeout", "25h", "is too long; write at most 24h"),
        ("drain-delay", "61m", "is too long; write at most 1h"),
        ("connect-timeout", "0", "is too short; write at least 1ms"),
    ],
)
def test_a_shutdown_ends_and_a_connect_has_a_deadline(key: str, value: str, wrong: str) -> None:
    assert problems(**{key: value}) == [f"{key} = '{value}' (flag --{key}): {wrong}"]


# --- files ---


FILES = ["sandboxes-file", "jwt-secret-file", "jwks-file", "static-token-file", "policy-file"]


@pytest.mark.parametrize("key", FILES)
def test_a_file_that_is_named_must_exist_and_be_a_file(key: str, tmp_path: Path) -> None:
    missing = tmp_path / "none"

    assert problems(**{key: str(missing)}) == [
        f"{key} = {missing} (flag --{key}): can't be read: No such file or directory; name a file that the router may read"
    ]
    assert problems(**{key: str(tmp_path)}) == [
        f"{key} = {tmp_path} (flag --{key}): is a directory; name a file that the router may read"
    ]


def test_a_file_that_may_not_be_read_is_refused(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_args: False)  # the tests may run as root

    assert unreadable_reason(Path(file)) == "can't be read: Permission denied"


@pytest.mark.parametrize("key", FILES)
def test_a_pipe_or_a_device_cannot_be_read_again_and_is_refused(key: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    for path in (str(pipe), "/dev/zero"):
        assert problems(**{key: path}) == [
            f"{key} = {path} (flag --{key}): is a pipe or device, not a file; name a file that the router may read"
        ]


def test_a_kubeconfig_matters_only_where_kubernetes_is_asked(tmp_path: Path) -> None:
    stale = {"KUBECONFIG": str(tmp_path / "none")}
    refused = [
        f"kubeconfig = {tmp_path}/none (environment KUBECONFIG): can't be read: No such file or directory; "
        "name a file that the router may read"
    ]

    assert problems(stale) == []
    assert problems(stale, discovery="kubernetes") == refused
    assert problems(stale, subject_access_review="true") == refused
    assert problems(stale, auth="token-review") == refused


def test_one_readable_file_in_a_list_of_kubeconfigs_is_enough(tmp_path: Path, file: str) -> None:
    environment = {"KUBECONFIG": f"{tmp_path}/none:{file}"}

    assert problems(environment, discovery="kubernetes") == []


# --- people in browsers ---


PROXIED = {"auth": "forwarded", "identity_header": "X-User", "trusted_proxies": "10.0.0.0/8"}


def test_whom_a_proxy_signs_in_needs_a_header_and_a_proxy() -> None:
    assert problems(**PROXIED) == []
    assert problems(**{**PROXIED, "identity_header": "off"}) == [
        "auth = forwarded (flag --auth): forwarded has no header to read; "
        "set identity-header to the one in which the proxy says who has signed in"
    ]
    (problem,) = problems(**{**PROXIED, "trusted_proxies": ""})
    assert "forwarded has no proxy to believe" in problem


@pytest.mark.parametrize("network", ["0.0.0.0/0", "::/0"])
def test_not_everybody_may_say_who_has_signed_in(network: str) -> None:
    (problem,) = problems(**{**PROXIED, "trusted_proxies": f"10.0.0.0/8,{network}"})
    assert "whoever writes the header would be believed" in problem


def test_a_session_needs_a_sandbox_with_a_name_of_its_own(file: str) -> None:
    given = {"auth": "static", "static_token_file": file, "session_key_file": file}
    assert problems(**given, base_domain="boxes.example", discovery="kubernetes") == []
    assert problems(**given, path_prefix="/s", session_path_mode="true") == []
    for too_little in ({}, {"path_prefix": "/s"}, {"session_path_mode": "true"}):
        (problem,) = problems(**given, **too_little)
        assert "set base-domain, or path-prefix with session-path-mode" in problem


def test_where_everybody_is_let_in_nobody_needs_a_session(file: str) -> None:
    (problem,) = problems(session_key_file=file, base_domain="boxes.example")
    assert "auth is none, so nobody needs a session" in problem


def test_who_mints_tokens_makes_no_sessions(file: str) -> None:
    given = {"auth": "jwt", "jwt_secret_file": file, "base_domain": "boxes.example"}
    (problem,) = problems(**given, session_key_file=file)
    assert "give the sessions secrets of their own" in problem


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("session_origins", "https://a.example"),
        ("session_iframe", "true"),
        ("session_path_mode", "true"),
    ],
)
def test_what_is_about_sessions_needs_sessions(key: str, value: str) -> None:
    (problem,) = problems(**{key: value})
    assert "there are no sessions" in problem


def test_a_home_page_needs_a_base_domain_and_a_table(file: str) -> None:
    given = {"auth": "static", "static_token_file": file, "home": "true"}
    (without_domain,) = problems(**given, discovery="kubernetes")
    assert "base-domain" in str(without_domain)
    (without_table,) = problems(**given, base_domain="boxes.example", discovery="dns")
    assert "dns" in str(without_table)
    assert problems(**given, base_domain="boxes.example", discovery="kubernetes") == []
