"""Discovery as a whole against the fake API server: lives of sandboxes, recycled addresses, faults, rotation, outage."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from router.discovery.reflector import Phase
from router.discovery.retries import Retries
from router.kube.cluster_access import ClusterAccess, in_cluster_access
from router.routing.endpoint import SandboxRef, State
from tests.fakes.cluster_objects import EXTENSIONS, claim, owner, pod, ready_condition, sandbox
from tests.fakes.kubernetes_api import FakeKubernetes, User
from tests.fakes.kubernetes_faults import Refusal
from tests.fakes.kubernetes_store import CLAIMS, PODS, SANDBOXES, JsonObject, Kind
from tests.fakes.running_discovery import FAST, RunningDiscovery, discovering, launch, until

POOL_LABEL = "agents.x-k8s.io/warm-pool-sandbox"


def change(api: FakeKubernetes, kind: Kind, name: str, how: Callable[[JsonObject], Any]) -> None:
    def changed(item: JsonObject) -> JsonObject:
        how(item)
        return item

    api.store.update(kind, "default", name, changed)


def make_ready(api: FakeKubernetes, name: str) -> None:
    change(
        api, PODS, name, lambda item: item["status"].update(conditions=[ready_condition(True, "")])
    )


async def follow(running: RunningDiscovery, name: str, expected: State | None) -> None:
    await until(lambda: running.state(name) is expected)


async def test_a_sandboxs_life_is_followed_state_by_state() -> None:
    async with FakeKubernetes() as api, discovering(api) as running:
        await running.until_ready()
        assert running.found("box") is None

        box = api.store.create(SANDBOXES, sandbox("box"))
        await follow(running, "box", State.STARTING)
        api.store.create(PODS, pod("box", of=box, address="10.0.0.1"))
        await until(lambda: running.found("box") == (State.STARTING, "PodNotReady"))
        make_ready(api, "box")
        await until(lambda: running.found("box") == (State.READY, "10.0.0.1"))

        change(api, SANDBOXES, "box", lambda item: item["spec"].update(operatingMode="Suspended"))
        await follow(running, "box", State.SUSPENDED)
        api.store.delete(PODS, "default", "box")
        change(api, SANDBOXES, "box", lambda item: item["spec"].update(operatingMode="Running"))
        await follow(running, "box", State.STARTING)
        api.store.create(PODS, pod("box", of=box, address="10.0.0.2", is_ready=True))
        await until(lambda: running.found("box") == (State.READY, "10.0.0.2"))

        api.store.delete(PODS, "default", "box")
        expired = [ready_condition(False, "SandboxExpired")]
        change(api, SANDBOXES, "box", lambda item: item["status"].update(conditions=expired))
        await until(lambda: running.found("box") == (State.FINISHED, "SandboxExpired"))
        api.store.delete(SANDBOXES, "default", "box")
        await follow(running, "box", None)
        # The resume may be seen a moment before the old pod's end: then its route opens and closes once more.
        retired = dict.fromkeys(endpoint.addresses for endpoint in running.retired)
        assert list(retired) == [("10.0.0.1",), ("10.0.0.2",)]


async def test_adoption_from_a_pool_routes_at_once_by_both_names() -> None:
    async with FakeKubernetes() as api, discovering(api) as running:
        pool = owner("SandboxWarmPool", "pool", "pool-uid", group=EXTENSIONS)
        box = api.store.create(SANDBOXES, sandbox("pool-x7k2", controlled_by=pool, is_ready=True))
        api.store.create(
            PODS, pod("pool-x7k2", of=box, address="10.0.0.1", is_ready=True, is_pooled=True)
        )
        await until(lambda: running.found("pool-x7k2") == (State.STARTING, "WaitingForClaim"))

        mine = api.store.create(CLAIMS, claim("mine", bound_to="pool-x7k2"))
        by = owner("SandboxClaim", "mine", mine["metadata"]["uid"], group=EXTENSIONS)
        change(
            api, SANDBOXES, "pool-x7k2", lambda item: item["metadata"].update(ownerReferences=[by])
        )

        # The pod's label has not gone yet.
        await until(lambda: running.found("mine") == (State.READY, "10.0.0.1"))
        assert running.found("pool-x7k2") == (State.READY, "10.0.0.1")
        change(api, PODS, "pool-x7k2", lambda item: item["metadata"]["labels"].pop(POOL_LABEL))
        api.store.delete(CLAIMS, "default", "mine")
        await until(lambda: running.found("mine") is None)
        assert running.found("pool-x7k2") == (State.READY, "10.0.0.1")


async def test_a_pool_pod_is_routed_the_moment_its_label_goes_too() -> None:
    async with FakeKubernetes() as api, discovering(api) as running:
        pool = owner("SandboxWarmPool", "pool", "pool-uid", group=EXTENSIONS)
        box = api.store.create(SANDBOXES, sandbox("pool-x7k2", controlled_by=pool, is_ready=True))
        api.store.create(
            PODS, pod("pool-x7k2", of=box, address="10.0.0.1", is_ready=True, is_pooled=True)
        )
        await until(lambda: running.found("pool-x7k2") == (State.STARTING, "WaitingForClaim"))

        change(api, PODS, "pool-x7k2", lambda item: item["metadata"]["labels"].pop(POOL_LABEL))

        await until(lambda: running.found("pool-x7k2") == (State.READY, "10.0.0.1"))


async def test_a_copied_owner_reference_never_takes_a_route_over() -> None:
    async with FakeKubernetes() as api, discovering(api) as running:
        box = launch(api, "box")
        await follow(running, "box", State.READY)
        seen = running.index.events

        late = "2026-11-02T00:00:00Z"
        evil = pod("evil", of=box, address="10.6.6.6", created=late, is_ready=True)
        api.store.create(PODS, evil)
        await until(lambda: bool(running.discovery.notes_about(SandboxRef("default", "box"))))
        assert running.found("box") == (State.READY, "10.0.0.1")
        assert running.retired == []
        assert running.index.events == seen + 1

        change(
            api, PODS, "box", lambda i: i["status"].update(conditions=[ready_condition(False, "")])
        )
        await until(lambda: running.found("box") == (State.STARTING, "PodNotReady"))


async def test_the_waiting_are_woken_the_instant_the_pod_is_ready() -> None:
    async with FakeKubernetes() as api, discovering(api) as running:
        launch(api, "box", is_ready=False)
        await follow(running, "box", State.STARTING)
        woken: list[float] = []
        running.index.wait(SandboxRef("default", "box"), lambda: woken.append(time.monotonic()))

        ready_at = time.monotonic()
        make_ready(api, "box")
        await until(lambda: bool(woken))

        assert woken[0] - ready_at < 0.5
        assert running.state("box") is State.READY


async def test_a_recycled_address_moves_without_ever_being_shared() -> None:
    async with FakeKubernetes() as api, discovering(api) as running:
        launch(api, "old", address="10.0.0.1")
        await follow(running, "old", State.READY)

        # The kubelet of a lost node never told: the old pod still says Ready.
        young = api.store.create(SANDBOXES, sandbox("young"))
        late = "2026-11-01T00:10:00Z"
        api.store.create(PODS, pod("young", of=young, address="10.0.0.1", created=late))

        await until(lambda: running.found("old") == (State.STARTING, "AddressContested"))
        assert [endpoint.ref.name for endpoint in running.retired] == ["old"]
        api.store.delete(PODS, "default", "old")
        make_ready(api, "young")
        await until(lambda: running.found("young") == (State.READY, "10.0.0.1"))


async def test_dual_stack_and_ipv6_pods_are_found_in_their_own_order() -> None:
    async with FakeKubernetes() as api, discovering(api) as running:
        for name, addresses in (("six", ("fd00::1",)), ("both", ("fd00::2", "10.0.0.2"))):
            box = api.store.create(SANDBOXES, sandbox(name))
            api.store.create(PODS, pod(name, of=box, address=addresses, is_ready=True))

        await until(lambda: running.found("six") == (State.READY, "fd00::1"))
        await until(lambda: running.found("both") == (State.READY, "fd00::2,10.0.0.2"))


async def test_v1alpha1_sandboxes_say_suspended_with_replicas() -> None:
    async with FakeKubernetes() as api:
        api.served[SANDBOXES] = ("v1alpha1",)
        api.served[CLAIMS] = ("v1alpha1",)
        launch(api, "box")
        launch(api, "asleep", mode="Suspended", address="10.0.0.2")
        api.store.create(CLAIMS, claim("mine", bound_to="box"))
        async with discovering(api) as running:
            await running.until_ready()

            assert running.state("asleep") is State.SUSPENDED
            assert running.state("mine") is State.READY
            assert running.discovery.notes() == []


def cut(api: FakeKubernetes) -> None:
    api.faults.cut()


def truncate(api: FakeKubernetes) -> None:
    for watch in api.faults.open():
        watch.truncate = True


def stall(api: FakeKubernetes) -> None:
    for watch in api.faults.open():
        watch.is_stalled = True


def expire(api: FakeKubernetes) -> None:
    for watch in api.faults.open():
        watch.expire = True
    api.store.wake_watches()


def expire_by_status(api: FakeKubernetes) -> None:
    api.faults.expires_by_status = True
    api.store.create(PODS, pod(f"unrelated-{api.store.version}", of=None))
    api.store.compact()
    api.faults.cut()


def throttle(api: FakeKubernetes) -> None:
    api.faults.refusals.append(Refusal(429, times=4))
    api.faults.cut()


def garble(api: FakeKubernetes) -> None:
    for watch in api.faults.open():
        watch.raw = b"<html>gateway timeout</html>\n"
    api.store.wake_watches()


def cut_lists(api: FakeKubernetes) -> None:
    api.faults.cut_streams = 2
    expire(api)


@pytest.mark.parametrize("streams_lists", [False, True])
@pytest.mark.parametrize(
    "fault", [cut, truncate, stall, expire, expire_by_status, throttle, garble, cut_lists]
)
async def test_whatever_happens_to_the_watches_the_table_ends_right_and_serves_meanwhile(
    fault: Callable[[FakeKubernetes], None], streams_lists: bool
) -> None:
    async with FakeKubernetes(bookmark_interval_s=0.2, streams_lists=streams_lists) as api:
        for number in range(20):
            launch(api, f"box-{number}", address=f"10.0.0.{number}")
        async with discovering(api) as running:
            await running.until_ready()
            await running.until_watching()

            for step in range(3):
                fault(api)
                gone, come = f"box-{step}", f"new-{step}"
                api.store.delete(PODS, "default", gone)
                api.store.delete(SANDBOXES, "default", gone)
                # Its address goes to another sandbox at once.
                launch(api, come, address=f"10.0.0.{step}")
                await until(lambda come=come: running.state(come) is State.READY)  # type: ignore[misc]
                await until(lambda gone=gone: running.state(gone) is None)  # type: ignore[misc]
                assert running.state("box-10") is State.READY
                await running.until_watching()

            assert running.index.ready_count() == 20
            # What never changed was never retired: no connection of a live sandbox was closed.
            assert {endpoint.ref.name for endpoint in running.retired} == {
                "box-0",
                "box-1",
                "box-2",
            }


async def test_an_hour_without_the_api_server_leaves_known_sandboxes_alone() -> None:
    async with FakeKubernetes() as api:
        launch(api, "box")
        async with discovering(api) as running:
            await running.until_ready()
            await running.until_watching()
            async with api.away():
                await until(lambda: running.index.is_stale(1.0))

                assert running.state("box") is State.READY
                assert running.discovery.missing() == []
                assert len(running.discovery.notes()) == 3
                assert running.retired == []
                launch(api, "next", address="10.0.0.2")

            await follow(running, "next", State.READY)
            await until(lambda: running.discovery.notes() == [])
            await until(lambda: not running.index.is_stale(1.0))


async def test_a_store_restored_in_silence_is_noticed_and_the_table_is_the_restored_ones() -> None:
    async with FakeKubernetes() as api:
        launch(api, "kept")
        launch(api, "made-after-the-backup", address="10.0.0.2")
        pace = replace(FAST, silence_limit_s=600.0, history_check_s=0.2)
        async with discovering(api, pace=pace) as running:
            await running.until_ready()
            await running.until_watching()

            api.faults.future_is_silent = True
            api.store = type(api.store)(first_version=5)
            launch(api, "kept", address="10.0.0.3")

            await until(lambda: running.found("kept") == (State.READY, "10.0.0.3"))
            await follow(running, "made-after-the-backup", None)
            assert running.discovery.watch_restarts["pods", "expired"] == 1


async def test_after_an_outage_all_three_watches_come_back_together() -> None:
    async with FakeKubernetes() as api:
        launch(api, "box")
        async with discovering(api, pace=replace(FAST, retry_limit_s=600.0)) as running:
            await running.until_ready()
            await running.until_watching()
            patient, *others = running.discovery.reflectors()
            async with api.away():
                for reflector in others:
                    # As after an hour: their next tries are minutes away.
                    reflector._retries = Retries(pace=replace(FAST, first_retry_s=1200.0))
                await until(
                    lambda: all(
                        each.phase is Phase.WAITING for each in running.discovery.reflectors()
                    )
                )
                assert patient.phase is Phase.WAITING

            await running.until_watching()


async def test_a_service_accounts_token_rotates_under_a_running_watch(tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    (tmp_path / "token").write_text("first")
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    async with FakeKubernetes(server_tls=tls, tokens={"first": User("router")}) as api:
        host, port = api.url.removeprefix("https://").split(":")
        environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        access = in_cluster_access(environment, tmp_path)
        async with discovering(api, access=access) as running:
            await running.until_ready()
            await running.until_watching()

            api.tokens = {"second": User("router")}
            api.faults.cut()
            await until(lambda: running.discovery.watch_restarts["pods", "unauthorized"] > 0)
            (tmp_path / "token").write_text("second")
            launch(api, "box")

            await follow(running, "box", State.READY)
            await until(lambda: running.discovery.notes() == [])


async def test_a_list_of_thousands_replaces_the_table_atomically() -> None:
    async with FakeKubernetes() as api:
        boxes = 3000
        for number in range(boxes):
            launch(
                api,
                f"box-{number}",
                address=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            )
        async with discovering(api) as running:
            await asyncio.sleep(0)
            sizes = set()
            while running.discovery.missing():
                sizes.add(running.index.size())
                await asyncio.sleep(0.001)
            assert running.index.ready_count() == boxes
            assert sizes <= {0, boxes}

            await running.until_watching()
            for number in range(0, boxes, 2):
                api.store.delete(PODS, "default", f"box-{number}")
                api.store.delete(SANDBOXES, "default", f"box-{number}")
            api.store.compact()
            api.faults.cut()
            sizes.clear()
            while running.index.size() != boxes // 2:
                sizes.add(running.index.size())
                await asyncio.sleep(0.001)

            assert running.index.ready_count() == boxes // 2


async def test_a_stranger_at_the_servers_address_is_not_believed(tmp_path: Path) -> None:
    ours, theirs = trustme.CA(), trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.issue_cert("127.0.0.1").configure_cert(tls)
    ours.cert_pem.write_to_path(tmp_path / "ca")
    async with FakeKubernetes(server_tls=tls, tokens={"t": User("x")}) as api:
        launch(api, "box")
        access = ClusterAccess(
            server=api.url, ca_file=str(tmp_path / "ca"), authorization="Bearer t"
        )
        async with discovering(api, access=access) as running:
            await until(lambda: "certificate" in "".join(running.discovery.missing()).lower())

            assert running.found("box") is None
            assert api.authorizations == []
