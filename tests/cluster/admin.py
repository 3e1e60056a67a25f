"""Admin: makes and changes objects in a real cluster, as its controllers and kubelets would."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import aiohttp

from router.kube.cluster_access import ClusterAccess
from tests.fakes.cluster_objects import JsonObject, pod, ready_condition, sandbox

SANDBOXES = "/apis/agents.x-k8s.io/v1beta1"
CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class RefusedError(Exception):
    """The API server said no."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(f"{status} {text[:500]}")


class Admin:
    """Requests with all rights."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Admin:
        self._session = aiohttp.ClientSession(headers={"Authorization": self._access.header()})
        self._tls = self._access.ssl_context()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        kind: str = "application/json",
    ) -> JsonObject:
        """Returns the answer. Raises RefusedError."""
        assert self._session is not None
        async with self._session.request(
            method,
            self._access.server + path,
            json=body,
            ssl=self._tls,
            headers={"Content-Type": kind} if body is not None else {},
        ) as answer:
            if answer.status >= 300:
                raise RefusedError(answer.status, await answer.text())
            found: JsonObject = await answer.json()
            return found

    async def text(self, path: str) -> str:
        """Returns the body of a GET as it is."""
        assert self._session is not None
        async with self._session.get(self._access.server + path, ssl=self._tls) as answer:
            return await answer.text()

    async def merge(self, path: str, change: JsonObject) -> JsonObject:
        return await self.request("PATCH", path, change, kind="application/merge-patch+json")

    async def ensure(self, path: str, item: JsonObject) -> None:
        """Creates it unless it is there."""
        try:
            await self.request("POST", path, item)
        except RefusedError as error:
            if error.status != 409:
                raise

    # --- sandboxes --------------------------------------------------------------------------

    async def make_sandbox(self, namespace: str, name: str, **shape: Any) -> JsonObject:
        item = sandbox(name, namespace=namespace, **shape)
        status = item.pop("status")
        made = await self.request(
            "POST",
            f"{SANDBOXES}/namespaces/{namespace}/sandboxes",
            {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", **_new(item)},
        )
        await self.sandbox_status(namespace, name, status)
        return made

    async def sandbox_status(self, namespace: str, name: str, status: JsonObject) -> None:
        path = f"{SANDBOXES}/namespaces/{namespace}/sandboxes/{name}/status"
        await self.merge(path, {"status": status})

    async def change_sandbox(self, namespace: str, name: str, change: JsonObject) -> JsonObject:
        return await self.merge(f"{SANDBOXES}/namespaces/{namespace}/sandboxes/{name}", change)

    async def remove_sandbox(self, namespace: str, name: str) -> None:
        await self.request("DELETE", f"{SANDBOXES}/namespaces/{namespace}/sandboxes/{name}")

    async def make_claim(self, namespace: str, name: str, bound_to: str) -> JsonObject:
        path = f"{CLAIMS}/namespaces/{namespace}/sandboxclaims"
        item = {
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
            "kind": "SandboxClaim",
            "metadata": {"name": name},
            "spec": {"warmPoolRef": {"name": "pool"}},
        }
        made = await self.request("POST", path, item)
        await self.merge(f"{path}/{name}/status", {"status": {"sandbox": {"name": bound_to}}})
        return made

    # --- pods -------------------------------------------------------------------------------

    async def make_pod(
        self, box: JsonObject, name: str, *, address: str | tuple[str, ...] = (), **shape: Any
    ) -> JsonObject:
        """Creates a pod of that Sandbox and says of it what a kubelet would."""
        namespace = box["metadata"]["namespace"]
        item = pod(name, of=box, address=address, **shape)
        status = item.pop("status")
        made = await self.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods",
            {"apiVersion": "v1", "kind": "Pod", **_new(item)},
        )
        await self.pod_status(namespace, name, status)
        return made

    async def pod_status(self, namespace: str, name: str, status: JsonObject) -> None:
        await self.merge(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})

    async def ready(self, namespace: str, name: str, *, is_ready: bool = True) -> None:
        status = {"conditions": [ready_condition(is_ready, "Test")]}
        await self.pod_status(namespace, name, status)

    async def terminate_pod(self, namespace: str, name: str) -> None:
        """Sets the deletion mark; the kubelet's part is remove_pod()."""
        await self._delete_pod(namespace, name, grace_s=30)

    async def remove_pod(self, namespace: str, name: str) -> None:
        await self._delete_pod(namespace, name, grace_s=0)

    async def _delete_pod(self, namespace: str, name: str, *, grace_s: int) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds={grace_s}"
        await self.request("DELETE", path)

    # --- permissions ------------------------------------------------------------------------

    async def make_account(self, namespace: str, name: str) -> str:
        """Returns a token of a new service account without any rights."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        await self.ensure(path, account)
        return await self.account_token(namespace, name)

    async def account_token(self, namespace: str, name: str) -> str:
        wanted = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        made = await self.request("POST", path, wanted)
        return str(made["status"]["token"])

    async def allow_watching(self, namespace: str, account_namespace: str, account: str) -> None:
        """Gives the account a Role in that namespace, with what the router needs."""
        rules = [
            {"apiGroups": [group], "resources": [plural], "verbs": ["list", "watch"]}
            for group, plural in (
                ("", "pods"),
                ("agents.x-k8s.io", "sandboxes"),
                ("extensions.agents.x-k8s.io", "sandboxclaims"),
            )
        ]
        about: JsonObject = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        role = {**about, "kind": "Role", "metadata": {"name": "router"}, "rules": rules}
        binding = {
            **about,
            "kind": "RoleBinding",
            "metadata": {"name": "router"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "router",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": account, "namespace": account_namespace}
            ],
        }
        await self.ensure(f"{RBAC}/namespaces/{namespace}/roles", role)
        await self.ensure(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)


def _new(item: JsonObject) -> JsonObject:
    """Returns the object without what only the server may write."""
    metadata = {
        key: value
        for key, value in item["metadata"].items()
        if key not in ("uid", "resourceVersion", "creationTimestamp", "generation")
    }
    return {**item, "metadata": metadata}
