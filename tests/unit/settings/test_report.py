"""Tests of showing the settings that hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from router.settings import Loaded, Origin, Source, load
from router.settings.config_file import parse_config
from router.settings.report import as_json, as_text
from router.settings.table import FILE_KEYS, TABLE


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    config = tmp_path / "router.yaml"
    config.write_text("jwt-audience: ['a,b', 'null', 'c: #d']\nhttp-bind: '[::1]:8080'\n")
    flags = {
        "discovery": "dns",
        "preserve-host": "true",
        "base-domain": "Sandboxes.Example.com",
        "jwt-issuer": 'say "hello" \\ é',
        "max-body-bytes": "1MiB",
        "wait-for-ready": "0.25",
        "trusted-proxies": "10.0.0.0/8,fd00::/8",
    }
    return load(
        flags, {"ROUTER_AUTH_TOKEN": "correct-horse-battery", "CLUSTER_DOMAIN": "k8s"}, config
    )


def test_there_is_one_line_for_each_setting_with_its_origin(loaded: Loaded) -> None:
    lines = [line for line in as_text(loaded).splitlines() if ":" in line]

    assert len(lines) == len(TABLE)
    assert "preserve-host: true  # flag --preserve-host" in lines
    assert "cluster-domain: k8s  # environment CLUSTER_DOMAIN" in lines
    assert "max-body-bytes: 1048576  # flag --max-body-bytes" in lines
    assert "wait-for-ready: 250ms  # flag --wait-for-ready" in lines
    assert "proxy-timeout: 180s  # default" in lines
    assert any(line.startswith('http-bind: "[::1]:8080"  # file /') for line in lines)


def test_a_secret_is_hidden(loaded: Loaded) -> None:
    assert (
        "# static-token: (hidden)  # environment ROUTER_AUTH_TOKEN" in as_text(loaded).splitlines()
    )
    assert json.loads(as_json(loaded))["settings"]["static-token"]["value"] == "(hidden)"
    assert "correct" not in as_text(loaded) + as_json(loaded)


def test_the_text_is_a_configuration_file_that_says_the_same(
    loaded: Loaded, tmp_path: Path
) -> None:
    text = as_text(loaded)
    again = tmp_path / "again.yaml"
    again.write_text(text, "utf-8")

    assert parse_config(text, Origin(Source.FILE, "again")).given.keys() == set(FILE_KEYS)
    assert (
        load({}, {"ROUTER_AUTH_TOKEN": "correct-horse-battery"}, again).settings == loaded.settings
    )


def test_programs_get_values_sources_and_warnings(loaded: Loaded) -> None:
    answer = json.loads(as_json(loaded))

    assert list(answer["settings"]) == list(TABLE)
    assert answer["settings"]["preserve-host"] == {
        "value": True,
        "source": "flag",
        "name": "--preserve-host",
    }
    assert answer["settings"]["jwt-audience"]["value"] == ["a,b", "null", "c: #d"]
    assert answer["settings"]["jwt-audience"]["line"] == 1
    assert answer["settings"]["auth"]["name"] == "ROUTER_AUTH_TOKEN"
    assert answer["settings"]["workers"] == {"value": 1, "source": "default"}
    assert [warning.split(" ")[0] for warning in answer["warnings"]] == [
        "jwt-issuer",
        "jwt-audience",
    ]
