"""The cluster that these tests run against: the one that KUBECONFIG names, else one that is built and started here.

They are left out unless asked for: `pytest -m cluster tests/cluster` (that is `make test-cluster`).
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from router.kube.cluster_access import ClusterAccess, kubeconfig_access
from tests.cluster.admin import Admin, RefusedError
from tests.cluster.local_cluster import LocalCluster, local_cluster
from tests.deploy.tools import ToolMissing

CRDS = Path(__file__).parent / "crds"


@dataclass
class Cluster:
    """A real cluster and the rights to everything in it."""

    admin: Admin
    access: ClusterAccess
    kubeconfig: Path
    local: LocalCluster | None
    """None for a cluster that isn't ours to stop."""

    def ours(self) -> LocalCluster:
        """Returns the local cluster; skips the test on somebody else's."""
        if self.local is None:
            pytest.skip("needs a cluster whose API server may be stopped or changed")
        return self.local

    async def namespace(self, name: str = "") -> str:
        """Returns a new namespace."""
        name = name or f"router-{uuid.uuid4().hex[:8]}"
        item = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.admin.request("POST", "/api/v1/namespaces", item)
        return name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_asked_for = "cluster" in str(config.getoption("markexpr", ""))
    for item in items:
        if item.get_closest_marker("cluster") and not is_asked_for:
            item.add_marker(pytest.mark.skip(reason="run them with `make test-cluster`"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    named = os.environ.get("KUBECONFIG")
    if named:
        async with _opened(Path(named), None) as found:
            yield found
        return
    try:
        async with (
            local_cluster(tmp_path_factory.mktemp("cluster")) as local,
            _opened(local.admin_kubeconfig(), local) as found,
        ):
            yield found
    except ToolMissing as error:
        # They were asked for: that they can't run is no success.
        pytest.fail(str(error))


@asynccontextmanager
async def _opened(kubeconfig: Path, local: LocalCluster | None) -> AsyncIterator[Cluster]:
    access = await kubeconfig_access(str(kubeconfig))
    async with Admin(access) as admin:
        await _install_crds(admin)
        yield Cluster(admin, access, kubeconfig, local)


async def _install_crds(admin: Admin) -> None:
    for path in sorted(CRDS.glob("*.yaml")):
        await admin.ensure(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            yaml.safe_load(path.read_text()),
        )
    async with asyncio.timeout(30):
        for path in (
            "/apis/agents.x-k8s.io/v1beta1/sandboxes",
            "/apis/extensions.agents.x-k8s.io/v1beta1/sandboxclaims",
        ):
            while not await _is_served(admin, path):
                await asyncio.sleep(0.2)


async def _is_served(admin: Admin, path: str) -> bool:
    try:
        await admin.request("GET", path)
    except RefusedError as error:
        if error.status not in (404, 429, 503):
            raise
        return False
    return True
