"""SandboxTable: what the watches said, put together into the index."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain

from router.discovery.addresses import AddressBook
from router.discovery.aliases import AliasTable
from router.discovery.claims import ClaimRecord
from router.discovery.composition import compose
from router.discovery.listing import Listing
from router.discovery.multimap import MultiMap
from router.discovery.notes import is_plain, notes_of
from router.discovery.pods import PodRecord, PodStage, parse_pod
from router.discovery.recent_versions import RecentVersions
from router.discovery.sandboxes import Intent, SandboxRecord
from router.discovery.tombstones import Tombstones
from router.kube.api_client import JsonObject
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex

logger = logging.getLogger("sandbox_router.discovery")


class SandboxTable:
    """Takes records of pods, Sandboxes and claims in any order and keeps the index right. No I/O.

    The watches are not synchronised with each other, so each rule looks at all that is known of one name at that moment:
    a pod is routed only while nothing that is known speaks against it. Within a scope nothing is published before settle():
    half of the first lists would route wrongly.
    """

    def __init__(
        self,
        *,
        index: EndpointIndex,
        on_retired: Callable[[Endpoint], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._index = index
        self._on_retired = on_retired
        self._pods: dict[str, PodRecord] = {}
        self._pods_of: MultiMap[SandboxRef, PodRecord] = MultiMap()
        self._sandboxes: dict[SandboxRef, SandboxRecord] = {}
        self._addresses = AddressBook()
        self._pod_versions: RecentVersions[str] = RecentVersions()
        self._gone_pods = Tombstones()
        self._sandbox_versions: RecentVersions[SandboxRef] = RecentVersions()
        self._gone_sandboxes = Tombstones()
        self._aliases = AliasTable(index=index, sandbox=self._sandboxes.get)
        self._settled: set[str | None] = set()
        self._told: dict[SandboxRef, tuple[str, ...]] = {}
        """The notes that the log has, of the few sandboxes that have any."""

    def __repr__(self) -> str:
        return (
            f"<SandboxTable pods={len(self._pods)} sandboxes={len(self._sandboxes)} "
            f"claims={len(self._aliases)} settled={sorted(map(str, self._settled))}>"
        )

    def settle(self, namespace: str | None) -> None:
        """Publishes a scope (None = all namespaces) whose first lists are in; from now on changes are published at once."""
        if namespace in self._settled:
            return
        self._settled.add(namespace)
        self._drop_strays(namespace)
        without_object = (ref for ref in self._pods_of if ref not in self._sandboxes)
        self._publish(
            ref
            for ref in chain(self._sandboxes, without_object)
            if _is_in(namespace, ref.namespace)
        )

    def _drop_strays(self, namespace: str | None) -> None:
        """Takes out of the index what it has of a scope from another table and our own first lists don't have."""
        strays = [
            endpoint.ref
            for endpoint in self._index.snapshot()[0]
            if _is_in(namespace, endpoint.ref.namespace)
            and endpoint.ref not in self._sandboxes
            and not self._pods_of.get(endpoint.ref)
        ]
        for ref in strays:
            for retired in self._index.remove(ref):
                self._on_retired(retired)

    # --- pods -------------------------------------------------------------------------------

    def read_pod(self, item: JsonObject) -> PodRecord:
        """Returns the record of a pod; what its Sandbox's record holds already it shares. Raises MalformedObjectError."""
        pod = parse_pod(item)
        sandbox = self._sandboxes.get(pod.ref)
        return pod if sandbox is None else pod.kept(sandbox.ref, sandbox.uid, version=pod.version)

    def upsert_pod(self, pod: PodRecord) -> None:
        """Takes an ADDED or MODIFIED pod."""
        versions, gone = self._pod_versions, self._gone_pods
        if gone.is_late(pod.uid, pod.version) or versions.is_late(pod.uid, pod.version):
            return
        gone.discard(pod.uid)
        versions.note(pod.uid, pod.version)
        self._publish(self._put_pod(pod))

    def remove_pod(self, pod: PodRecord) -> None:
        """Takes a DELETED pod."""
        if self._pod_versions.is_late(pod.uid, pod.version):
            return
        self._gone_pods.add(pod.uid, pod.version)
        self._publish(self._drop_pod(pod.uid))

    def list_pods(self, namespace: str | None) -> Listing[PodRecord, str]:
        """Returns where a complete list of the scope's pods goes; it outranks every event before it."""
        return Listing(
            key=lambda pod: pod.uid,
            is_known=lambda pod: self._pods.get(pod.uid) == pod,
            commit=partial(self._commit_pods, namespace),
        )

    def _commit_pods(
        self, namespace: str | None, unchanged: set[str], changed: list[PodRecord]
    ) -> None:
        is_settled = self._is_settled(namespace)
        listed = {pod.uid for pod in changed} if self._pods else set()
        missing = [
            uid
            for uid, pod in self._pods.items()
            if uid not in unchanged and uid not in listed and _is_in(namespace, pod.ref.namespace)
        ]
        touched: dict[SandboxRef, None] = {}
        for uid in missing:
            self._gone_pods.add(uid, self._pod_versions.latest(uid))
            touched |= self._drop_pod(uid)
        self._pod_versions.clear()
        # Emptied as it goes: each record's memory is free for the form in which the next one is kept.
        while changed:
            pod = changed.pop()
            self._gone_pods.discard(pod.uid)
            touches = self._put_pod(pod)
            if is_settled:
                touched |= touches
        self._publish(touched)

    def _put_pod(self, pod: PodRecord) -> dict[SandboxRef, None]:
        """Stores a pod's record. Returns the sandboxes for which that may matter."""
        if not pod.ref.name:
            if pod.uid in self._pods:
                self._gone_pods.add(pod.uid, pod.version)
            return self._drop_pod(pod.uid)
        known = self._pods.get(pod.uid)
        if known is not None and known == pod:
            return {}
        sandbox = self._sandboxes.get(pod.ref)
        if sandbox is not None:
            pod = pod.kept(sandbox.ref, sandbox.uid)
        touched = {} if known is None else self._release_pod(known)
        self._store_pod(pod, known)
        self._addresses.claim(pod)
        touched[pod.ref] = None
        self._touch_rivals(pod, touched)
        return touched

    def _store_pod(self, pod: PodRecord, known: PodRecord | None) -> None:
        if known is not None:
            self._pods_of.discard(known.ref, known)
        self._pods[pod.uid] = pod
        self._pods_of.add(pod.ref, pod)

    def _drop_pod(self, uid: str) -> dict[SandboxRef, None]:
        known = self._pods.pop(uid, None)
        if known is None:
            return {}
        self._pods_of.discard(known.ref, known)
        return self._release_pod(known)

    def _release_pod(self, known: PodRecord) -> dict[SandboxRef, None]:
        self._addresses.release(known)
        touched = {known.ref: None}
        self._touch_rivals(known, touched)
        return touched

    def _touch_rivals(self, pod: PodRecord, touched: dict[SandboxRef, None]) -> None:
        """Adds the sandboxes of other pods that claim one of this pod's addresses."""
        for address in pod.addresses:
            for uid in self._addresses.rivals(pod, address):
                touched[self._pods[uid].ref] = None

    def _dialable(self, pod: PodRecord) -> tuple[str, ...]:
        """Returns the addresses that no other live pod may have inherited."""
        addresses = pod.addresses
        if len(addresses) == 1:
            return addresses if self._is_undisputed(pod, addresses[0]) else ()
        usable = tuple(address for address in addresses if self._is_undisputed(pod, address))
        # The record's own tuple, which is in memory anyway.
        return addresses if len(usable) == len(addresses) else usable

    def _is_undisputed(self, pod: PodRecord, address: str) -> bool:
        """Two pods that say READY at one address: one is out of date and we can't know which. A younger one that still starts
        has the address now; an older one that is not ready has lost it. Among pods of one Sandbox the newest is dialled anyway.
        """
        uids = self._addresses.rivals(pod, address)
        if not uids:
            return True
        rivals = (self._pods[uid] for uid in uids)
        return all(
            rival.sandbox_uid == pod.sandbox_uid
            or (rival.traits.stage is not PodStage.READY and rival.created < pod.created)
            for rival in rivals
        )

    # --- Sandboxes --------------------------------------------------------------------------

    def upsert_sandbox(self, sandbox: SandboxRecord) -> None:
        """Takes an ADDED or MODIFIED Sandbox."""
        versions, gone = self._sandbox_versions, self._gone_sandboxes
        if gone.is_late(sandbox.uid, sandbox.version) or versions.is_late(
            sandbox.ref, sandbox.version
        ):
            return
        gone.discard(sandbox.uid)
        versions.note(sandbox.ref, sandbox.version)
        self._publish(self._put_sandbox(sandbox))

    def remove_sandbox(self, sandbox: SandboxRecord) -> None:
        """Takes a DELETED Sandbox; a predecessor's late end leaves its successor alone."""
        known = self._sandboxes.get(sandbox.ref)
        is_current = known is not None and known.uid == sandbox.uid
        if is_current and self._sandbox_versions.is_late(sandbox.ref, sandbox.version):
            return
        self._gone_sandboxes.add(sandbox.uid, sandbox.version)
        if known is not None and is_current:
            self._publish(self._drop_sandbox(known))
        else:
            self._publish({sandbox.ref: None})

    def list_sandboxes(self, namespace: str | None) -> Listing[SandboxRecord, SandboxRef]:
        """Returns where a complete list of the scope's Sandboxes goes; it outranks every event before it."""
        return Listing(
            key=lambda sandbox: sandbox.ref,
            is_known=lambda sandbox: self._sandboxes.get(sandbox.ref) == sandbox,
            commit=partial(self._commit_sandboxes, namespace),
        )

    def _commit_sandboxes(
        self, namespace: str | None, unchanged: set[SandboxRef], changed: list[SandboxRecord]
    ) -> None:
        is_settled = self._is_settled(namespace)
        listed = {sandbox.ref for sandbox in changed} if self._sandboxes else set()
        missing = [
            known
            for ref, known in self._sandboxes.items()
            if ref not in unchanged and ref not in listed and _is_in(namespace, ref.namespace)
        ]
        touched: dict[SandboxRef, None] = {}
        for known in missing:
            self._gone_sandboxes.add(known.uid, self._sandbox_versions.latest(known.ref))
            touched |= self._drop_sandbox(known)
        self._sandbox_versions.clear()
        while changed:
            sandbox = changed.pop()
            self._gone_sandboxes.discard(sandbox.uid)
            touches = self._put_sandbox(sandbox)
            if is_settled:
                touched |= touches
        self._publish(touched)

    def _put_sandbox(self, sandbox: SandboxRecord) -> dict[SandboxRef, None]:
        known = self._sandboxes.get(sandbox.ref)
        if known is not None:
            if known == sandbox:
                return {}
            if known.uid != sandbox.uid:
                self._gone_sandboxes.add(known.uid, 0)
            sandbox = sandbox.kept(
                known.ref, known.uid, resumed_at=self._resumed_at(known, sandbox)
            )
        elif pods := self._pods_of.get(sandbox.ref):
            sandbox = sandbox.kept(pods[0].ref, pods[0].sandbox_uid)
        else:
            sandbox = sandbox.kept(sandbox.ref, sandbox.uid)
        self._sandboxes[sandbox.ref] = sandbox
        self._aliases.sandbox_changed(sandbox.ref)
        return {sandbox.ref: None}

    def _resumed_at(self, known: SandboxRecord, sandbox: SandboxRecord) -> float:
        """Returns when the Sandbox last left suspension, as far as it was seen: until it answers, it is on its way back."""
        if known.uid != sandbox.uid:
            return 0.0
        was, is_now = known.traits.intent, sandbox.traits.intent
        if was is Intent.SUSPENDED and is_now is Intent.RUNNING:
            return self._clock()
        return known.resumed_at

    def _drop_sandbox(self, known: SandboxRecord) -> dict[SandboxRef, None]:
        del self._sandboxes[known.ref]
        self._aliases.sandbox_changed(known.ref)
        return {known.ref: None}

    # --- claims -----------------------------------------------------------------------------

    def upsert_claim(self, claim: ClaimRecord) -> None:
        """Takes an ADDED or MODIFIED claim."""
        self._aliases.upsert(claim)

    def remove_claim(self, claim: ClaimRecord) -> None:
        """Takes a DELETED claim."""
        self._aliases.remove(claim)

    def list_claims(self, namespace: str | None) -> Listing[ClaimRecord, SandboxRef]:
        """Returns where a complete list of the scope's claims goes."""
        return self._aliases.listing(namespace)

    # --- for people -------------------------------------------------------------------------

    def notes(self, ref: SandboxRef) -> tuple[str, ...]:
        """Returns what stands out about the sandbox of this name, in sentences; () while all is well."""
        return notes_of(ref, self._sandboxes.get(ref), self._current_pods(ref))

    def _tell(self, ref: SandboxRef) -> None:
        """Logs what is noted from now on; an object that changes otherwise repeats nothing."""
        before = self._told.pop(ref, ())
        notes = self.notes(ref)
        if notes:
            self._told[ref] = notes
        for note in notes:
            if note not in before:
                logger.warning(
                    "sandbox needs attention",
                    extra={"fields": {"sandbox": str(ref), "reason": note}},
                )

    # --- the index --------------------------------------------------------------------------

    def _compose(self, ref: SandboxRef) -> Endpoint | None:
        sandbox, pods = self._sandboxes.get(ref), self._current_pods(ref)
        if not is_plain(sandbox, pods) or ref in self._told:
            self._tell(ref)
        return compose(ref, sandbox, pods, self._dialable)

    def _current_pods(self, ref: SandboxRef) -> tuple[PodRecord, ...]:
        """Returns the pods that a Sandbox of this name controls, except those whose Sandbox is known to be gone."""
        pods = self._pods_of.get(ref)
        if self._gone_sandboxes and pods:
            pods = tuple(pod for pod in pods if pod.sandbox_uid not in self._gone_sandboxes)
        return pods

    def _publish(self, touched: Iterable[SandboxRef]) -> None:
        """Brings the index up to date for these names: first the routes that end, then those that begin."""
        ready: list[Endpoint] = []
        for ref in touched:
            if not self._is_settled(ref.namespace):
                continue
            endpoint = self._compose(ref)
            if endpoint is None:
                self._retire(self._index.remove(ref))
            elif endpoint.state is State.READY:
                ready.append(endpoint)
            else:
                self._retire(self._index.upsert(endpoint))
        for endpoint in ready:
            self._retire(self._index.upsert(endpoint))

    def _is_settled(self, namespace: str | None) -> bool:
        return namespace in self._settled or None in self._settled

    def _retire(self, endpoints: Iterable[Endpoint]) -> None:
        for endpoint in endpoints:
            self._on_retired(endpoint)


def _is_in(scope: str | None, namespace: str) -> bool:
    return scope is None or scope == namespace
