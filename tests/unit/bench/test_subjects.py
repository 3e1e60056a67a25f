"""How the subjects are found and configured."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from bench import revisions, subjects
from bench.cases import CASES
from bench.credentials import Credential
from bench.subjects import SUBJECTS, TLS, Setup, Site, Subject, at_revision, title_of
from router.cli import main
from router.code_form import CodeForm

BY_NAME = {subject.name: subject for subject in SUBJECTS}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    credential = Credential("t0ken", "s" * 48)
    return Site(tmp_path, 18_080, 18_081, 18_888, credential)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.name)
def test_a_configuration_is_filled_in_to_the_last_name(subject: Subject, site: Site) -> None:
    command = subject.command(Path("/opt/binary"), site)
    written = "\n".join(path.read_text() for path in site.directory.iterdir())

    assert command[0] == "/opt/binary"
    assert not re.search(r"@[A-Z_]+@", written)
    assert ("t0ken" if not subject.name.startswith("router") else "s" * 48) in written
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


ROUTERS = [each.name for each in SUBJECTS if each.name.startswith("router")]
SETUPS = [Setup(), Setup(tls=True), Setup(behind_proxy=True), Setup(sandboxes=("a", "b"))]


@pytest.mark.parametrize("setup", SETUPS, ids=["usual", "tls", "behind a proxy", "many"])
@pytest.mark.parametrize("name", ROUTERS)
def test_the_router_knows_the_settings_it_is_given(name: str, setup: Setup, site: Site) -> None:
    site = dataclasses.replace(site, setup=setup)
    _binary, serve, *flags = BY_NAME[name].command(Path("sandbox-router"), site)

    checked = CliRunner().invoke(main, ["check-config", *flags])

    assert serve == "serve"
    assert checked.exit_code == 0, checked.output


def test_a_version_is_read_from_what_a_binary_says(tmp_path: Path) -> None:
    binary = tmp_path / "proxy"
    binary.write_text("#!/bin/sh\necho; echo 'proxy version: 1.40.0/Clean'; echo library 3.2.1\n")
    binary.chmod(0o755)

    assert BY_NAME["envoy"].version(binary) == "1.40.0"


@pytest.mark.parametrize("subject", [each for each in SUBJECTS if TLS in each.families])
def test_a_subject_under_tls_shows_the_runs_certificate(subject: Subject, site: Site) -> None:
    site = dataclasses.replace(site, setup=Setup(tls=True))
    command = subject.command(Path("binary"), site)
    written = {path: path.read_text() for path in site.directory.iterdir()}
    shown = {path.name for path in written if "BEGIN" in written[path]}

    assert shown == {"certificate.pem", "key.pem", "both.pem"}
    said = " ".join(command) + "".join(text for text in written.values() if "BEGIN" not in text)
    assert "certificate.pem" in said or "both.pem" in said


def test_a_subject_of_few_cases_takes_part_in_no_other() -> None:
    assert BY_NAME["router-2w"].takes_part("get-64-differ", "request")
    assert not BY_NAME["router-2w"].takes_part("get-8-differ", "request")
    assert BY_NAME["envoy"].takes_part("get-8-differ", "request")
    assert not BY_NAME["envoy"].takes_part("get-8-turns", "turns")


def test_an_older_revision_runs_its_own_code(monkeypatch, site: Site, tmp_path: Path) -> None:
    monkeypatch.setattr(revisions, "installed", lambda _name: tmp_path / "old")
    subject = at_revision("router@old")

    assert subject.title == title_of("router@old") == "Sandbox Router at old"
    assert subject.environment["PYTHONPATH"].startswith(str(tmp_path / "old"))
    assert subject.command(Path(sys.executable), site)[:4] == [
        sys.executable, "-m", "router", "serve",
    ]  # fmt: skip


def test_a_second_form_is_measured_only_where_there_are_two(monkeypatch) -> None:
    monkeypatch.setattr(subjects.code_form, "CURRENT", CodeForm(reason="it was not built"))
    assert BY_NAME["router-pure"].locate() is None

    monkeypatch.setattr(subjects.code_form, "CURRENT", CodeForm(modules={"router.a": "a.so"}))
    assert BY_NAME["router-pure"].locate() == BY_NAME["router"].locate()
    assert BY_NAME["router-pure"].environment == {"SANDBOX_ROUTER_FORM": "pure"}


def test_the_documentation_names_every_subject_and_case() -> None:
    page = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()

    for name in (*BY_NAME, *(case.name for case in CASES)):
        assert f"`{name}`" in page or f"`{name}," in page or f",{name}`" in page, name
