"""Tests that the tools are the real programs, of the versions we say."""

import subprocess

import pytest

from tests.deploy import rendering, tools


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
    impostor = tmp_path / "helm"
    impostor.write_text("#!/bin/sh\necho v0.0.1\n")
    impostor.chmod(0o755)

    with pytest.raises(tools.ToolMissing, match=r"says 'v0\.0\.1', expected v4\.3\.1"):
        tools._expect(tools.HELM_VERSION, [impostor, "version"])


def test_a_tool_is_fetched_once_and_then_taken_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fetched = []

    def fetch() -> bytes:
        fetched.append(1)
        return b"#!/bin/sh\n"

    first, second = tools._cached("tool", fetch), tools._cached("tool", fetch)

    assert first == second == tmp_path / "sandbox-router-tools" / "tool"
    assert first.stat().st_mode & 0o111
    assert fetched == [1]


def test_the_reason_of_a_failed_fetch_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with pytest.raises(tools.ToolMissing, match=r"`false` failed"):
        tools._cached("tool", lambda: tools._run(["false"]))

    assert not (tmp_path / "sandbox-router-tools" / "tool").exists()
