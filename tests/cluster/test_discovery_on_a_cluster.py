"""Discovery against a real API server: what the fake promises, the real one keeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from router.discovery.pace import Pace
from router.kube.api_client import KubernetesApi
from router.kube.cluster_access import ClusterAccess
from router.kube.reviews import KubernetesReviewer
from router.routing.endpoint import State
from tests.chaos.pods import ListeningPod
from tests.cluster.admin import SANDBOXES, Admin, RefusedError
from tests.cluster.conftest import Cluster
from tests.cluster.gate import Gate
from tests.fakes.cluster_objects import EXTENSIONS, owner, ready_condition
from tests.fakes.router_process import router
from tests.fakes.running_discovery import RunningDiscovery, discovery_of, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
]

PACE = Pace(page_size=50, first_retry_s=0.05, retry_limit_s=0.5)
POOL = owner("SandboxWarmPool", "pool", "pool-uid", group=EXTENSIONS)


@asynccontextmanager
async def watching(
    access: ClusterAccess, *namespaces: str, pace: Pace = PACE
) -> AsyncIterator[RunningDiscovery]:
    async with discovery_of(access, namespaces=namespaces, pace=pace) as running:
        yield running


async def launch(admin: Admin, namespace: str, name: str, address: str, **shape: Any) -> Any:
    """A sandbox that is up."""
    box = await admin.make_sandbox(namespace, name, **shape)
    await admin.make_pod(box, name, address=address, is_ready=True)
    return box


async def test_a_sandboxs_life_is_followed_state_by_state(cluster: Cluster) -> None:
    admin, ns = cluster.admin, await cluster.namespace()
    async with watching(cluster.access, ns) as running:
        await running.until_ready()
        assert running.discovery.notes() == []

        box = await admin.make_sandbox(ns, "box")
        await until(lambda: running.state("box", ns) is State.STARTING)
        await admin.make_pod(box, "box", address=("10.1.0.1", "fd00::1"))
        await until(lambda: running.found("box", ns) == (State.STARTING, "PodNotReady"))
        await admin.ready(ns, "box")
        await until(lambda: running.found("box", ns) == (State.READY, "10.1.0.1,fd00::1"))

        await admin.change_sandbox(ns, "box", {"spec": {"operatingMode": "Suspended"}})
        await until(lambda: running.state("box", ns) is State.SUSPENDED)
        await admin.terminate_pod(ns, "box")
        await admin.remove_pod(ns, "box")
        await admin.change_sandbox(ns, "box", {"spec": {"operatingMode": "Running"}})
        await until(lambda: running.state("box", ns) is State.STARTING)
        await admin.make_pod(box, "box", address="10.1.0.2", is_ready=True)
        await until(lambda: running.found("box", ns) == (State.READY, "10.1.0.2"))

        await admin.terminate_pod(ns, "box")
        await until(lambda: running.state("box", ns) is State.STARTING)
        await admin.remove_pod(ns, "box")
        expired = {"conditions": [ready_condition(False, "SandboxExpired")]}
        await admin.sandbox_status(ns, "box", expired)
        await until(lambda: running.found("box", ns) == (State.FINISHED, "SandboxExpired"))
        await admin.remove_sandbox(ns, "box")
        await until(lambda: running.state("box", ns) is None)


async def test_adoption_routes_at_once_by_both_names(cluster: Cluster) -> None:
    admin, ns = cluster.admin, await cluster.namespace()
    async with watching(cluster.access, ns) as running:
        await running.until_ready()
        box = await admin.make_sandbox(ns, "pool-1", controlled_by=POOL)
        await admin.make_pod(box, "pool-1", address="10.1.1.1", is_ready=True, is_pooled=True)
        await until(lambda: running.found("pool-1", ns) == (State.STARTING, "WaitingForClaim"))

        mine = await admin.make_claim(ns, "mine", "pool-1")
        by = owner("SandboxClaim", "mine", mine["metadata"]["uid"], group=EXTENSIONS)
        await admin.change_sandbox(ns, "pool-1", {"metadata": {"ownerReferences": [by]}})

        await until(lambda: running.found("mine", ns) == (State.READY, "10.1.1.1"))
        assert running.found("pool-1", ns) == (State.READY, "10.1.1.1")


async def test_hundreds_are_listed_in_pages_and_a_cut_watch_resumes(cluster: Cluster) -> None:
    admin, ns = cluster.admin, await cluster.namespace()
    for start in range(0, 260, 20):
        await asyncio.gather(
            *(
                launch(admin, ns, f"box-{n}", f"10.2.{n >> 8}.{n & 255}")
                for n in range(start, start + 20)
            )
        )
    target = cluster.access.server.rpartition(":")[2]
    if not target.isdigit():
        pytest.skip("needs the API server's port in its address")
    async with Gate(int(target)) as gate:
        access = replace(cluster.access, server=gate.url)
        async with watching(access, ns) as running:
            await running.until_ready()
            assert running.index.ready_count() == 260

            for number in range(3):
                gate.cut()
                await launch(admin, ns, f"new-{number}", f"10.3.0.{number}")
                name = f"new-{number}"
                await until(lambda name=name: running.state(name, ns) is State.READY)  # type: ignore[misc]

            assert [each.lists for each in running.discovery.reflectors()] == [1, 1, 1]
            assert running.retired == []


async def test_a_compacted_history_leads_to_a_new_list(cluster: Cluster) -> None:
    local = cluster.ours()
    admin, ns = cluster.admin, await cluster.namespace()
    await launch(admin, ns, "goes", "10.4.0.1")
    await launch(admin, ns, "stays", "10.4.0.2")
    async with Gate(local.api_port) as gate:
        access = replace(cluster.access, server=gate.url)
        async with watching(access, ns) as running:
            await running.until_ready()
            assert running.index.ready_count() == 2

            await gate.close()
            await admin.remove_pod(ns, "goes")
            await admin.remove_sandbox(ns, "goes")
            await launch(admin, ns, "comes", "10.4.0.1")
            await local.stop("kube-apiserver")
            assert running.state("goes", ns) is State.READY
            await _compact(local.etcd_port)
            await local.start_api_server()
            await gate.open()

            await until(lambda: running.state("comes", ns) is State.READY, timeout_s=30)
            await until(lambda: running.state("goes", ns) is None, timeout_s=30)
            assert running.discovery.watch_restarts["pods", "expired"] >= 1
            assert running.discovery.reflectors()[0].lists == 2
            assert [endpoint.ref.name for endpoint in running.retired] == ["goes"]


async def test_known_sandboxes_outlive_the_api_server(cluster: Cluster) -> None:
    local = cluster.ours()
    admin, ns = cluster.admin, await cluster.namespace()
    await launch(admin, ns, "box", "10.5.0.1")
    async with watching(cluster.access, ns) as running:
        await running.until_ready()
        await local.stop("kube-apiserver")
        await until(lambda: running.index.is_stale(2.0), timeout_s=10)
        assert running.state("box", ns) is State.READY
        assert running.discovery.missing() == []
        assert len(running.discovery.notes()) == 3

        await local.start_api_server()
        await launch(admin, ns, "next", "10.5.0.2")
        await until(lambda: running.state("next", ns) is State.READY, timeout_s=20)
        await until(lambda: running.discovery.notes() == [], timeout_s=20)
        assert running.retired == []


async def test_roles_in_the_listed_namespaces_suffice_and_a_missing_one_is_named(
    cluster: Cluster,
) -> None:
    admin = cluster.admin
    home, first, second = [await cluster.namespace() for _ in range(3)]
    token = await admin.make_account(home, "router")
    await admin.allow_watching(first, home, "router")
    await launch(admin, first, "box", "10.6.0.1")
    await launch(admin, second, "box", "10.6.0.2")
    access = replace(cluster.access, authorization=f"Bearer {token}", token_file=None)
    access = replace(access, cert_file=None, key_file=None)
    async with watching(access, first, second) as running:
        await until(lambda: running.state("box", first) is State.READY)
        await until(lambda: len(running.discovery.missing()) == 1)
        (missing,) = running.discovery.missing()
        assert missing.startswith(f"pods in namespace {second}: 403")
        assert f"system:serviceaccount:{home}:router" in missing

        await admin.allow_watching(second, home, "router")
        await until(lambda: running.state("box", second) is State.READY, timeout_s=20)
        await until(lambda: running.discovery.notes() == [], timeout_s=20)


async def test_a_service_accounts_token_is_read_again_when_it_is_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    admin, ns = cluster.admin, await cluster.namespace()
    token = tmp_path / "token"
    token.write_text(await admin.make_account(ns, "router"))
    await admin.allow_watching(ns, ns, "router")
    target = cluster.access.server.rpartition(":")[2]
    async with Gate(int(target)) as gate:
        access = replace(
            cluster.access, server=gate.url, authorization="", token_file=token, cert_file=None
        )
        async with watching(access, ns) as running:
            await running.until_ready()
            token.write_text("expired")
            gate.cut()
            await until(lambda: running.discovery.watch_restarts["pods", "unauthorized"] > 0)
            token.write_text(await admin.account_token(ns, "router"))

            await launch(admin, ns, "box", "10.7.0.1")
            await until(lambda: running.state("box", ns) is State.READY)
            assert running.discovery.reflectors()[0].lists == 1


async def test_an_older_version_serves_where_the_new_one_does_not(cluster: Cluster) -> None:
    cluster.ours()
    admin, ns = cluster.admin, await cluster.namespace()
    await launch(admin, ns, "asleep", "10.8.0.1", mode="Suspended")
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sandboxes.agents.x-k8s.io"
    versions = (await admin.request("GET", crd))["spec"]["versions"]

    async def serve(*names: str) -> None:
        changed = [{**each, "served": each["name"] in names} for each in versions]
        await admin.merge(crd, {"spec": {"versions": changed}})

    await serve("v1alpha1")
    try:
        await until_async(lambda: _status(admin, f"{SANDBOXES}/sandboxes"), 404)
        async with watching(cluster.access, ns) as running:
            await running.until_ready()
            assert running.state("asleep", ns) is State.SUSPENDED
            # "storage is (re)initializing", says the server for a moment.
            await until(lambda: running.discovery.notes() == [])
    finally:
        await serve("v1beta1", "v1alpha1")
        await until_async(lambda: _status(admin, f"{SANDBOXES}/sandboxes"), 200)


async def test_a_quiet_watch_ends_in_time_and_goes_on_without_a_new_list(cluster: Cluster) -> None:
    ns = await cluster.namespace()
    async with watching(cluster.access, ns, pace=Pace(watch_timeout_s=6.0)) as running:
        await running.until_ready()

        await asyncio.sleep(20)

        assert {reason for _, reason in running.discovery.watch_restarts} == {"ended"}
        for reflector in running.discovery.reflectors():
            assert reflector.watches >= 3
            assert reflector.lists == 1
        age_s = running.index.age_s()
        assert age_s is not None
        assert age_s < 10


async def test_tokens_are_reviewed(cluster: Cluster) -> None:
    admin, ns = cluster.admin, await cluster.namespace()
    token = await admin.make_account(ns, "caller")
    async with KubernetesApi(access=cluster.access) as api:
        reviewer = KubernetesReviewer(api=api)
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        known = await reviewer.review(body)
        assert known["status"]["user"]["username"] == f"system:serviceaccount:{ns}:caller"
        body["spec"] = {"token": "nobody's"}
        assert not (await reviewer.review(body))["status"].get("authenticated")


async def test_a_real_router_serves_what_the_cluster_says(cluster: Cluster) -> None:
    admin, ns = cluster.admin, await cluster.namespace()
    containers = [ListeningPod(f"pod-{n}", f"127.99.0.{n + 1}") for n in range(2)]
    for container in containers:
        await container.start()
    flags = ("--discovery=kubernetes", f"--kubeconfig={cluster.kubeconfig}", "--auth=none")
    try:
        async with router(*flags, f"--namespaces={ns}") as running, aiohttp.ClientSession() as http:
            await running.until_ready()
            url = f"http://127.0.0.1:{running.http_port}/"
            headers = {"X-Sandbox-ID": "box", "X-Sandbox-Namespace": ns}

            async def ask() -> tuple[int, str]:
                async with http.get(url, headers=headers) as answer:
                    return answer.status, await answer.text()

            assert (await ask())[0] == 404
            box = await admin.make_sandbox(ns, "box")
            await admin.make_pod(box, "box", address=containers[0].address)
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(ask())
                await asyncio.sleep(0.3)
                assert not waiting.done()
                ready_at = time.monotonic()
                await admin.ready(ns, "box")
            assert waiting.result() == (200, "pod-0")
            assert time.monotonic() - ready_at < 2.0

            await admin.terminate_pod(ns, "box")
            await admin.remove_pod(ns, "box")
            await admin.make_pod(box, "box", address=containers[1].address, is_ready=True)
            assert await ask() == (200, "pod-1")
            await admin.change_sandbox(ns, "box", {"spec": {"operatingMode": "Suspended"}})
            await until_async(lambda: status_of(ask), 409)
    finally:
        for container in containers:
            container.stop()


async def status_of(ask: Callable[[], Awaitable[tuple[int, str]]]) -> int:
    return (await ask())[0]


async def until_async(
    found: Callable[[], Awaitable[int]], expected: int, timeout_s: float = 20.0
) -> None:
    """Returns once `found()` gives what is expected."""
    async with asyncio.timeout(timeout_s):
        while await found() != expected:
            await asyncio.sleep(0.1)


async def _status(admin: Admin, path: str) -> int:
    try:
        await admin.request("GET", path)
    except RefusedError as error:
        return error.status
    return 200


async def _compact(etcd_port: int) -> None:
    """Makes etcd forget every version but the newest."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{etcd_port}") as etcd:
        async with etcd.post("/v3/kv/range", json={"key": "AA=="}) as answer:
            revision = (await answer.json())["header"]["revision"]
        wanted = {"revision": revision, "physical": True}
        async with etcd.post("/v3/kv/compaction", json=wanted) as answer:
            assert answer.status == 200, await answer.text()
