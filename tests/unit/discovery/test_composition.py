from __future__ import annotations

from typing import Any

import pytest

from router.discovery.composition import compose
from router.discovery.pods import PodRecord, parse_pod
from router.discovery.sandboxes import SandboxRecord, parse_sandbox
from router.routing.endpoint import Endpoint, SandboxRef, State
from tests.fakes.cluster_objects import EXTENSIONS, owner, pod, sandbox

REF = SandboxRef("default", "box")
BOX = sandbox("box", uid="box-1")
SUCCESSOR = sandbox("box", uid="box-2")
CLAIMED = owner("SandboxClaim", "mine", "claim-uid", group=EXTENSIONS)


def a_pod(
    uid: str = "pod", *, of: dict[str, Any] = BOX, name: str = "box", **shape: Any
) -> PodRecord:
    shape = {"is_ready": True, "address": "10.0.0.1"} | shape
    return parse_pod(pod(name, of=of, uid=uid, **shape))


def a_sandbox(**shape: Any) -> SandboxRecord:
    return parse_sandbox(sandbox("box", uid="box-1", **shape))


def composed(*pods: PodRecord, box: SandboxRecord | None = None) -> Endpoint | None:
    return compose(REF, box, pods, lambda pod: pod.addresses)


def state_of(*pods: PodRecord, box: SandboxRecord | None = None) -> tuple[State, str]:
    endpoint = composed(*pods, box=box)
    assert endpoint is not None
    return endpoint.state, endpoint.reason


def test_a_ready_pod_of_the_sandbox_is_the_endpoint() -> None:
    endpoint = composed(a_pod(address=("10.0.0.1", "fd00::1")), box=a_sandbox())

    assert endpoint == Endpoint(
        ref=REF,
        uid="pod",
        state=State.READY,
        addresses=("10.0.0.1", "fd00::1"),
        sandbox_uid="box-1",
    )


def test_nothing_known_is_no_endpoint() -> None:
    assert composed() is None


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ({"is_ready": False}, "PodNotReady"),
        ({"address": ()}, "NoAddress"),
        ({"is_deleting": True}, "DependenciesNotReady"),
        ({"phase": "Failed"}, "DependenciesNotReady"),
        ({"is_pooled": True}, "WaitingForClaim"),
        ({"of": SUCCESSOR}, "DependenciesNotReady"),
    ],
)
def test_a_pod_that_may_not_be_dialled_means_starting(shape: dict[str, Any], reason: str) -> None:
    assert state_of(a_pod(**shape), box=a_sandbox()) == (State.STARTING, reason)


def test_a_pool_pod_is_routable_the_moment_a_claim_controls_its_sandbox() -> None:
    pool = owner("SandboxWarmPool", "pool", "pool-uid", group=EXTENSIONS)
    pooled = a_pod(is_pooled=True)

    assert state_of(pooled, box=a_sandbox(controlled_by=pool))[0] is State.STARTING
    assert state_of(pooled, box=a_sandbox(controlled_by=CLAIMED))[0] is State.READY


def test_a_pool_pod_is_routable_the_moment_its_label_goes() -> None:
    pool = owner("SandboxWarmPool", "pool", "pool-uid", group=EXTENSIONS)

    assert state_of(a_pod(is_pooled=False), box=a_sandbox(controlled_by=pool))[0] is State.READY


def test_suspended_outranks_a_pod_that_still_runs() -> None:
    assert state_of(a_pod(), box=a_sandbox(mode="Suspended"))[0] is State.SUSPENDED


@pytest.mark.parametrize("reason", ["SandboxExpired", "PodFailed", "PodSucceeded"])
def test_a_suspended_sandbox_that_has_finished_is_finished_whatever_its_pod_says(
    reason: str,
) -> None:
    box = a_sandbox(mode="Suspended", reason=reason)

    assert state_of(a_pod(), box=box) == state_of(box=box) == (State.FINISHED, reason)


@pytest.mark.parametrize("reason", ["SandboxExpired", "PodFailed", "PodSucceeded"])
def test_a_finished_sandbox_without_a_running_pod_is_finished(reason: str) -> None:
    assert state_of(box=a_sandbox(reason=reason)) == (State.FINISHED, reason)


def test_a_running_pod_outranks_what_a_condition_still_says() -> None:
    assert state_of(a_pod(), box=a_sandbox(reason="PodFailed"))[0] is State.READY


def test_a_resumed_sandbox_is_starting_whatever_lingers() -> None:
    assert state_of(box=a_sandbox(reason="SandboxSuspended")) == (
        State.STARTING,
        "SandboxSuspended",
    )


def test_of_two_pods_of_one_name_the_newer_is_there_and_the_end_of_the_older_was_not_seen_yet() -> (
    None
):
    old = a_pod("old", created="2026-11-01T00:00:00Z")
    new = a_pod("new", created="2026-11-01T00:00:01Z")
    starting = a_pod("starting", created="2026-11-01T00:00:02Z", is_ready=False)

    for pods in ((old, new), (new, old)):
        endpoint = composed(*pods, box=a_sandbox())
        assert endpoint is not None
        assert endpoint.uid == "new"
    assert state_of(old, starting, box=a_sandbox()) == (State.STARTING, "PodNotReady")


class TestSeveralPodsOfOneSandbox:
    """Whoever may create a pod can copy an ownerReference into it."""

    EVIL = a_pod("evil", name="evil", address="10.6.6.6", created="2026-11-02T00:00:00Z")

    @pytest.mark.parametrize("is_ready", [True, False])
    def test_the_pod_with_the_sandboxs_name_is_never_passed_over(self, is_ready: bool) -> None:
        own = a_pod("own", is_ready=is_ready)

        for pods in ((own, self.EVIL), (self.EVIL, own)):
            endpoint = composed(*pods, box=a_sandbox())
            assert endpoint is not None
            assert endpoint.state is (State.READY if is_ready else State.STARTING)
            assert endpoint.uid == "own"

    @pytest.mark.parametrize("shape", [{"is_deleting": True}, {"phase": "Failed"}])
    def test_not_even_when_it_goes(self, shape: dict[str, Any]) -> None:
        state, _ = state_of(a_pod("own", **shape), self.EVIL, box=a_sandbox())

        assert state is State.STARTING

    def test_the_pod_that_the_annotation_names_is_never_passed_over(self) -> None:
        box = a_sandbox(annotations={"agents.x-k8s.io/pod-name": "warm-1"})
        own = a_pod("own", name="warm-1", is_ready=False)

        assert state_of(own, self.EVIL, box=box) == (State.STARTING, "PodNotReady")

    def test_pods_that_cannot_be_told_apart_are_not_dialled_at_all(self) -> None:
        other = a_pod("other", name="warm-1")

        endpoint = composed(other, self.EVIL, box=a_sandbox())

        assert endpoint is not None
        assert (endpoint.state, endpoint.reason) == (State.STARTING, "MultiplePods")
        assert (endpoint.uid, endpoint.addresses) == ("", ())

    def test_one_that_is_not_ready_yet_counts_too(self) -> None:
        other = a_pod("other", name="warm-1", is_ready=False)

        assert state_of(other, self.EVIL, box=a_sandbox()) == (State.STARTING, "MultiplePods")

    def test_one_alone_is_the_one_whatever_it_is_called(self) -> None:
        # After an adoption from a pool.
        assert state_of(a_pod(name="warm-1"), box=a_sandbox())[0] is State.READY

    def test_an_old_one_that_goes_leaves_the_new_one_alone(self) -> None:
        old = a_pod("old", name="warm-1", is_deleting=True)

        endpoint = composed(old, a_pod("new", name="warm-2"), box=a_sandbox())

        assert endpoint is not None
        assert (endpoint.state, endpoint.uid) == (State.READY, "new")

    def test_without_the_sandbox_object_the_name_decides_too_whatever_owner_is_claimed(
        self,
    ) -> None:
        made_up = a_pod("evil", name="evil", of=SUCCESSOR, created="2026-11-02T00:00:00Z")

        for evil in (self.EVIL, made_up):
            endpoint = composed(evil, a_pod("own"))
            assert endpoint is not None
            assert (endpoint.state, endpoint.uid) == (State.READY, "own")

    def test_without_the_sandbox_object_pods_that_cannot_be_told_apart_are_not_dialled(
        self,
    ) -> None:
        other = a_pod("other", name="warm-1")

        assert state_of(other, self.EVIL) == (State.STARTING, "MultiplePods")


def test_an_address_that_cannot_be_a_pods_is_not_dialled_and_told() -> None:
    assert state_of(a_pod(address="169.254.1.1"), box=a_sandbox()) == (
        State.STARTING,
        "AddressRefused",
    )


def test_a_resume_is_starting_though_the_condition_suspended_still_says_true() -> None:
    item = sandbox("box", uid="box-1", reason="SandboxSuspended")
    item["status"]["conditions"].append({"type": "Suspended", "status": "True"})

    assert state_of(box=parse_sandbox(item))[0] is State.STARTING


def test_the_pod_that_the_legacy_annotation_names_is_preferred() -> None:
    named = a_pod("named", name="warm-1", created="2026-11-01T00:00:00Z")
    newer = a_pod("newer", created="2026-11-01T00:00:01Z")
    box = a_sandbox(annotations={"agents.x-k8s.io/pod-name": "warm-1"})

    endpoint = composed(newer, named, box=box)

    assert endpoint is not None
    assert endpoint.uid == "named"


def test_the_legacy_annotation_never_leads_to_another_sandboxs_pod() -> None:
    stranger = a_pod("stranger", name="warm-1", of=sandbox("other", uid="other-uid"))
    box = a_sandbox(annotations={"agents.x-k8s.io/pod-name": "warm-1"})

    assert state_of(stranger, box=box)[0] is State.STARTING


def test_starting_names_the_pod_that_is_coming() -> None:
    endpoint = composed(a_pod("coming", is_ready=False), box=a_sandbox())

    assert endpoint is not None
    assert endpoint.answers_to_uid("coming")
    assert endpoint.answers_to_uid("box-1")
    assert endpoint.addresses == ()


def test_the_path_mode_of_a_sandbox_is_passed_on() -> None:
    box = a_sandbox(annotations={"router.agents.x-k8s.io/path-mode": "keep"})
    endpoint = composed(a_pod(), box=box)

    assert endpoint is not None
    assert endpoint.wishes.path_mode == "keep"


def test_tokens_not_before_is_passed_on_in_every_state() -> None:
    box = a_sandbox(annotations={"router.agents.x-k8s.io/tokens-not-before": "bad"})

    for pods in ((), (a_pod(),)):
        endpoint = composed(*pods, box=box)
        assert endpoint is not None
        assert endpoint.tokens_not_before == float("inf")


def test_addresses_that_are_not_certain_are_not_used() -> None:
    contested = compose(REF, a_sandbox(), [a_pod()], lambda pod: ())

    assert contested is not None
    assert (contested.state, contested.reason) == (State.STARTING, "AddressContested")


class TestWithoutTheSandboxObject:
    def test_a_ready_pod_speaks_for_itself(self) -> None:
        assert state_of(a_pod())[0] is State.READY

    def test_a_predecessors_pod_is_not_routed_once_the_successors_is_seen(self) -> None:
        old = a_pod("old", of=BOX, created="2026-11-01T00:00:00Z")
        new = a_pod("new", of=SUCCESSOR, created="2026-11-01T00:00:01Z", is_ready=False)

        for pods in ((old, new), (new, old)):
            endpoint = composed(*pods)
            assert endpoint is not None
            assert (endpoint.state, endpoint.sandbox_uid) == (State.STARTING, "box-2")

    def test_a_pool_pod_is_nobodys(self) -> None:
        assert state_of(a_pod(is_pooled=True)) == (State.STARTING, "WaitingForClaim")

    def test_a_pod_that_ended_means_finished(self) -> None:
        assert state_of(a_pod(phase="Succeeded")) == (State.FINISHED, "PodEnded")

    def test_a_pod_that_is_being_deleted_may_have_a_successor(self) -> None:
        assert state_of(a_pod(is_deleting=True)) == (State.STARTING, "NoPod")
