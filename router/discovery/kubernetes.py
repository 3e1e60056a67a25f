"""KubernetesDiscovery: the watches that keep the index equal to the cluster."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from router.discovery.claims import ClaimRecord, parse_claim
from router.discovery.history import HistoryCheck, Watch
from router.discovery.pace import Pace
from router.discovery.pods import PodRecord
from router.discovery.recovery import Recovery
from router.discovery.reflector import Reflector
from router.discovery.resources import CLAIMS, PODS, SANDBOXES, Resource
from router.discovery.sandboxes import SandboxRecord, parse_sandbox
from router.discovery.settled_heap import SettledHeap
from router.discovery.streamed_list import List
from router.discovery.table import SandboxTable
from router.kube.api_client import JsonObject, KubernetesApi
from router.routing.endpoint import Endpoint, SandboxRef
from router.routing.handover import HandedTable
from router.routing.index import EndpointIndex

logger = logging.getLogger("sandbox_router.discovery")

DEFAULT_PACE = Pace()
HOUSEKEEPING_INTERVAL_S = 1.0
CATCHING_UP_S = 10.0
"""For so long after a watch was interrupted, names that aren't known are worth waiting for."""

WITHOUT = {
    SANDBOXES.name: (
        "routing by pods alone: a suspended, finished or podless sandbox looks unknown, "
        "pool pods wait for their label to go, tokens-not-before is not enforced"
    ),
    CLAIMS.name: "the names of claims don't lead to their sandboxes",
}

Record = TypeVar("Record")
AnyReflector: TypeAlias = Reflector[PodRecord] | Reflector[SandboxRecord] | Reflector[ClaimRecord]


@dataclass(frozen=True, slots=True)
class Feed(Generic[Record]):
    """One resource's way into the table: the Store that a Reflector fills."""

    begin_list: Callable[[], List[Record]]
    upsert: Callable[[Record], None]
    remove: Callable[[Record], None]


@dataclass(frozen=True, slots=True)
class Scope:
    """The watches of one namespace, or of all (None)."""

    namespace: str | None
    pods: Reflector[PodRecord]
    sandboxes: Reflector[SandboxRecord]
    claims: Reflector[ClaimRecord]
    pods_may_begin: asyncio.Event

    @property
    def is_settled(self) -> bool:
        """True when enough is known to route: all pods, and all Sandboxes unless we may not see them."""
        return self.pods.is_complete and _is_known_or_refused(self.sandboxes)

    @property
    def is_complete(self) -> bool:
        """True when a name that isn't known doesn't exist, as far as we may know."""
        return self.is_settled and _is_known_or_refused(self.claims)


class KubernetesDiscovery:
    """Watches Pods, Sandboxes and SandboxClaims: in all namespaces, or in the listed ones with one set of watches each.

    `api` must be open while run() runs. `on_retired` gets each endpoint that lost its route.
    """

    def __init__(
        self,
        *,
        api: KubernetesApi,
        namespaces: tuple[str, ...],
        index: EndpointIndex,
        on_retired: Callable[[Endpoint], None],
        pace: Pace = DEFAULT_PACE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.watch_restarts: Counter[tuple[str, str]] = Counter()
        """Ended watches and lists by (resource, reason)."""
        self._api = api
        self._index = index
        self._pace = pace
        self._clock = clock
        self._table = SandboxTable(index=index, on_retired=on_retired, clock=clock)
        self._heap = SettledHeap()
        self._recovery = Recovery()
        self._records_seen = 0
        self._refusals_told: dict[str, str] = {}
        self._has_new_list = False
        self._scopes = [self._scope(namespace) for namespace in (namespaces or (None,))]
        self._is_adopted = False
        self._tell_awaited()

    def __repr__(self) -> str:
        return f"<KubernetesDiscovery {self._table!r} missing={self.missing()}>"

    async def run(self) -> None:
        """Watches until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for scope in self._scopes:
                tasks.create_task(scope.sandboxes.run(), name=f"watch {scope.sandboxes}")
                tasks.create_task(scope.claims.run(), name=f"watch {scope.claims}")
                tasks.create_task(_run_pods(scope), name=f"watch {scope.pods}")
            for check in self._history_checks():
                tasks.create_task(check.run(), name=f"{check}")
            tasks.create_task(self._keep_house(), name="freshness and memory of the table")

    def reflectors(self) -> list[AnyReflector]:
        """Returns every watch, for metrics: lists, watches, failures, events, phase."""
        return [
            reflector
            for scope in self._scopes
            for reflector in (scope.pods, scope.sandboxes, scope.claims)
        ]

    def missing(self) -> list[str]:
        """Returns what keeps the router from being ready: each watch without a complete list, and why.

        Not in it: Sandboxes and claims that we may not see or that are not installed, see notes(). Nothing, while the table is
        another worker's: it routes.
        """
        return [] if self._is_adopted else self._incomplete()

    def _incomplete(self) -> list[str]:
        waited_for = [
            reflector
            for reflector in self.reflectors()
            if not reflector.is_complete
            and (reflector.resource is PODS or reflector.refusal is None)
        ]
        return [
            f"{reflector}: {reflector.problem or 'first list under way'}"
            for reflector in waited_for
        ]

    def notes(self) -> list[str]:
        """Returns what is working less well than it could: refused watches with what that costs, and interrupted ones."""
        notes = []
        for reflector in self.reflectors():
            if note := _note_of_refusal(reflector):
                notes.append(note)
            elif reflector.is_complete and reflector.problem:
                notes.append(f"{reflector}: {reflector.problem}; the last known state is kept")
        return notes

    def refused(self) -> dict[str, int]:
        """Returns how many watches of each resource the API server refuses."""
        counts = dict.fromkeys((resource.name for resource in (PODS, SANDBOXES, CLAIMS)), 0)
        for reflector in self.reflectors():
            counts[reflector.resource.name] += reflector.refusal is not None
        return counts

    def is_catching_up(self) -> bool:
        """Returns True while a watch that was interrupted just now may have missed something."""
        return any(reflector.is_behind(CATCHING_UP_S) for reflector in self.reflectors())

    def notes_about(self, ref: SandboxRef) -> tuple[str, ...]:
        """Returns what stands out about the sandbox of this name."""
        return self._table.notes(ref)

    def _history_checks(self) -> list[HistoryCheck]:
        """Returns one for each resource: each may live in a store of its own."""
        by_resource: dict[str, list[Watch]] = {}
        for reflector in self.reflectors():
            by_resource.setdefault(reflector.resource.name, []).append(reflector)
        return [
            HistoryCheck(watches=watches, interval_s=self._pace.history_check_s)
            for watches in by_resource.values()
        ]

    def _scope(self, namespace: str | None) -> Scope:
        table = self._table
        return Scope(
            namespace=namespace,
            pods=self._reflector(
                PODS,
                namespace,
                table.read_pod,
                Feed(
                    begin_list=partial(table.list_pods, namespace),
                    upsert=table.upsert_pod,
                    remove=table.remove_pod,
                ),
            ),
            sandboxes=self._reflector(
                SANDBOXES,
                namespace,
                parse_sandbox,
                Feed(
                    begin_list=partial(table.list_sandboxes, namespace),
                    upsert=table.upsert_sandbox,
                    remove=table.remove_sandbox,
                ),
            ),
            claims=self._reflector(
                CLAIMS,
                namespace,
                parse_claim,
                Feed(
                    begin_list=partial(table.list_claims, namespace),
                    upsert=table.upsert_claim,
                    remove=table.remove_claim,
                ),
            ),
            pods_may_begin=asyncio.Event(),
        )

    def _reflector(
        self,
        resource: Resource,
        namespace: str | None,
        parse: Callable[[JsonObject], Record],
        feed: Feed[Record],
    ) -> Reflector[Record]:
        return Reflector(
            api=self._api,
            resource=resource,
            namespace=namespace,
            parse=parse,
            store=feed,
            pace=self._pace,
            on_list=self._settle,
            restarts=self.watch_restarts,
            recovery=self._recovery,
            clock=self._clock,
        )

    def _settle(self) -> None:
        self._has_new_list = True
        self._tell_refusals()
        for scope in self._scopes:
            if _is_known_or_refused(scope.sandboxes):
                scope.pods_may_begin.set()
            if scope.is_settled:
                self._table.settle(scope.namespace)
        self._tell_awaited()
        self._tell_freshness()

    async def _keep_house(self) -> None:
        while True:
            self._tell_freshness()
            records = sum(reflector.records for reflector in self.reflectors())
            self._heap.added(records - self._records_seen)
            self._records_seen = records
            if self._has_new_list:
                self._has_new_list = False
                self._heap.settle()
            await asyncio.sleep(HOUSEKEEPING_INTERVAL_S)

    def _tell_refusals(self) -> None:
        """Logs each refusal once, and its end."""
        told, self._refusals_told = self._refusals_told, {}
        for reflector in self.reflectors():
            if note := _note_of_refusal(reflector):
                self._refusals_told[str(reflector)] = note
        for name, note in self._refusals_told.items():
            if name not in told:
                logger.warning(
                    "part of the cluster can't be seen", extra={"fields": {"reason": note}}
                )
        for name in told.keys() - self._refusals_told.keys():
            logger.info("can be seen again", extra={"fields": {"watch": name}})

    def adopt(self, handed: HandedTable) -> None:
        """Routes by another worker's table until our own first lists are in, which then replace it; for the start."""
        self._index.replace(handed.endpoints)
        self._index.replace_aliases(handed.aliases)
        self._index.set_synced(self._clock() - handed.age_s)
        self._is_adopted = True
        self._tell_awaited()
        logger.info(
            "routing by another worker's table until the first lists are in",
            extra={"fields": {"sandboxes": len(handed.endpoints), "age_s": round(handed.age_s, 1)}},
        )

    def _tell_awaited(self) -> None:
        if self._is_adopted and not all(scope.is_complete for scope in self._scopes):
            self._index.set_awaited(frozenset())
            return
        self._is_adopted = False
        awaited = [scope.namespace for scope in self._scopes if not scope.is_complete]
        self._index.set_awaited(None if None in awaited else frozenset(filter(None, awaited)))

    def _tell_freshness(self) -> None:
        """Gives the index its age: that of the watch that was silent longest."""
        if not self._incomplete():
            heard = [reflector.last_heard_at for reflector in self.reflectors()]
            self._index.set_synced(min(at for at in heard if at is not None))


def _note_of_refusal(reflector: AnyReflector) -> str:
    """Returns what a refused watch costs, "" for one that isn't refused, and for pods: without them nothing is ready."""
    if reflector.refusal is None or reflector.resource is PODS:
        return ""
    kept = "the last known state is kept"
    cost = kept if reflector.is_complete else WITHOUT[reflector.resource.name]
    return f"{reflector}: {reflector.refusal}; {cost}"


async def _run_pods(scope: Scope) -> None:
    """Pods are listed after the Sandboxes, with which they share their strings: half the memory, and no holes in it."""
    await scope.pods_may_begin.wait()
    await scope.pods.run()


def _is_known_or_refused(reflector: AnyReflector) -> bool:
    return reflector.is_complete or reflector.refusal is not None
