"""Waking against a real API server: what it answers to the patch, and a whole router whose request brings a sandbox back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from router.kube.api_client import KubernetesApi
from router.kube.waker import KubernetesWaker
from router.proxy.ports import WakeFailed
from router.routing.endpoint import Endpoint, SandboxRef, State
from tests.cluster.admin import SANDBOXES
from tests.cluster.conftest import Cluster
from tests.fakes.router_process import router
from tests.fakes.sleepy_cluster import App

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
]


@asynccontextmanager
async def waking(cluster: Cluster, token: str = "") -> AsyncIterator[KubernetesWaker]:
    """A waker with every right, or with those of a service account's token."""
    access = cluster.access
    if token:
        nobody: dict[str, Any] = {"cert_file": None, "key_file": None}
        access = replace(access, authorization=f"Bearer {token}", **nobody)
    async with KubernetesApi(access=access) as api:
        yield KubernetesWaker(api=api)


def endpoint(item: dict[str, Any], *, uid: str = "") -> Endpoint:
    metadata = item["metadata"]
    ref = SandboxRef(metadata["namespace"], metadata["name"])
    return Endpoint(ref, "", State.SUSPENDED, sandbox_uid=uid or metadata["uid"])


async def mode(cluster: Cluster, namespace: str, name: str) -> str:
    path = f"{SANDBOXES}/namespaces/{namespace}/sandboxes/{name}"
    return str((await cluster.admin.request("GET", path))["spec"]["operatingMode"])


async def test_a_suspended_sandbox_is_set_to_running_and_nothing_else(cluster: Cluster) -> None:
    ns = await cluster.namespace()
    box = await cluster.admin.make_sandbox(ns, "box", mode="Suspended")
    async with waking(cluster) as waker:
        assert await waker.wake(endpoint(box)) is True
        assert await mode(cluster, ns, "box") == "Running"
        path = f"{SANDBOXES}/namespaces/{ns}/sandboxes/box"
        now = await cluster.admin.request("GET", path)
        assert {**now["spec"], "operatingMode": "Suspended"} == box["spec"]

        assert await waker.wake(endpoint(box)) is False, "somebody was faster"


async def test_another_sandbox_of_that_name_is_left_alone(cluster: Cluster) -> None:
    ns = await cluster.namespace()
    box = await cluster.admin.make_sandbox(ns, "box", mode="Suspended")
    async with waking(cluster) as waker:
        assert await waker.wake(endpoint(box, uid="another")) is False
        assert await mode(cluster, ns, "box") == "Suspended"
        await cluster.admin.remove_sandbox(ns, "box")
        assert await waker.wake(endpoint(box)) is False


async def test_a_missing_right_is_told_in_the_servers_words(cluster: Cluster) -> None:
    ns = await cluster.namespace()
    box = await cluster.admin.make_sandbox(ns, "box", mode="Suspended")
    token = await cluster.admin.make_account(ns, "no-waker")
    async with waking(cluster, token) as waker:
        with pytest.raises(WakeFailed) as told:
            await waker.wake(endpoint(box))
    assert told.value.reason.startswith("HTTP 403 Forbidden: ")
    assert "cannot patch resource" in told.value.reason
    assert not told.value.concerns_all


async def test_a_request_brings_a_sandbox_back(cluster: Cluster) -> None:
    admin, ns = cluster.admin, await cluster.namespace()
    box = await admin.make_sandbox(ns, "box", mode="Suspended", reason="SandboxSuspended")
    app = App("none", "127.66.0.1")

    async def controller() -> None:
        """Stands in for the controller and the kubelet: a pod, Ready before its server listens."""
        while await mode(cluster, ns, "box") == "Suspended":
            await asyncio.sleep(0.05)
        made = await admin.make_pod(box, "box", address=app.address)
        app.uid = made["metadata"]["uid"]
        await asyncio.sleep(0.5)
        await admin.ready(ns, "box")
        await asyncio.sleep(0.5)
        await app.start()

    flags = ("--discovery=kubernetes", f"--kubeconfig={cluster.kubeconfig}", f"--namespaces={ns}")
    async with router(*flags, "--auth=none", "--wake=all") as running:
        await running.until_ready(60)
        acting = asyncio.get_running_loop().create_task(controller())
        try:
            url = f"http://127.0.0.1:{running.http_port}/run"
            headers = {"X-Sandbox-ID": "box", "X-Sandbox-Namespace": ns}
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, headers=headers, data=b"x" * 1000) as response,
            ):
                assert response.status == 200
                assert await response.text() == f"{app.uid} POST 1000"
            await acting
        finally:
            acting.cancel()
            app.stop()
