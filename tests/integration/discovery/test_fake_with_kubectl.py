"""The fake API server, judged by real kubectl and by kubernetes-asyncio: what they can do with it, the router may trust."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from kubernetes_asyncio import client, config, watch

from tests.deploy.tools import ToolMissing, kubectl
from tests.fakes.cluster_objects import pod, sandbox
from tests.fakes.kubernetes_api import FakeKubernetes, User
from tests.fakes.kubernetes_store import PODS, SANDBOXES

GROUP = "agents.x-k8s.io"


@dataclass
class Kubectl:
    """Real kubectl, pointed at the fake."""

    binary: Path
    kubeconfig: Path
    home: Path

    async def __call__(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 30)
        assert (process.returncode != 0) is fails, err.decode() + out.decode()
        return (err if fails else out).decode()

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            self.binary,
            "--kubeconfig",
            self.kubeconfig,
            *arguments,
            env={"HOME": str(self.home)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def fake(authority: trustme.CA) -> AsyncIterator[FakeKubernetes]:
    # kubectl keeps its token to itself unless the connection is encrypted.
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    async with FakeKubernetes(tokens={"secret": User("me")}, server_tls=tls) as api:
        yield api


@pytest.fixture
def kubeconfig(fake: FakeKubernetes, authority: trustme.CA, tmp_path: Path) -> Path:
    pem = authority.cert_pem.bytes()
    return fake.write_kubeconfig(tmp_path / "config", user={"token": "secret"}, ca_pem=pem)


@pytest.fixture
def kubectl_for(kubeconfig: Path, tmp_path: Path) -> Kubectl:
    try:
        binary = kubectl()
    except ToolMissing as error:
        pytest.skip(str(error))
    return Kubectl(binary, kubeconfig, tmp_path)


async def test_kubectl_discovers_the_resources(kubectl_for: Kubectl) -> None:
    found = await kubectl_for("api-resources", "-o", "name")

    assert {"pods", f"sandboxes.{GROUP}", f"sandboxclaims.extensions.{GROUP}"} <= set(found.split())
    assert "v1.37.0-fake" in await kubectl_for("version")


async def test_kubectl_creates_reads_changes_and_deletes(kubectl_for: Kubectl) -> None:
    box = {"apiVersion": f"{GROUP}/v1beta1", "kind": "Sandbox", **sandbox("box", uid="u")}

    await kubectl_for("create", "--validate=false", "-f", "-", stdin=json.dumps(box))
    await kubectl_for("annotate", "sandbox", "box", "note=hello")
    await kubectl_for("label", "sandbox", "box", "tier=gold")
    patch = '{"spec":{"operatingMode":"Suspended"}}'
    await kubectl_for("patch", "sandbox", "box", "--type=merge", "-p", patch)

    shown = json.loads(await kubectl_for("get", "sandbox", "box", "-o", "json"))
    assert shown["metadata"]["annotations"]["note"] == "hello"
    assert shown["metadata"]["generation"] == 2
    assert shown["spec"]["operatingMode"] == "Suspended"
    assert await kubectl_for("get", "sandboxes", "-l", "tier in (gold,silver)", "-o", "name")
    assert not await kubectl_for("get", "sandboxes", "-l", "tier!=gold", "-o", "name")
    old = json.loads(await kubectl_for("get", f"sandboxes.v1alpha1.{GROUP}", "box", "-o", "json"))
    assert old["spec"]["replicas"] == 0

    await kubectl_for("delete", "sandbox", "box", "--timeout=10s")
    assert "NotFound" in await kubectl_for("get", "sandbox", "box", fails=True)


async def test_kubectl_applies_and_changes_a_status(
    kubectl_for: Kubectl, fake: FakeKubernetes
) -> None:
    item = {"apiVersion": "v1", "kind": "Pod", **pod("p", of=sandbox("box"))}
    for stage in ("one", "two"):
        item["metadata"]["labels"]["stage"] = stage
        await kubectl_for("apply", "--validate=false", "-f", "-", stdin=json.dumps(item))

    patch = '{"status":{"phase":"Failed"}}'
    await kubectl_for("patch", "pod", "p", "--subresource=status", "--type=merge", "-p", patch)

    found = fake.store.get(PODS, "default", "p")
    assert found["metadata"]["labels"]["stage"] == "two"
    assert found["status"]["phase"] == "Failed"


async def test_kubectl_lists_in_chunks_and_selects(
    kubectl_for: Kubectl, fake: FakeKubernetes
) -> None:
    for number in range(23):
        fake.store.create(PODS, pod(f"p{number:02}", of=sandbox("box")))

    names = await kubectl_for("get", "pods", "--chunk-size=5", "-o", "name", "-A")

    assert len(names.split()) == 23
    assert fake.requests.count(("list", "pods", None)) == 5
    one = await kubectl_for("get", "pods", "--field-selector", "metadata.name=p07", "-o", "name")
    assert one.split() == ["pod/p07"]


async def test_kubectl_watches_and_waits(kubectl_for: Kubectl, fake: FakeKubernetes) -> None:
    fake.store.create(SANDBOXES, sandbox("box"))
    process = await kubectl_for.start("get", "sandboxes", "-w", "--output-watch-events")
    stdout = process.stdout
    assert stdout is not None

    async def next_event() -> bytes:
        return (await asyncio.wait_for(stdout.readline(), 20)).split()[0]

    assert await next_event() == b"EVENT"
    assert await next_event() == b"ADDED"
    waiting = await kubectl_for.start("wait", "sandbox/box", "--for=condition=Ready")
    fake.store.update(SANDBOXES, "default", "box", lambda item: sandbox("box", is_ready=True))
    assert await next_event() == b"MODIFIED"
    assert b"condition met" in (await asyncio.wait_for(waiting.communicate(), 20))[0]
    fake.store.delete(SANDBOXES, "default", "box")
    assert await next_event() == b"DELETED"
    process.terminate()
    await process.communicate()


async def test_kubectl_is_refused_without_a_good_token_and_where_rules_forbid(
    kubectl_for: Kubectl, fake: FakeKubernetes
) -> None:
    fake.allows = lambda user, verb, resource, namespace: namespace == "team-a"

    assert "forbidden" in await kubectl_for("get", "pods", "-n", "team-b", fails=True)
    await kubectl_for("get", "pods", "-n", "team-a")
    fake.tokens.clear()
    fake.tokens["other"] = User("other")
    error = await kubectl_for("get", "pods", "-n", "team-a", fails=True)
    assert "logged in" in error or "Unauthorized" in error


async def test_the_python_client_lists_and_watches(fake: FakeKubernetes, kubeconfig: Path) -> None:
    configuration = client.Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    fake.store.create(PODS, pod("first", of=sandbox("box"), address="10.0.0.1", is_ready=True))
    async with client.ApiClient(configuration) as api:
        pods = await client.CoreV1Api(api).list_pod_for_all_namespaces(limit=1)
        assert pods.items[0].status.pod_ip == "10.0.0.1"

        events: list[tuple[str, str]] = []
        async with watch.Watch() as stream:
            fake.store.create(PODS, pod("second", of=sandbox("box")))
            fake.store.delete(PODS, "default", "first")
            async for event in stream.stream(
                client.CoreV1Api(api).list_namespaced_pod,
                "default",
                resource_version=pods.metadata.resource_version,
                timeout_seconds=1,
            ):
                events.append((event["type"], event["object"].metadata.name))
                if len(events) == 2:
                    break

    assert events == [("ADDED", "second"), ("DELETED", "first")]


async def test_the_python_client_sees_an_expired_version_as_410(
    fake: FakeKubernetes, kubeconfig: Path
) -> None:
    configuration = client.Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    fake.store.create(PODS, pod("first", of=sandbox("box")))
    fake.store.create(PODS, pod("second", of=sandbox("box")))
    fake.store.compact()

    async def follow() -> None:
        async with client.ApiClient(configuration) as api, watch.Watch() as stream:
            async for _ in stream.stream(
                client.CoreV1Api(api).list_namespaced_pod, "default", resource_version="1"
            ):
                pass

    with pytest.raises(client.ApiException) as caught:
        await follow()
    assert caught.value.status == 410


async def test_the_python_client_reviews_tokens_and_access(
    fake: FakeKubernetes, kubeconfig: Path
) -> None:
    fake.tokens["alices"] = User("alice", ("staff",), audiences=("router",))
    fake.grants_access = lambda spec: bool(spec["user"] == "alice")
    configuration = client.Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=configuration)

    async def review(token: str, audience: str) -> Any:
        body = client.V1TokenReview(
            spec=client.V1TokenReviewSpec(token=token, audiences=[audience])
        )
        return (await client.AuthenticationV1Api(api).create_token_review(body)).status

    async with client.ApiClient(configuration) as api:
        known = await review("alices", "router")
        assert (known.authenticated, known.user.username) == (True, "alice")
        assert (await review("alices", "elsewhere")).authenticated is False
        assert (await review("nobodys", "router")).authenticated is False
        for user, allowed in (("alice", True), ("bob", False)):
            spec = client.V1SubjectAccessReviewSpec(user=user)
            body = client.V1SubjectAccessReview(spec=spec)
            answer = await client.AuthorizationV1Api(api).create_subject_access_review(body)
            assert answer.status.allowed is allowed
