"""Tests that the tools are the real programs, of the versions we say, and that a missing one says why."""

import subprocess

import pytest

from tests.deploy import debian, rendering, tools


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """Makes this a machine with an empty cache and nothing on its PATH."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "SYSTEM_FOLDERS", str(tmp_path))
    return tmp_path


def program(path, says):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


def test_helm_and_kubectl_are_the_real_ones_of_the_pinned_versions():
    helm, kubectl = rendering.found("helm"), rendering.found("kubectl")

    shown = [
        subprocess.run(
            [helm, "version", "--short"], capture_output=True, text=True, check=True
        ).stdout,
        subprocess.run(
            [kubectl, "version", "--client"], capture_output=True, text=True, check=True
        ).stdout,
    ]

    assert tools.HELM_VERSION in shown[0]
    assert tools.KUBECTL_VERSION in shown[1]


def test_a_tool_of_another_version_is_refused(tmp_path):
    impostor = program(tmp_path / "helm", "echo v0.0.1")

    with pytest.raises(tools.ToolMissing, match=r"says 'v0\.0\.1', expected v4\.3\.1"):
        tools._expect(tools.HELM_VERSION, impostor, "version")


def test_a_tool_that_does_not_start_here_is_missing_and_says_why(tmp_path):
    broken = program(tmp_path / "nginx", "echo libpcre2 is not here >&2; exit 127")

    with pytest.raises(tools.ToolMissing, match="does not start here: libpcre2 is not here"):
        tools._expect("nginx/", broken, "-v")


def test_a_tool_is_fetched_once_and_then_taken_from_the_cache(bare):
    fetched = []

    def fetch() -> bytes:
        fetched.append(1)
        return b"#!/bin/sh\n"

    first, second = tools._cached("tool", fetch), tools._cached("tool", fetch)

    assert first == second == bare / "cache" / "sandbox-router-tools" / "tool"
    assert first.stat().st_mode & 0o111
    assert fetched == [1]


def test_a_fetch_that_fails_leaves_nothing_that_passes_for_the_tool(bare):
    def fetch() -> bytes:
        raise tools.ToolMissing("no network")

    with pytest.raises(tools.ToolMissing, match="no network"):
        tools._cached("tool", fetch)

    assert not (bare / "cache" / "sandbox-router-tools" / "tool").exists()


def test_a_program_of_the_machine_is_taken_first(bare):
    installed = program(bare / "nginx", "echo nginx version: nginx/1.22.1 >&2")

    assert tools.nginx() == installed


def test_a_machine_without_the_program_gets_it_out_of_its_package(bare, monkeypatch):
    asked = []

    def file_of(packages, member, *, lists):
        asked.append((packages[0], member))
        return b"#!/bin/sh\necho nginx version: nginx/1.22.1 >&2\n"

    monkeypatch.setattr(debian, "file_of", file_of)

    assert tools.nginx() == bare / "cache" / "sandbox-router-tools" / "nginx"
    assert asked == [("nginx", "usr/sbin/nginx")]


def test_a_machine_without_the_program_and_without_packages_is_told_what_is_missing(bare):
    with pytest.raises(tools.ToolMissing, match=r"nginx is not installed, and .* no apt-get"):
        tools.nginx()


def test_a_home_that_can_not_be_written_to_leaves_a_folder_of_our_own_elsewhere(bare, monkeypatch):
    (bare / "cache").write_text("a file where the folder would be")
    monkeypatch.setattr(tools.tempfile, "gettempdir", lambda: str(bare))

    folder = tools.cache_folder()

    assert folder.parent == bare
    assert folder.is_dir()


def test_a_missing_tool_skips_with_its_reason_and_fails_where_ci_asks_for_everything(monkeypatch):
    def absent():
        raise tools.ToolMissing("nobody has it")

    monkeypatch.setattr(tools, "absent", absent, raising=False)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no absent here: nobody has it"):
        rendering.found("absent")

    monkeypatch.setenv("CI", "true")
    with pytest.raises(tools.ToolMissing, match="nobody has it"):
        rendering.found("absent")
