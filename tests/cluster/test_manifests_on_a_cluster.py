"""Chart and manifests against a real API server: it takes every object, and their rights are all that the router needs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from router.kube.api_client import KubernetesApi
from router.kube.cluster_access import kubeconfig_access
from router.kube.reviews import KubernetesReviewer
from router.routing.endpoint import State
from tests.cluster.conftest import Cluster
from tests.cluster.test_discovery_on_a_cluster import launch, watching
from tests.deploy import crds
from tests.deploy.matrix import MATRIX
from tests.deploy.rendering import (
    DEPLOY,
    MONITORING_KINDS,
    NAMESPACE,
    TOKEN_REVIEW,
    Object,
    Objects,
    chart,
    kustomize,
    parsed,
)
from tests.deploy.tools import kubectl
from tests.fakes.running_discovery import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
]

FOLDERS = ("base", *(f"overlays/{path.name}" for path in sorted((DEPLOY / "overlays").iterdir())))


def _native(objects: Objects) -> list[Object]:
    """Returns what Kubernetes itself knows; custom resources are judged by schemas of ours, in tests/deploy."""
    return [item for item in objects.items if "apiVersion" in item and not crds.is_known(item)]


FILES = tuple(
    str(path.relative_to(DEPLOY))
    for path in sorted((DEPLOY / "examples").rglob("*.yaml"))
    if _native(parsed(path.read_text()))
)


async def apply(cluster: Cluster, objects: Objects, *flags: str) -> str:
    """Has kubectl apply what Kubernetes itself knows. Returns what it says."""
    for namespace in (NAMESPACE, "team-a", "team-b", "default"):
        item = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await cluster.admin.ensure("/api/v1/namespaces", item)
    native = _native(objects)
    assert native
    process = await asyncio.create_subprocess_exec(
        kubectl(), f"--kubeconfig={cluster.kubeconfig}", f"--cache-dir={cluster.kubeconfig}.cache",
        "apply", "--server-side", "--validate=strict", *flags, "-f", "-",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate(yaml.safe_dump_all(native).encode())
    said = output.decode()
    assert process.returncode == 0, said
    assert len(said.splitlines()) == len(native), said
    return said


@pytest.mark.parametrize("name", MATRIX)
async def test_the_api_server_takes_every_object_of_the_chart(cluster: Cluster, name: str) -> None:
    cluster.ours()
    objects = chart(MATRIX[name], kinds=MONITORING_KINDS)

    await apply(cluster, objects, "--dry-run=server")


@pytest.mark.parametrize("folder", FOLDERS)
async def test_the_api_server_takes_every_object_of_the_manifests(
    cluster: Cluster, folder: str
) -> None:
    cluster.ours()

    await apply(cluster, kustomize(DEPLOY / folder), "--dry-run=server")


@pytest.mark.parametrize("file", FILES)
async def test_the_api_server_takes_the_examples(cluster: Cluster, file: str) -> None:
    cluster.ours()

    await apply(cluster, parsed((DEPLOY / file).read_text()), "--dry-run=server")


@pytest.mark.parametrize("way", ["chart", "manifests"])
async def test_what_is_installed_gives_the_router_every_right_that_it_needs(
    cluster: Cluster, way: str, tmp_path: Path
) -> None:
    local, admin = cluster.ours(), cluster.admin
    objects = chart(TOKEN_REVIEW) if way == "chart" else kustomize(DEPLOY / "base")
    await apply(cluster, objects, f"--field-manager={way}", "--force-conflicts")
    again = await apply(cluster, objects, f"--field-manager={way}")
    assert "created" not in again
    account = objects.one("ServiceAccount")["metadata"]["name"]
    token = await admin.account_token(NAMESPACE, account)
    access = await kubeconfig_access(str(local.kubeconfig(f"{way}-account", {"token": token})))
    ns = await cluster.namespace()
    await launch(admin, ns, "box", "10.13.0.1" if way == "chart" else "10.13.0.2")
    try:
        async with watching(access) as running:
            await running.until_ready()
            assert running.discovery.notes() == []
            await until(lambda: running.state("box", ns) is State.READY)
        async with KubernetesApi(access=replace(access)) as api:
            reviewer = KubernetesReviewer(api=api)
            for kind, group, spec in (
                ("TokenReview", "authentication.k8s.io", {"token": token}),
                (
                    "SubjectAccessReview",
                    "authorization.k8s.io",
                    {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}},
                ),
            ):
                body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
                assert "status" in await reviewer.review(body)
    finally:
        await remove(cluster, objects)


async def remove(cluster: Cluster, objects: Objects) -> None:
    process = await asyncio.create_subprocess_exec(
        kubectl(), f"--kubeconfig={cluster.kubeconfig}", f"--cache-dir={cluster.kubeconfig}.cache",
        "delete", "--ignore-not-found", "--wait=false", "-f", "-",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    # Not the namespace: nobody finishes its deletion here, and the next test needs it.
    kept = [item for item in objects.items if item["kind"] != "Namespace"]
    await process.communicate(yaml.safe_dump_all(kept).encode())
