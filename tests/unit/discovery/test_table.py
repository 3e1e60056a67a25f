from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from router.discovery.pods import PodRecord, parse_pod
from router.discovery.sandboxes import SandboxRecord, parse_sandbox
from router.discovery.table import SandboxTable
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.index import EndpointIndex
from tests.fakes.cluster_objects import pod, sandbox

REF = SandboxRef("default", "box")
BOX = sandbox("box", uid="box-1")
SUCCESSOR = sandbox("box", uid="box-2")


class Table:
    """A settled SandboxTable, its index and what was retired."""

    def __init__(self, *, is_settled: bool = True) -> None:
        self.retired: list[Endpoint] = []
        self.index = EndpointIndex(waiting_room=10, waiting_room_per_namespace=10)
        self.table = SandboxTable(index=self.index, on_retired=self.retired.append)
        if is_settled:
            self.table.settle(None)

    def replace_pods(self, pods: list[PodRecord], namespace: str | None) -> None:
        listing = self.table.list_pods(namespace)
        for record in pods:
            listing.add(record)
        listing.commit()

    def replace_sandboxes(self, boxes: list[SandboxRecord], namespace: str | None) -> None:
        listing = self.table.list_sandboxes(namespace)
        for box in boxes:
            listing.add(box)
        listing.commit()

    def route(self, ref: SandboxRef = REF) -> str | None:
        """Returns the UID of the pod that is dialled for this name."""
        found = self.index.find(ref)
        return found.uid if found is not None and found.state is State.READY else None

    def state(self, ref: SandboxRef = REF) -> State | None:
        found = self.index.find(ref)
        return None if found is None else found.state


def a_pod(uid: str = "pod-1", *, of: dict[str, Any] = BOX, **shape: Any) -> PodRecord:
    shape = {"is_ready": True, "address": "10.0.0.1"} | shape
    return parse_pod(pod(of["metadata"]["name"], of=of, uid=uid, **shape))


def a_sandbox(uid: str = "box-1", name: str = "box", **shape: Any) -> SandboxRecord:
    return parse_sandbox(sandbox(name, uid=uid, **shape))


def test_pod_and_sandbox_may_come_in_either_order() -> None:
    first, second = Table(), Table()

    first.table.upsert_pod(a_pod())
    first.table.upsert_sandbox(a_sandbox())
    second.table.upsert_sandbox(a_sandbox())
    assert second.state() is State.STARTING
    second.table.upsert_pod(a_pod())

    assert first.route() == second.route() == "pod-1"


def test_a_pod_of_the_predecessor_is_cut_off_when_the_successor_is_seen() -> None:
    table = Table()
    table.table.upsert_sandbox(a_sandbox("box-1", version=1))
    table.table.upsert_pod(a_pod())

    table.table.upsert_sandbox(a_sandbox("box-2", version=2))

    assert table.state() is State.STARTING
    assert [endpoint.uid for endpoint in table.retired] == ["pod-1"]


def test_a_pod_of_a_deleted_sandbox_is_cut_off_before_it_is_deleted_itself() -> None:
    table = Table()
    table.table.upsert_sandbox(a_sandbox(version=1))
    table.table.upsert_pod(a_pod())

    table.table.remove_sandbox(a_sandbox(version=2))

    assert table.state() is None
    table.table.upsert_pod(a_pod(version=9))
    assert table.state() is None


def test_a_sandbox_that_was_never_seen_but_is_deleted_cuts_its_pod_off_too() -> None:
    table = Table()
    table.table.upsert_pod(a_pod())

    table.table.remove_sandbox(a_sandbox(version=2))

    assert table.state() is None


def test_every_order_of_predecessors_and_successors_events_ends_in_the_right_table() -> None:
    def events(table: SandboxTable) -> list[tuple[str, Callable[[], None]]]:
        old, gone = a_pod("old", version=1), a_pod("old", version=5, is_deleting=True)
        new = a_pod("new", of=SUCCESSOR, version=4, created="2026-11-01T00:00:09Z")
        return [
            ("old pod", lambda: table.upsert_pod(old)),
            ("old pod terminating", lambda: table.upsert_pod(gone)),
            ("old pod gone", lambda: table.remove_pod(a_pod("old", version=6))),
            ("new pod", lambda: table.upsert_pod(new)),
            ("old sandbox gone", lambda: table.remove_sandbox(a_sandbox("box-1", version=2))),
            ("new sandbox", lambda: table.upsert_sandbox(a_sandbox("box-2", version=3))),
        ]

    for order in permutations(range(6)):
        table = Table()
        steps = events(table.table)
        for position in order:
            steps[position][1]()
        assert table.route() == "new", [steps[position][0] for position in order]


def test_a_late_deletion_of_the_old_pod_leaves_the_new_route_alone() -> None:
    table = Table()
    table.table.upsert_sandbox(a_sandbox())
    table.table.upsert_pod(a_pod("old", version=1))
    table.table.upsert_pod(a_pod("new", version=3, created="2026-11-01T00:00:09Z"))

    table.table.remove_pod(a_pod("old", version=4))

    assert table.route() == "new"


def test_an_event_older_than_what_is_known_changes_nothing() -> None:
    table = Table()
    table.table.upsert_pod(a_pod(version=5, is_ready=False))
    table.table.upsert_sandbox(a_sandbox(version=5, mode="Suspended"))

    table.table.upsert_pod(a_pod(version=4))
    table.table.upsert_sandbox(a_sandbox(version=4))
    table.table.remove_pod(a_pod(version=3))
    table.table.remove_sandbox(a_sandbox(version=3))

    assert table.state() is State.SUSPENDED


def test_records_read_through_the_table_are_ordered_too_and_share_what_is_known() -> None:
    table = Table()
    table.table.upsert_sandbox(a_sandbox(version=1))

    def read(**shape: Any) -> PodRecord:
        shape = {"is_ready": True, "address": "10.0.0.1", "uid": "pod-1"} | shape
        return table.table.read_pod(pod("box", of=BOX, **shape))

    table.table.upsert_pod(read(version=5, is_ready=False))
    table.table.upsert_pod(read(version=4))

    assert table.state() is State.STARTING
    assert read().ref is read().ref
    assert read().name is read().ref.name


def test_a_pod_that_matches_the_selector_again_is_alive_again() -> None:
    table = Table()
    table.table.upsert_pod(a_pod(version=1))
    table.table.remove_pod(a_pod(version=2))
    assert table.route() is None

    table.table.upsert_pod(a_pod(version=3))

    assert table.route() == "pod-1"


def test_a_pod_that_changes_its_owner_leaves_the_old_name_at_once() -> None:
    table = Table()
    other = sandbox("other", uid="other-1")
    table.table.upsert_pod(a_pod(version=1))

    table.table.upsert_pod(a_pod(of=other, version=2))

    assert table.state() is None
    assert table.route(SandboxRef("default", "other")) == "pod-1"
    assert [endpoint.ref for endpoint in table.retired] == [REF]


def test_a_pod_that_loses_its_owner_is_cut_off_and_late_events_do_not_bring_it_back() -> None:
    table = Table()
    table.table.upsert_pod(a_pod(version=1))
    orphan = parse_pod(
        pod("box", of=None, uid="pod-1", version=3, address="10.0.0.1", is_ready=True)
    )

    table.table.upsert_pod(orphan)
    table.table.upsert_pod(a_pod(version=2))

    assert table.state() is None


def test_changes_that_do_not_matter_to_routing_do_not_reach_the_index() -> None:
    table = Table()
    table.table.upsert_sandbox(a_sandbox(version=1))
    table.table.upsert_pod(a_pod(version=1))
    before = table.index.events

    table.table.upsert_pod(a_pod(version=2))
    table.table.upsert_sandbox(a_sandbox(version=2))

    assert table.index.events == before


class TestRecycledAddresses:
    OTHER = sandbox("other", namespace="team-b", uid="other-1")
    OTHER_REF = SandboxRef("team-b", "other")

    def test_a_younger_pod_that_starts_at_an_address_ends_the_old_route(self) -> None:
        table = Table()
        table.table.upsert_pod(a_pod(created="2026-11-01T00:00:00Z"))

        young = a_pod("young", of=self.OTHER, is_ready=False, created="2026-11-01T00:00:05Z")
        table.table.upsert_pod(young)

        assert table.state() is State.STARTING
        assert [endpoint.uid for endpoint in table.retired] == ["pod-1"]

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_two_pods_that_are_ready_at_one_address_are_both_not_dialled(
        self, order: tuple[int, int]
    ) -> None:
        table = Table()
        pods = (
            a_pod(created="2026-11-01T00:00:00Z"),
            a_pod("young", of=self.OTHER, created="2026-11-01T00:00:05Z"),
        )

        for position in order:
            table.table.upsert_pod(pods[position])

        assert table.state() is table.state(self.OTHER_REF) is State.STARTING

    def test_the_route_opens_as_soon_as_the_other_pod_lets_go(self) -> None:
        for end in ("deleting", "removed", "failed", "moved", "relisted"):
            table = Table()
            table.table.upsert_pod(a_pod(version=1))
            table.table.upsert_pod(a_pod("young", of=self.OTHER, version=2))
            assert table.state(self.OTHER_REF) is State.STARTING

            if end == "deleting":
                table.table.upsert_pod(a_pod(version=3, is_deleting=True))
            elif end == "removed":
                table.table.remove_pod(a_pod(version=3))
            elif end == "failed":
                table.table.upsert_pod(a_pod(version=3, phase="Failed"))
            elif end == "moved":
                table.table.upsert_pod(a_pod(version=3, address="10.0.0.9"))
            else:
                table.replace_pods([a_pod("young", of=self.OTHER, version=2)], None)

            assert table.route(self.OTHER_REF) == "young", end

    def test_an_older_pod_that_is_not_ready_does_not_block_the_younger(self) -> None:
        table = Table()
        table.table.upsert_pod(a_pod(is_ready=False, created="2026-11-01T00:00:00Z"))

        table.table.upsert_pod(a_pod("young", of=self.OTHER, created="2026-11-01T00:00:05Z"))

        assert table.route(self.OTHER_REF) == "young"

    def test_an_uncontested_family_still_serves(self) -> None:
        table = Table()
        table.table.upsert_pod(a_pod(address=("10.0.0.1", "fd00::1")))

        table.table.upsert_pod(a_pod("young", of=self.OTHER, address=("10.0.0.1", "fd00::2")))

        found = table.index.find(REF)
        assert found is not None
        assert found.addresses == ("fd00::1",)

    def test_pods_on_the_network_of_their_node_share_its_address(self) -> None:
        table = Table()
        table.table.upsert_pod(a_pod(host_network=True))

        table.table.upsert_pod(a_pod("young", of=self.OTHER, host_network=True))

        assert table.route() == "pod-1"
        assert table.route(self.OTHER_REF) == "young"


class TestLists:
    def test_nothing_is_published_before_the_scope_is_settled(self) -> None:
        table = Table(is_settled=False)
        table.replace_pods([a_pod()], None)
        table.replace_sandboxes([a_sandbox(mode="Suspended")], None)
        assert table.state() is None

        table.table.settle(None)

        assert table.state() is State.SUSPENDED

    def test_scopes_settle_one_by_one(self) -> None:
        table = Table(is_settled=False)
        far = sandbox("box", namespace="team-b", uid="far-1")
        table.replace_pods([a_pod()], "default")
        table.replace_pods([a_pod("far", of=far, address="10.0.0.2")], "team-b")

        table.table.settle("team-b")

        assert table.state() is None
        assert table.route(SandboxRef("team-b", "box")) == "far"

    def test_a_list_takes_out_what_it_does_not_hold(self) -> None:
        table = Table()
        table.table.upsert_sandbox(a_sandbox(version=1))
        table.table.upsert_sandbox(a_sandbox("gone-1", "gone", version=1))
        table.table.upsert_pod(a_pod(version=1))

        table.replace_pods([a_pod("pod-2", version=7)], None)
        table.replace_sandboxes([a_sandbox(version=1)], None)

        assert table.route() == "pod-2"
        assert table.state(SandboxRef("default", "gone")) is None
        assert [endpoint.uid for endpoint in table.retired] == ["pod-1"]

    def test_a_list_outranks_the_events_before_it_even_with_lower_versions(self) -> None:
        table = Table()
        table.table.upsert_pod(a_pod(version=900, is_ready=False))
        table.table.remove_pod(a_pod("pod-2", version=900))

        # The cluster's store was restored from a backup: versions start lower again.
        table.replace_pods([a_pod(version=10), a_pod("pod-2", version=11)], None)
        assert table.route() == "pod-2"

        table.table.upsert_pod(a_pod("pod-2", version=12, is_ready=False))
        assert table.state() is State.STARTING

    def test_a_list_of_one_namespace_leaves_the_others_alone(self) -> None:
        table = Table()
        far = sandbox("box", namespace="team-b", uid="far-1")
        table.table.upsert_pod(a_pod())
        table.table.upsert_pod(a_pod("far", of=far, address="10.0.0.2"))

        table.replace_pods([], "team-b")
        table.replace_sandboxes([], "team-b")

        assert table.route() == "pod-1"
        assert table.state(SandboxRef("team-b", "box")) is None

    def test_a_list_that_changes_nothing_retires_nothing(self) -> None:
        table = Table()
        table.replace_pods([a_pod()], None)
        table.replace_sandboxes([a_sandbox()], None)
        events = table.index.events

        table.replace_pods([a_pod(version=3)], None)
        table.replace_sandboxes([a_sandbox(version=3)], None)

        assert (table.retired, table.index.events) == ([], events)


def test_an_unreadable_tokens_annotation_is_logged_once_per_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = Table()
    bad = {"router.agents.x-k8s.io/tokens-not-before": "soon"}

    for version in (1, 2, 3):
        table.table.upsert_sandbox(a_sandbox(version=version, annotations=bad))

    found = table.index.find(REF)
    assert found is not None
    assert found.tokens_not_before == float("inf")
    assert len(caplog.records) == 1


def test_what_another_table_had_gives_way_to_our_own_first_lists() -> None:
    at = Table(is_settled=False)
    adopted = [
        Endpoint(REF, "pod-0", State.READY, ("10.0.0.9",)),
        Endpoint(SandboxRef("default", "gone"), "pod-9", State.READY, ("10.0.0.2",)),
        Endpoint(SandboxRef("team-b", "else"), "pod-7", State.READY, ("10.0.0.3",)),
    ]
    at.index.replace(adopted)
    at.replace_sandboxes([a_sandbox()], "default")
    at.replace_pods([a_pod()], "default")
    assert at.route() == "pod-0", "half of the lists changes nothing"

    at.table.settle("default")
    assert at.route() == "pod-1"
    assert at.state(SandboxRef("default", "gone")) is None
    assert at.route(SandboxRef("team-b", "else")) == "pod-7", "another scope keeps what it has"
    assert {endpoint.uid for endpoint in at.retired} == {"pod-0", "pod-9"}


# --- waking ---------------------------------------------------------------------------------


def test_a_sandbox_that_leaves_suspension_is_known_to_be_on_its_way_back() -> None:
    now = [100.0]
    place = Table()
    place.table = SandboxTable(
        index=place.index, on_retired=place.retired.append, clock=lambda: now[0]
    )
    place.table.settle(None)

    def resumed_at() -> float:
        found = place.index.find(REF)
        assert found is not None
        return found.resumed_at

    place.table.upsert_sandbox(a_sandbox(version=1))
    assert resumed_at() == 0.0, "it starts for the first time"
    place.table.upsert_sandbox(a_sandbox(version=2, mode="Suspended"))
    assert (place.state(), resumed_at()) == (State.SUSPENDED, 0.0)
    now[0] = 200.0
    place.table.upsert_sandbox(a_sandbox(version=3))
    assert (place.state(), resumed_at()) == (State.STARTING, 200.0)
    now[0] = 210.0
    place.table.upsert_pod(a_pod())
    place.table.upsert_sandbox(a_sandbox(version=4, is_ready=True))
    assert (place.state(), resumed_at()) == (State.READY, 200.0)
    place.table.upsert_sandbox(a_sandbox("box-2", version=5))
    assert resumed_at() == 0.0, "another one of that name"


def test_what_waking_needs_to_know_is_in_the_index() -> None:
    place = Table()
    item = sandbox(
        "box",
        uid="box-1",
        mode="Suspended",
        annotations={"router.agents.x-k8s.io/wake": "on-request"},
    )
    item["spec"]["shutdownTime"] = "2026-12-01T00:00:00Z"
    place.table.upsert_sandbox(parse_sandbox(item))
    found = place.index.find(REF)
    assert found is not None
    assert found.wishes.wakes_on_request
    assert found.shutdown_at == 1796083200.0
