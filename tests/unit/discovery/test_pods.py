from __future__ import annotations

import pytest

from router.discovery.objects import MalformedObjectError
from router.discovery.pods import PodStage, parse_pod
from router.routing.endpoint import SandboxRef
from tests.fakes.cluster_objects import owner, pod, sandbox

BOX = sandbox("box", namespace="team-a", uid="sandbox-uid")


def test_a_pod_has_the_name_of_the_sandbox_that_controls_it() -> None:
    record = parse_pod(pod("pool-x7k2", of=BOX, uid="pod-uid", version=7))

    assert record.ref == SandboxRef("team-a", "box")
    assert (record.name, record.uid, record.sandbox_uid) == ("pool-x7k2", "pod-uid", "sandbox-uid")
    assert record.version == 7


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1", "v1", "v2"])
def test_every_version_of_the_owners_group_counts(version: str) -> None:
    item = pod("box", of=BOX)
    item["metadata"]["ownerReferences"][0]["apiVersion"] = f"agents.x-k8s.io/{version}"

    assert parse_pod(item).ref.name == "box"


@pytest.mark.parametrize(
    "change",
    [
        {"controller": False},
        {"kind": "ReplicaSet"},
        {"apiVersion": "apps/v1"},
        {"apiVersion": "evil.agents.x-k8s.io/v1beta1"},
        {"apiVersion": "agents.x-k8s.io.evil/v1beta1"},
        {"uid": ""},
        {"controller": "true"},
    ],
)
def test_a_pod_that_no_sandbox_controls_has_no_sandbox_name(change: dict[str, object]) -> None:
    item = pod("box", of=BOX)
    item["metadata"]["ownerReferences"][0] |= change

    assert parse_pod(item).ref == SandboxRef("team-a", "")


def test_only_the_controlling_owner_counts_among_several() -> None:
    item = pod("box", of=BOX)
    other = {**owner("Sandbox", "other", "other-uid"), "controller": False}
    item["metadata"]["ownerReferences"].insert(0, other)

    assert parse_pod(item).ref.name == "box"


@pytest.mark.parametrize(
    ("shape", "stage"),
    [
        ({"is_ready": True}, PodStage.READY),
        ({"is_ready": False}, PodStage.STARTING),
        ({"is_ready": False, "phase": "Pending"}, PodStage.STARTING),
        ({"is_ready": True, "phase": "Unknown"}, PodStage.STARTING),
        ({"is_ready": True, "phase": "Succeeded"}, PodStage.ENDED),
        ({"is_ready": True, "phase": "Failed"}, PodStage.ENDED),
        ({"is_ready": True, "is_deleting": True}, PodStage.DELETING),
        ({"is_ready": False, "is_deleting": True, "phase": "Failed"}, PodStage.DELETING),
    ],
)
def test_the_stage_follows_deletion_then_phase_then_readiness(
    shape: dict[str, object], stage: PodStage
) -> None:
    assert parse_pod(pod("box", of=BOX, **shape)).traits.stage is stage  # type: ignore[arg-type]


def test_addresses_keep_the_pods_order_of_families() -> None:
    record = parse_pod(pod("box", of=BOX, address=("fd00::7", "10.1.2.3")))

    assert record.addresses == ("fd00::7", "10.1.2.3")


def test_the_single_address_field_serves_where_the_list_is_missing() -> None:
    item = pod("box", of=BOX, address="10.1.2.3")
    del item["status"]["podIPs"]

    assert parse_pod(item).addresses == ("10.1.2.3",)


def test_what_is_no_ip_literal_is_no_address() -> None:
    record = parse_pod(pod("box", of=BOX, address=("evil.example", "", "10.1.2.3", "10.1.2.3")))

    assert record.addresses == ("10.1.2.3",)


def test_an_address_that_cannot_be_a_pods_is_left_out_and_kept_for_people() -> None:
    record = parse_pod(pod("box", of=BOX, address=("169.254.1.1", "10.0.0.1", "0.0.0.0")))

    assert record.addresses == ("10.0.0.1",)
    assert record.traits.refused_address == "169.254.1.1"


def test_loopback_is_an_address_as_local_clusters_report_it() -> None:
    record = parse_pod(pod("box", of=BOX, address="127.0.0.1", host_network=True))

    assert (record.addresses, record.traits.refused_address) == (("127.0.0.1",), "")


def test_a_pool_pod_and_a_host_network_pod_say_so() -> None:
    record = parse_pod(pod("box", of=BOX, is_pooled=True, host_network=True))

    assert record.traits.is_pooled
    assert record.traits.shares_address


def test_records_that_differ_in_version_alone_are_equal() -> None:
    first = pod("box", of=BOX, uid="u", version=1)
    second = pod("box", of=BOX, uid="u", version=2)

    assert parse_pod(first) == parse_pod(second)


@pytest.mark.parametrize("key", ["name", "namespace", "uid"])
def test_a_pod_without_identity_is_refused(key: str) -> None:
    item = pod("box", of=BOX)
    del item["metadata"][key]

    with pytest.raises(MalformedObjectError):
        parse_pod(item)


@pytest.mark.parametrize("junk", [None, 7, "x", [], {"podIPs": "x", "conditions": {"a": 1}}])
def test_a_status_of_any_shape_is_survived(junk: object) -> None:
    item = pod("box", of=BOX)
    item["status"] = junk
    item["metadata"]["creationTimestamp"] = junk
    item["metadata"]["labels"] = junk

    record = parse_pod(item)

    assert (record.traits.stage, record.addresses, record.created) == (PodStage.STARTING, (), 0)
