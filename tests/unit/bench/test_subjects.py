"""How the subjects are found and configured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from bench.cases import CASES
from bench.subjects import SUBJECTS, Site, Subject, new_token
from router.cli import main

BY_NAME = {subject.name: subject for subject in SUBJECTS}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, port=18_080, admin_port=18_081, sandbox_port=18_888, token="t0ken")


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.name)
def test_a_configuration_is_filled_in_to_the_last_name(subject: Subject, site: Site) -> None:
    command = subject.command(Path("/opt/binary"), site)
    written = "\n".join(path.read_text() for path in site.directory.iterdir())

    assert command[0] == "/opt/binary"
    assert not re.search(r"@[A-Z_]+@", written)
    assert "t0ken" in written
    assert "18888" in written
    assert "18080" in written + " ".join(command)


def test_the_token_is_in_no_command_line(site: Site) -> None:
    for subject in SUBJECTS:
        assert "t0ken" not in " ".join(subject.command(Path("binary"), site))


def test_envoys_configuration_is_yaml(site: Site) -> None:
    BY_NAME["envoy"].command(Path("envoy"), site)

    document = yaml.safe_load((site.directory / "envoy.yaml").read_text())

    assert document["static_resources"]["clusters"][0]["name"] == "sandbox"


@pytest.mark.parametrize(("name", "value"), [("router", "false"), ("router-log", "true")])
def test_the_routers_differ_in_the_access_log(name: str, value: str, site: Site) -> None:
    command = BY_NAME[name].command(Path("sandbox-router"), site)

    assert command[command.index("--access-log") + 1] == value


@pytest.mark.parametrize("name", ["router", "router-log"])
def test_the_router_knows_the_settings_it_is_given(name: str, site: Site) -> None:
    _binary, serve, *flags = BY_NAME[name].command(Path("sandbox-router"), site)

    checked = CliRunner().invoke(main, ["check-config", *flags])

    assert serve == "serve"
    assert checked.exit_code == 0, checked.output


def test_a_version_is_read_from_what_a_binary_says(tmp_path: Path) -> None:
    binary = tmp_path / "proxy"
    binary.write_text("#!/bin/sh\necho; echo 'proxy version: 1.40.0/Clean'; echo library 3.2.1\n")
    binary.chmod(0o755)

    assert BY_NAME["envoy"].version(binary) == "1.40.0"


def test_two_tokens_differ() -> None:
    assert new_token() != new_token()
    assert len(new_token()) >= 32


def test_the_documentation_names_every_subject_and_case() -> None:
    page = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()

    for name in (*BY_NAME, *(case.name for case in CASES)):
        assert f"`{name}`" in page or f"`{name}," in page or f",{name}`" in page, name
