"""The table against a model: any history of a cluster, delivered by three unsynchronised watches that may list again.

Whatever the interleaving, no step routes to a pod that the watches have not shown to be right, and the end is the truth.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from router.discovery.claims import parse_claim
from router.discovery.pods import parse_pod
from router.discovery.sandboxes import parse_sandbox
from router.discovery.table import SandboxTable
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex
from tests.fakes.kubernetes_store import CLAIMS, PODS, SANDBOXES, Kind
from tests.unit.discovery.cluster_model import (
    ACTIONS,
    PLACES,
    POOL_LABEL,
    Cluster,
    JsonObject,
    Watch,
)


class World:
    """A cluster, its watches, and the table that they fill."""

    def __init__(self, scopes: list[str | None]) -> None:
        self.cluster = Cluster()
        self.retired: list[Endpoint] = []
        self.index = EndpointIndex(waiting_room=9, waiting_room_per_namespace=9)
        table = SandboxTable(index=self.index, on_retired=self.retired.append)
        start = self.cluster.store.version
        self.watches: list[Watch] = []
        for scope in scopes:
            for kind, parse, listing, upsert, remove in (
                (PODS, parse_pod, table.list_pods, table.upsert_pod, table.remove_pod),
                (
                    SANDBOXES,
                    parse_sandbox,
                    table.list_sandboxes,
                    table.upsert_sandbox,
                    table.remove_sandbox,
                ),
                (CLAIMS, parse_claim, table.list_claims, table.upsert_claim, table.remove_claim),
            ):
                store = self.cluster.store
                watch = Watch(kind, scope, store, parse, listing, upsert, remove, start)  # type: ignore[arg-type]
                self.watches.append(watch)
            table.settle(scope)

    def step(self, step: tuple[Any, ...]) -> None:
        before = self.routes()
        self.retired.clear()
        if step[0] == "act":
            self.cluster.act(*step[1:])
        elif step[0] == "deliver":
            self.watches[step[1] % len(self.watches)].deliver(step[2])
        elif step[0] == "catch up":
            for watch in self.watches:
                watch.deliver(10_000)
        else:
            self.watches[step[1] % len(self.watches)].relist()
        self.check(before)

    def finish(self) -> None:
        self.cluster.collect_garbage()
        for watch in self.watches:
            self.step(("deliver", self.watches.index(watch), 10_000))

    def routes(self) -> dict[SandboxRef, Endpoint]:
        return {each.ref: each for each in self.index if each.state is State.READY}

    # --- what must hold after every step ----------------------------------------------------

    def check(self, before: dict[SandboxRef, Endpoint]) -> None:
        routes = self.routes()
        pods, boxes, gone = self._known(PODS), self._known(SANDBOXES), self._gone(SANDBOXES)
        for ref, route in routes.items():
            item = pods.get(route.uid)
            assert item is not None, f"{ref} leads to a pod that is not known"
            self._check_pod(ref, route, item)
            owner_uid = item["metadata"]["ownerReferences"][0]["uid"]
            assert owner_uid not in gone, f"{ref} leads to the pod of a deleted sandbox"
            self._check_sandbox(ref, item, owner_uid, boxes)
            self._check_addresses(ref, route, pods)
        dialled = [address for route in routes.values() for address in route.addresses]
        assert len(dialled) == len(set(dialled)), "two sandboxes lead to one address"
        for ref, old in before.items():
            new = routes.get(ref)
            if new is None or (new.uid, new.addresses) != (old.uid, old.addresses):
                assert any(r.uid == old.uid for r in self.retired), f"{ref} was not retired"

    def _check_pod(self, ref: SandboxRef, route: Endpoint, item: JsonObject) -> None:
        metadata, status = item["metadata"], item["status"]
        assert "deletionTimestamp" not in metadata, f"{ref} leads to a pod that is going"
        assert status["phase"] == "Running", f"{ref} leads to a pod that ended"
        assert status["conditions"][0]["status"] == "True", f"{ref} leads to an unready pod"
        assert route.addresses == (status["podIP"],)
        assert (metadata["namespace"], metadata["ownerReferences"][0]["name"]) == ref

    def _check_addresses(
        self, ref: SandboxRef, route: Endpoint, pods: dict[str, JsonObject]
    ) -> None:
        owner_uid = pods[route.uid]["metadata"]["ownerReferences"][0]["uid"]
        for uid, other in pods.items():
            metadata, status = other["metadata"], other["status"]
            is_rival = (
                uid != route.uid
                and metadata["ownerReferences"][0]["uid"] != owner_uid
                and status["podIP"] in route.addresses
                and status["phase"] == "Running"
                and "deletionTimestamp" not in metadata
            )
            if is_rival:
                created = pods[route.uid]["metadata"]["creationTimestamp"]
                assert status["conditions"][0]["status"] == "False", f"{ref}: {uid} has its address"
                assert metadata["creationTimestamp"] < created, f"{ref}: {uid} has its address"

    def _check_sandbox(
        self, ref: SandboxRef, item: JsonObject, owner_uid: str, boxes: dict[str, JsonObject]
    ) -> None:
        named = [box for box in boxes.values() if _ref(box) == ref]
        is_pooled = POOL_LABEL in item["metadata"]["labels"]
        if not named:
            assert not is_pooled, f"{ref} leads to an unclaimed pod"
            return
        (box,) = named
        assert box["metadata"]["uid"] == owner_uid, f"{ref} leads to another sandbox's pod"
        assert box["spec"]["operatingMode"] != "Suspended", f"{ref} is suspended and routed"
        owners = [each["kind"] for each in box["metadata"].get("ownerReferences", ())]
        assert not is_pooled or owners == ["SandboxClaim"], f"{ref} leads to an unclaimed pod"

    def _known(self, kind: Kind) -> dict[str, JsonObject]:
        return {uid: item for w in self.watches if w.kind is kind for uid, item in w.known.items()}

    def _gone(self, kind: Kind) -> set[str]:
        return {uid for w in self.watches if w.kind is kind for uid in w.gone}

    # --- what must hold in the end ----------------------------------------------------------

    def truth(self) -> dict[SandboxRef, tuple[State, str]]:
        """Returns what the table must be, read off the cluster's objects in the plainest way."""
        store = self.cluster.store
        expected: dict[SandboxRef, tuple[State, str]] = {}
        for box in store.items(SANDBOXES, None):
            owners = [each["kind"] for each in box["metadata"].get("ownerReferences", ())]
            own = [
                item
                for item in store.items(PODS, None)
                if item["metadata"]["ownerReferences"][0]["uid"] == box["metadata"]["uid"]
            ]
            named = [item for item in own if item["metadata"]["name"] == box["metadata"]["name"]]
            found = named or [item for item in own if _is_live(item)]
            is_routable = (
                len(found) == 1
                and _is_live(found[0])
                and found[0]["status"]["conditions"][0]["status"] == "True"
                and (POOL_LABEL not in found[0]["metadata"]["labels"] or owners == ["SandboxClaim"])
            )
            is_over = box["status"]["conditions"][0]["reason"] == "SandboxExpired"
            if box["spec"]["operatingMode"] == "Suspended":
                expected[_ref(box)] = (State.FINISHED if is_over else State.SUSPENDED, "")
            elif is_routable:
                expected[_ref(box)] = (State.READY, found[0]["metadata"]["uid"])
            elif len(found) > 1:
                expected[_ref(box)] = (State.STARTING, "")
            elif is_over:
                expected[_ref(box)] = (State.FINISHED, "")
            else:
                expected[_ref(box)] = (State.STARTING, "")
        return expected

    def table(self) -> dict[SandboxRef, tuple[State, str]]:
        return {
            each.ref: (each.state, each.uid if each.state is State.READY else "")
            for each in self.index
        }

    def check_aliases(self) -> None:
        store = self.cluster.store
        boxes = {_ref(box): box for box in store.items(SANDBOXES, None)}
        claims = store.items(CLAIMS, None)
        for item in claims:
            bound = SandboxRef(item["metadata"]["namespace"], item["status"]["sandbox"]["name"])
            box = boxes.get(bound)
            owners = box["metadata"].get("ownerReferences", ()) if box else ()
            uids = [each["uid"] for each in owners if each["kind"] == "SandboxClaim"]
            is_serving = box is not None and uids in ([], [item["metadata"]["uid"]])
            found = self.index.find(_ref(item))
            assert (found.ref if found else None) == (bound if is_serving else None)


def _is_live(item: JsonObject) -> bool:
    return item["status"]["phase"] == "Running" and "deletionTimestamp" not in item["metadata"]


def _ref(item: JsonObject) -> SandboxRef:
    return SandboxRef(item["metadata"]["namespace"], item["metadata"]["name"])


LAUNCHES = ["launch", "launch", "launch_pooled"]
steps = st.one_of(
    st.tuples(st.just("act"), st.sampled_from(LAUNCHES), st.sampled_from(PLACES)),
    st.tuples(st.just("act"), st.sampled_from(ACTIONS), st.sampled_from(PLACES)),
    st.tuples(st.just("act"), st.sampled_from(ACTIONS), st.sampled_from(PLACES)),
    st.tuples(st.just("deliver"), st.integers(0, 5), st.integers(1, 9)),
    st.tuples(st.just("deliver"), st.integers(0, 5), st.integers(1, 9)),
    st.tuples(st.just("catch up")),
    st.tuples(st.just("relist"), st.integers(0, 5)),
)
histories = st.lists(steps, min_size=20, max_size=80)

ONE = ("ns-a", "one")
TWO = ("ns-a", "two")
FAR = ("ns-b", "one")
PODS_A, BOXES_A, PODS_B, BOXES_B = 0, 1, 3, 4
UP = [("act", "launch", ONE), ("catch up",)]
LAGGING_NAMESPACE = [
    *UP,
    ("act", "terminate_pod", ONE),
    ("act", "remove_pod", ONE),
    ("act", "launch", FAR),
    ("deliver", BOXES_B, 9),
    ("deliver", PODS_B, 1),
]
"""An address moves to another namespace whose watch is ahead of the old one's."""
SUCCESSORS_POD_FIRST = [
    *UP,
    ("act", "delete", ONE),
    ("act", "collect_garbage", ONE),
    ("act", "launch", ONE),
    ("deliver", PODS_A, 9),
]
"""The pod of a sandbox that took a deleted one's name is seen before that sandbox."""
MISSED_DELETION = [*UP, ("act", "delete", ONE), ("relist", BOXES_A)]
"""A list no longer holds a sandbox whose pod still runs."""
MISSED_REPLACEMENT = [
    *UP,
    ("act", "delete", ONE),
    ("act", "create", ONE),
    ("relist", BOXES_A),
    ("act", "delete", ONE),
    ("deliver", BOXES_A, 9),
]
"""A list holds a successor already, and then that goes too."""
CLAIM_TAKES_OVER = [*UP, ("act", "rival_claim", ONE), ("act", "claim", ONE), ("catch up",)]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    scopes=st.sampled_from([[None], ["ns-a", "ns-b"]]),
    history=histories,
)
@example(scopes=["ns-a", "ns-b"], history=LAGGING_NAMESPACE)
@example(scopes=["ns-a", "ns-b"], history=SUCCESSORS_POD_FIRST)
@example(scopes=["ns-a", "ns-b"], history=MISSED_DELETION)
@example(scopes=["ns-a", "ns-b"], history=MISSED_REPLACEMENT)
@example(scopes=["ns-a", "ns-b"], history=CLAIM_TAKES_OVER)
def test_every_interleaving_of_the_watches_is_safe_throughout_and_right_in_the_end(
    scopes: list[str | None], history: list[tuple[Any, ...]]
) -> None:
    world = World(scopes)

    for step in history:
        world.step(step)
    world.finish()

    assert world.table() == world.truth()
    world.check_aliases()


@settings(max_examples=100, deadline=None)
@given(
    scopes=st.sampled_from([[None], ["ns-a", "ns-b"]]),
    history=histories,
)
def test_following_the_events_and_listing_once_at_the_end_come_to_the_same(
    scopes: list[str | None], history: list[tuple[Any, ...]]
) -> None:
    world = World(scopes)
    for step in history:
        world.step(step)
    world.finish()
    fresh = World(scopes)
    fresh.cluster = world.cluster
    for watch in fresh.watches:
        watch.store = world.cluster.store

    for watch in fresh.watches:
        watch.relist()

    assert fresh.table() == world.table()
