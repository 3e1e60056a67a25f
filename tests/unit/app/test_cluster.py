"""The API server is reached for where somebody needs it, and left alone elsewhere."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from router.app.cluster import api_if
from router.kube.api_client import KubernetesApi
from router.settings import Settings, load

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: t}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
"""


def settings(kubeconfig: Path) -> Settings:
    said = {"auth": "none", "discovery": "kubernetes", "kubeconfig": str(kubeconfig)}
    return load(said).settings


async def test_nothing_is_read_for_nobody(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("no YAML: [")
    async with contextlib.AsyncExitStack() as resources:
        assert await api_if(settings(tmp_path / "kubeconfig"), resources, {}, False) is None


async def test_whoever_needs_it_gets_a_client(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    async with contextlib.AsyncExitStack() as resources:
        api = await api_if(settings(tmp_path / "kubeconfig"), resources, {}, True)
        assert isinstance(api, KubernetesApi)


async def test_a_kubeconfig_that_can_not_be_used_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("no YAML: [")
    async with contextlib.AsyncExitStack() as resources:
        with pytest.raises((ValueError, OSError)):
            await api_if(settings(tmp_path / "kubeconfig"), resources, {}, True)
