"""Tests of what is legal but hardly meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.settings import load

LEAST = {"auth": "none", "discovery": "dns"}


def warnings(environment: dict[str, str] | None = None, /, **flags: str) -> list[str]:
    changed = LEAST | {key.replace("_", "-"): value for key, value in flags.items()}
    return [str(warning) for warning in load(changed, environment).warnings]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "file"
    path.write_text("correct-horse-battery\n")
    return str(path)


def test_an_ordinary_configuration_has_no_warning(file: str) -> None:
    assert warnings() == []
    assert warnings(auth="static", static_token_file=file) == []
    assert warnings(discovery="file", sandboxes_file=file) == []


def test_a_short_token_is_warned_about_without_repeating_it(tmp_path: Path) -> None:
    short = tmp_path / "token"
    short.write_text("fifteen-letters\n")

    assert warnings({"ROUTER_AUTH_TOKEN": "fifteen-letters"}, auth="static") == [
        "static-token = (hidden) (environment ROUTER_AUTH_TOKEN): the token is short enough to be guessed; use 16 random "
        "characters or more"
    ]
    assert warnings(auth="static", static_token_file=str(short)) == [
        f"static-token-file = {short} (flag --static-token-file): the token is short enough to be guessed; use 16 random "
        "characters or more"
    ]
    assert warnings({"ROUTER_AUTH_TOKEN": "sixteen-letters!"}, auth="static") == []


@pytest.mark.parametrize(
    ("key", "mode"),
    [
        ("jwt-secret-file", "jwt"),
        ("jwks-file", "jwt"),
        ("jwks-url", "jwt"),
        ("jwt-issuer", "jwt"),
        ("jwt-audience", "jwt"),
        ("static-token-file", "static"),
        ("token-review-audiences", "token-review"),
    ],
)
def test_a_setting_of_a_mode_that_is_not_on_has_no_effect(key: str, mode: str, file: str) -> None:
    value = "https://issuer" if key == "jwks-url" else file

    assert warnings(**{key: value}) == [
        f"{key} = {value} (flag --{key}): has no effect: auth does not have {mode}; add {mode} to auth, or remove it"
    ]


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:8080/keys"])
def test_authorities_for_a_url_that_is_not_https_have_no_effect(file: str, url: str | None) -> None:
    flags = {"auth": "jwt", "jwks_file": file, "jwks_ca_file": file}

    said = warnings(**flags if url is None else {**flags, "jwks_url": url})

    assert said == [
        f"jwks-ca-file = {file} (flag --jwks-ca-file): has no effect: jwks-url is not https; set jwks-url, or remove it"
    ]


def test_namespaces_do_not_restrict_dns() -> None:
    assert warnings(namespaces="team-a") == [
        "namespaces = team-a (flag --namespaces): has no effect: discovery is dns; remove it"
    ]


def test_callers_without_any_grant_are_named(file: str) -> None:
    assert warnings(auth="token-review") == [
        "auth = token-review (flag --auth): callers known by token-review have no grants, so every call is forbidden; "
        "set policy-file or subject-access-review"
    ]
    assert warnings(auth="token-review", policy_file=file) == []
    assert warnings(auth="token-review", subject_access_review="true") == []


def test_an_attempt_longer_than_the_budget_is_named() -> None:
    assert warnings(connect_timeout="30s") == [
        "connect-timeout = 30s (flag --connect-timeout): is cut short by the smaller connect-budget; raise connect-budget"
    ]


def test_trusting_everybody_as_a_proxy_is_named() -> None:
    assert warnings(trusted_proxies="10.0.0.0/8,::/0") == [
        "trusted-proxies = 10.0.0.0/8,::/0 (flag --trusted-proxies): lets every client choose its own address; "
        "name the networks of your proxies alone"
    ]


def test_a_token_that_decides_nothing_is_named(file: str) -> None:
    token = {"ROUTER_AUTH_TOKEN": "correct-horse-battery"}

    assert warnings(token) == [
        "ROUTER_AUTH_TOKEN (environment): is ignored: auth does not have static; add static to auth, or unset it"
    ]
    assert warnings(token, auth="static", static_token_file=file) == [
        "ROUTER_AUTH_TOKEN (environment): is ignored: static-token-file is set; unset it"
    ]


def test_a_misspelt_variable_is_named_and_a_strange_one_is_not() -> None:
    environment = {
        "SANDBOX_ROUTER_PROXY_TIMOUT": "5s",
        "SANDBOX_ROUTER_IMAGE": "x",
        "OTHER_PROXY_TIMEOUT": "5s",
    }

    assert warnings(environment) == [
        "SANDBOX_ROUTER_PROXY_TIMOUT (environment): is no setting and is ignored; did you mean SANDBOX_ROUTER_PROXY_TIMEOUT?"
    ]


def test_a_head_smaller_than_the_longest_request_line_is_the_lines_limit_too() -> None:
    assert warnings(max_header_bytes="8KiB") == [
        "max-header-bytes = 8192 (flag --max-header-bytes): a request line is part of the head, so 8192 bytes is its limit "
        "too, not 16384; lower max-request-line-bytes to 8192, or raise max-header-bytes"
    ]
    assert warnings(max_request_line_bytes="1MiB")[0].startswith(
        "max-request-line-bytes = 1048576 "
    )
    assert warnings(max_header_bytes="8KiB", max_request_line_bytes="8KiB") == []
