"""A cluster's truth and the watches that tell it bit by bit, for the model test of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from router.discovery.listing import Listing
from tests.fakes.cluster_objects import EXTENSIONS, claim, owner, pod, ready_condition, sandbox
from tests.fakes.kubernetes_store import CLAIMS, PODS, SANDBOXES, Kind, NotFound, ObjectStore

JsonObject = dict[str, Any]
PLACES = [("ns-a", "one"), ("ns-a", "two"), ("ns-b", "one")]
ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
POOL_LABEL = "agents.x-k8s.io/warm-pool-sandbox"


class Cluster:
    """The truth: a store with a controller's, a kubelet's and an address allocator's habits."""

    def __init__(self) -> None:
        self.store = ObjectStore()
        self.clock = 0
        self.uids = 0

    def act(self, action: str, place: tuple[str, str]) -> None:
        """Does something if the cluster is in a state where it can happen."""
        self.clock += 1
        try:
            getattr(self, action)(*place)
        except NotFound:
            pass

    # Sandboxes

    def create(self, namespace: str, name: str) -> None:
        if not self._has(SANDBOXES, namespace, name):
            self.store.create(
                SANDBOXES, sandbox(name, namespace=namespace, uid=self._uid("sandbox"))
            )

    def launch(self, namespace: str, name: str) -> None:
        """A sandbox that is up, so that histories reach the interesting part soon."""
        self.create(namespace, name)
        self.start_pod(namespace, name)
        self.ready(namespace, name)

    def launch_pooled(self, namespace: str, name: str) -> None:
        self.create_pooled(namespace, name)
        self.start_pod(namespace, name)
        self.ready(namespace, name)

    def create_pooled(self, namespace: str, name: str) -> None:
        if not self._has(SANDBOXES, namespace, name):
            pool = owner("SandboxWarmPool", "pool", "pool", group=EXTENSIONS)
            box = sandbox(name, namespace=namespace, uid=self._uid("sandbox"), controlled_by=pool)
            self.store.create(SANDBOXES, box)

    def claim(self, namespace: str, name: str) -> None:
        """A claim with a name of its own is bound to the sandbox and controls it."""
        box = self.store.get(SANDBOXES, namespace, name)
        if self._has(CLAIMS, namespace, f"claim-{name}"):
            return
        bound = claim(f"claim-{name}", namespace=namespace, uid=self._uid("claim"), bound_to=name)
        uid = self.store.create(CLAIMS, bound)["metadata"]["uid"]
        by = owner("SandboxClaim", f"claim-{name}", uid, group=EXTENSIONS)
        self._change(SANDBOXES, box, lambda item: item["metadata"].update(ownerReferences=[by]))

    def rival_claim(self, namespace: str, name: str) -> None:
        """A claim that says it is bound to the sandbox, which does not confirm it."""
        if not self._has(CLAIMS, namespace, f"rival-{name}"):
            uid = self._uid("claim")
            rival = claim(f"rival-{name}", namespace=namespace, uid=uid, bound_to=name)
            self.store.create(CLAIMS, rival)

    def unclaim(self, namespace: str, name: str) -> None:
        self.store.delete(CLAIMS, namespace, f"claim-{name}")

    def suspend(self, namespace: str, name: str) -> None:
        box = self.store.get(SANDBOXES, namespace, name)
        self._change(SANDBOXES, box, lambda item: item["spec"].update(operatingMode="Suspended"))

    def resume(self, namespace: str, name: str) -> None:
        box = self.store.get(SANDBOXES, namespace, name)
        self._change(SANDBOXES, box, lambda item: item["spec"].update(operatingMode="Running"))

    def expire(self, namespace: str, name: str) -> None:
        box = self.store.get(SANDBOXES, namespace, name)
        gone = [ready_condition(False, "SandboxExpired")]
        self._change(SANDBOXES, box, lambda item: item["status"].update(conditions=gone))

    def delete(self, namespace: str, name: str) -> None:
        self.store.delete(SANDBOXES, namespace, name)

    # pods

    def start_pod(self, namespace: str, name: str) -> None:
        box = self.store.get(SANDBOXES, namespace, name)
        free = [each for each in ADDRESSES if each not in self._addresses_in_use()]
        if not free:
            return
        owners = box["metadata"].get("ownerReferences") or [{}]
        # Called like its Sandbox, as most are, or otherwise: then several can't be told apart.
        is_named = self.clock % 3 and not self._has(PODS, namespace, name)
        pod_name = name if is_named else f"{name}-{self.clock}"
        item = pod(
            pod_name,
            of=box,
            uid=self._uid("pod"),
            address=free[0],
            created=f"2026-11-01T00:{self.clock // 120:02}:{self.clock // 2 % 60:02}Z",
            is_pooled=owners[0].get("kind") == "SandboxWarmPool",
        )
        self.store.create(PODS, item)

    def ready(self, namespace: str, name: str) -> None:
        self._change_pods(
            namespace, name, lambda i: i["status"].update(conditions=[ready_condition(True, "")])
        )

    def unready(self, namespace: str, name: str) -> None:
        self._change_pods(
            namespace, name, lambda i: i["status"].update(conditions=[ready_condition(False, "")])
        )

    def unlabel(self, namespace: str, name: str) -> None:
        self._change_pods(
            namespace, name, lambda item: item["metadata"]["labels"].pop(POOL_LABEL, None)
        )

    def terminate_pod(self, namespace: str, name: str) -> None:
        end = "2026-11-01T01:00:00Z"
        self._change_pods(
            namespace, name, lambda i: i["metadata"].setdefault("deletionTimestamp", end)
        )

    def fail_pod(self, namespace: str, name: str) -> None:
        self._change_pods(namespace, name, lambda item: item["status"].update(phase="Failed"))

    def remove_pod(self, namespace: str, name: str) -> None:
        for item in self._pods(namespace, name)[:1]:
            self.store.delete(PODS, namespace, item["metadata"]["name"])

    def collect_garbage(self, *_: str) -> None:
        for item in self.store.items(PODS, None):
            metadata = item["metadata"]
            owner_uid = metadata["ownerReferences"][0]["uid"]
            if owner_uid not in {
                box["metadata"]["uid"] for box in self.store.items(SANDBOXES, None)
            }:
                self.store.delete(PODS, metadata["namespace"], metadata["name"])

    def _has(self, kind: Kind, namespace: str, name: str) -> bool:
        return any(item["metadata"]["name"] == name for item in self.store.items(kind, namespace))

    def _uid(self, kind: str) -> str:
        self.uids += 1
        return f"{kind}-{self.uids}"

    def _pods(self, namespace: str, name: str) -> list[JsonObject]:
        owned = self.store.items(PODS, namespace)
        return [item for item in owned if item["metadata"]["ownerReferences"][0]["name"] == name]

    def _addresses_in_use(self) -> set[str]:
        # Freed by the end of the containers: what is deleting or failed still shows it.
        return {
            item["status"]["podIP"]
            for item in self.store.items(PODS, None)
            if "deletionTimestamp" not in item["metadata"] and item["status"]["phase"] == "Running"
        }

    def _change_pods(self, namespace: str, name: str, change: Callable[[JsonObject], Any]) -> None:
        for item in self._pods(namespace, name)[:1]:
            self._change(PODS, item, change)

    def _change(self, kind: Kind, item: JsonObject, change: Callable[[JsonObject], Any]) -> None:
        def changed(copy: JsonObject) -> JsonObject:
            change(copy)
            return copy

        self.store.update(kind, item["metadata"]["namespace"], item["metadata"]["name"], changed)


ACTIONS = [name for name in vars(Cluster) if not name.startswith("_") and name != "act"]


@dataclass
class Watch:
    """One watch: what it has delivered so far, and how it goes on."""

    kind: Kind
    namespace: str | None
    store: ObjectStore
    parse: Callable[[JsonObject], Any]
    list: Callable[[str | None], Listing[Any, Any]]
    upsert: Callable[[Any], None]
    remove: Callable[[Any], None]
    position: int = 0
    known: dict[str, JsonObject] = field(default_factory=dict)
    """By UID, as delivered last."""
    gone: set[str] = field(default_factory=set)
    """UIDs that were seen to go."""

    def deliver(self, count: int) -> None:
        changes = [
            c for c in self.store.since(self.position) if self._is_mine(c.after or c.before, c.kind)
        ]
        for change in changes[:count]:
            self.position = change.version
            item = change.after or change.before
            assert item is not None
            uid = item["metadata"]["uid"]
            if change.after is None:
                self.known.pop(uid, None)
                self.gone.add(uid)
                self.remove(self.parse(item))
            else:
                self.known[uid] = item
                self.upsert(self.parse(item))

    def relist(self) -> None:
        items = self.store.items(self.kind, self.namespace)
        self.position = self.store.version
        before = set(self.known)
        self.known = {item["metadata"]["uid"]: item for item in items}
        self.gone |= before - set(self.known)
        listing = self.list(self.namespace)
        for item in items:
            listing.add(self.parse(item))
        listing.commit()

    def _is_mine(self, item: JsonObject | None, kind: Kind) -> bool:
        return (
            kind is self.kind
            and item is not None
            and self.namespace in (None, item["metadata"]["namespace"])
        )
