"""Suspending on a real API server: the rights that the chart gives suffice, and reach no further than the mode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.discovery.idle_timeout import IDLE_TIMEOUT_ANNOTATION
from router.kube.api_client import ApiError, KubernetesApi
from router.kube.cluster_access import ClusterAccess
from router.suspender.candidates import parse_candidate
from router.suspender.routers import ServiceRouters
from router.suspender.suspension import Outcome, Suspension
from tests.cluster.admin import SANDBOXES, Admin, RefusedError
from tests.cluster.conftest import Cluster
from tests.cluster.test_manifests_on_a_cluster import apply
from tests.deploy.rendering import NAMESPACE, TOKEN_REVIEW, chart
from tests.fakes.activity_router import ActivityRouter, activity
from tests.fakes.running_discovery import until
from tests.integration.suspender.test_suspend_idle import PATIENCE_S, suspending

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
]

ACCOUNT = "sandbox-router-suspend-idle"
CHART = {**TOKEN_REVIEW, "suspendIdle": {"enabled": True}}
IMAGE = {"op": "replace", "path": "/spec/podTemplate/spec/containers/0/image", "value": "evil"}
SUSPEND = {"op": "replace", "path": "/spec/operatingMode", "value": "Suspended"}


async def account(cluster: Cluster) -> ClusterAccess:
    """Returns the access of the account that the chart installs."""
    await apply(cluster, chart(CHART))
    token = await cluster.admin.account_token(NAMESPACE, ACCOUNT)
    bare = replace(cluster.access, cert_file=None, key_file=None, token_file=None)
    return replace(bare, authorization=f"Bearer {token}")


async def make(admin: Admin, namespace: str, name: str, timeout: str = "1s") -> dict[str, Any]:
    made = await admin.make_sandbox(
        namespace, name, is_ready=True, annotations={IDLE_TIMEOUT_ANNOTATION: timeout}
    )
    container = {"name": "app", "image": "example/app:1"}
    template = {"podTemplate": {"spec": {"containers": [container]}}}
    await admin.change_sandbox(namespace, name, {"spec": template})
    return made


async def read(admin: Admin, namespace: str, name: str) -> dict[str, Any]:
    return await admin.request("GET", f"{SANDBOXES}/namespaces/{namespace}/sandboxes/{name}")


@asynccontextmanager
async def with_every_right(admin: Admin) -> AsyncIterator[None]:
    """Lets the account do everything, so that the policy alone stands in the way."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "suspend-idle-everything"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    await admin.ensure(path, binding)
    try:
        yield
    finally:
        await admin.request("DELETE", f"{path}/suspend-idle-everything")


async def test_the_account_is_held_to_the_mode_whatever_its_rights(cluster: Cluster) -> None:
    cluster.ours()
    access, ns = await account(cluster), await cluster.namespace()
    await make(cluster.admin, ns, "box")
    path = f"{SANDBOXES}/namespaces/{ns}/sandboxes/box"

    async def tried(*operations: dict[str, Any], where: str = path) -> str:
        try:
            await api.patch_json(where, list(operations), timeout_s=10.0)
        except ApiError as error:
            return error.message
        return "done"

    async with (
        KubernetesApi(access=access) as api,
        Admin(access) as mine,
        with_every_right(cluster.admin),
    ):
        # A new policy is heard of within seconds.
        async with asyncio.timeout(60):
            while "spec but operatingMode" not in await tried(IMAGE, SUSPEND):
                original = {**IMAGE, "value": "example/app:1"}
                await cluster.admin.request(
                    "PATCH",
                    path,
                    [original, {**SUSPEND, "value": "Running"}],  # type: ignore[arg-type]
                    kind="application/json-patch+json",
                )
                await asyncio.sleep(0.5)

        label = {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
        note = {"op": "add", "path": "/metadata/annotations/a", "value": "b"}
        more = {"op": "add", "path": "/spec/shutdownPolicy", "value": "Delete"}
        less = {"op": "remove", "path": "/spec/podTemplate"}
        owners = {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/x"]}
        for operation in (label, note, owners):
            assert "labels, annotations" in await tried(operation, SUSPEND), operation
        for operation in (IMAGE, more, less):
            assert "nothing of a Sandbox's spec" in await tried(operation, SUSPEND), operation
        assert "to Suspended only" in await tried({**SUSPEND, "value": "Running"})
        status = {"op": "add", "path": "/status/nodeName", "value": "x"}
        assert "only change spec.operatingMode" in await tried(status, where=f"{path}/status")
        with pytest.raises(RefusedError, match=r"only change spec\.operatingMode"):
            await mine.request("DELETE", path)
        with pytest.raises(RefusedError, match=r"only change spec\.operatingMode"):
            await mine.make_sandbox(ns, "another")

        assert await tried(SUSPEND) == "done"

    box = await read(cluster.admin, ns, "box")
    assert box["spec"]["operatingMode"] == "Suspended"
    assert box["spec"]["podTemplate"]["spec"]["containers"][0]["image"] == "example/app:1"
    await cluster.admin.change_sandbox(ns, "box", {"metadata": {"labels": {"by": "others"}}})


async def test_the_router_may_wake_and_nothing_else(cluster: Cluster) -> None:
    cluster.ours()
    ns = await cluster.namespace()
    values = {"config": {**TOKEN_REVIEW["config"], "wake": "all"}, "suspendIdle": {"enabled": True}}
    await apply(cluster, chart(values))
    token = await cluster.admin.account_token(NAMESPACE, "sandbox-router")
    bare = replace(cluster.access, cert_file=None, key_file=None, token_file=None)
    await make(cluster.admin, ns, "box")
    path = f"{SANDBOXES}/namespaces/{ns}/sandboxes/box"
    asleep = {"spec": {"operatingMode": "Suspended"}}
    await cluster.admin.change_sandbox(ns, "box", asleep)
    wake = {**SUSPEND, "value": "Running"}

    old = f"/apis/agents.x-k8s.io/v1alpha1/namespaces/{ns}/sandboxes"
    item = {
        "apiVersion": "agents.x-k8s.io/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"name": "old"},
        "spec": {"replicas": 0, "podTemplate": {"spec": {"containers": [{"image": "a"}]}}},
    }
    await cluster.admin.request("POST", old, item)

    async with KubernetesApi(access=replace(bare, authorization=f"Bearer {token}")) as api:

        async def tried(*operations: dict[str, Any], where: str = path) -> str:
            try:
                await api.patch_json(where, list(operations), timeout_s=10.0)
            except ApiError as error:
                return error.message
            return "done"

        # A changed policy is heard of within seconds, and so are changed rights.
        async with asyncio.timeout(60):
            while "spec but operatingMode" not in await tried(IMAGE, wake):
                original = {**IMAGE, "value": "example/app:1"}
                await cluster.admin.request(
                    "PATCH",
                    path,
                    [original, SUSPEND],  # type: ignore[arg-type]
                    kind="application/json-patch+json",
                )
                await asyncio.sleep(0.5)
        assert await tried(wake) == "done"
        assert "to Running only" in await tried(SUSPEND)
        scale = {"op": "replace", "path": "/spec/replicas", "value": 1}
        assert "spec but operatingMode" in await tried(IMAGE, scale, where=f"{old}/old")
        assert await tried(scale, where=f"{old}/old") == "done"
        assert "to Running only" in await tried({**scale, "value": 0}, where=f"{old}/old")
        assert (await api.get_json(path, {}, read_timeout_s=10.0))["kind"] == "Sandbox"

    box = await read(cluster.admin, ns, "box")
    assert box["spec"]["operatingMode"] == "Running"
    assert box["spec"]["podTemplate"]["spec"]["containers"][0]["image"] == "example/app:1"


async def test_two_processes_share_the_work_with_no_more_rights_than_the_chart_gives(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.ours()
    access, ns = await account(cluster), await cluster.namespace()
    document = activity(idle_s={"busy": 0.0}, busy=("busy",), namespace=ns)
    await make(cluster.admin, ns, "idle")
    await make(cluster.admin, ns, "busy")
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": access.authorization.removeprefix("Bearer ")}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{ACCOUNT}"

    async with ActivityRouter(lambda: document) as router:
        args = ("--routers", router.address, "--namespace", NAMESPACE, "--lease", ACCOUNT)
        args += ("--namespaces", ns)
        async with suspending(kubeconfig, *args) as one, suspending(kubeconfig, *args) as two:
            both = (one, two)
            await until(
                lambda: any(each.said("sandbox suspended") for each in both), timeout_s=PATIENCE_S
            )
            held = (await cluster.admin.request("GET", lease))["spec"]
            (leader,) = [each for each in both if each.said("lease acquired")]
            assert [each for each in both if each.said("sandbox suspended")] == [leader]
            assert leader.said("lease acquired")[0]["identity"] == held["holderIdentity"]
            await make(cluster.admin, ns, "later")
            await until(lambda: len(leader.said("sandbox suspended")) == 2, timeout_s=PATIENCE_S)
        freed = (await cluster.admin.request("GET", lease))["spec"]

    modes = {
        name: (await read(cluster.admin, ns, name))["spec"]["operatingMode"]
        for name in ("idle", "later", "busy")
    }
    assert modes == {"idle": "Suspended", "later": "Suspended", "busy": "Running"}
    assert "holderIdentity" not in freed


async def test_whatever_changed_at_the_last_moment_is_a_conflict(cluster: Cluster) -> None:
    cluster.ours()
    ns = await cluster.namespace()
    await make(cluster.admin, ns, "box")
    candidate = parse_candidate(await read(cluster.admin, ns, "box"))
    path = f"{SANDBOXES}/namespaces/{ns}/sandboxes/box"
    async with KubernetesApi(access=cluster.access) as api:
        stale = replace(candidate, version="1")

        class Late(KubernetesApi):
            async def get_json(self, *_: Any, **__: Any) -> dict[str, Any]:
                found = await api.get_json(path, {}, read_timeout_s=10.0)
                return {**found, "metadata": {**found["metadata"], "resourceVersion": "1"}}

        async with Late(access=cluster.access) as late:
            result = await Suspension(api=late, is_dry_run=False).suspend(stale, lambda: True)
        fresh = await Suspension(api=api, is_dry_run=False).suspend(candidate, lambda: True)

    assert (result.outcome, fresh.outcome) == (Outcome.CONFLICT, Outcome.SUSPENDED)


async def test_slices_count_their_changes(cluster: Cluster) -> None:
    ns = await cluster.namespace()
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices"
    item = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "a", "labels": {"kubernetes.io/service-name": "routers"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}],
        "ports": [{"name": "admin", "port": 9090, "protocol": "TCP"}],
    }
    await cluster.admin.request("POST", slices, item)

    async def change(*addresses: str) -> None:
        endpoints = [{"addresses": [address]} for address in addresses]
        await cluster.admin.merge(f"{slices}/a", {"endpoints": endpoints})

    async with KubernetesApi(access=cluster.access) as api:
        finder = ServiceRouters(api=api, namespace=ns, name="routers")
        seen = [await finder.find(), await finder.find()]
        await change("10.0.0.1", "10.0.0.2")
        seen.append(await finder.find())
        await change("10.0.0.1", "10.0.0.2", "10.0.0.3")
        await change("10.0.0.1", "10.0.0.2")
        seen.append(await finder.find())

    assert [found.is_continuous for found in seen] == [True, True, True, False]
    assert [len(found.found) for found in seen] == [1, 1, 2, 2]
    assert seen[0].found[0].addresses == ("10.0.0.1:9090",)
