from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from router.discovery.pace import Pace
from router.kube.api_client import KubernetesApi
from router.kube.cluster_access import ClusterAccess
from tests.fakes.cluster_objects import pod, sandbox
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import PODS, SANDBOXES
from tests.unit.discovery.reflecting import (
    SANDBOX_RESOURCE,
    Watching,
    add,
    running,
    until,
    watching,
)


async def test_it_lists_in_pages_and_then_follows_events() -> None:
    async with watching("a", "b", "c", "d", "e") as watch:
        await watch.until_names("a", "b", "c", "d", "e")
        await watch.until_watching()
        assert watch.lists() == 3
        assert watch.reflector.is_complete
        assert watch.lists_told == 1

        add(watch, "f")
        watch.api.store.delete(PODS, "default", "a")

        await watch.until_names("b", "c", "d", "e", "f")
        assert watch.store.calls[0] == ("replace", ["a", "b", "c", "d", "e"])
        assert watch.lists() == 3


async def test_nothing_between_list_and_watch_is_missed() -> None:
    async with watching("a", "b", "c") as watch:
        for number in range(200):
            add(watch, f"n{number}")
            await asyncio.sleep(0)
        await until(lambda: len(watch.store.names) == 203)


async def test_only_labelled_pods_are_asked_for() -> None:
    async with watching("a") as watch:
        unlabelled = pod("plain", of=None)
        unlabelled["metadata"]["labels"] = {}
        watch.api.store.create(PODS, unlabelled)
        add(watch, "b")

        await watch.until_names("a", "b")


async def test_a_cut_watch_goes_on_where_it_was_without_a_new_list() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        for name in ("b", "c", "d"):
            watch.api.faults.cut()
            add(watch, name)
            await until(lambda name=name: name in watch.store.names)  # type: ignore[misc]
            await watch.until_watching()

        assert watch.lists() == 1
        assert watch.store.calls == [
            ("replace", ["a"]),
            ("upsert", "b"),
            ("upsert", "c"),
            ("upsert", "d"),
        ]


async def test_an_event_cut_in_the_middle_is_delivered_whole_by_the_next_watch() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        watch.api.faults.open()[0].truncate = True

        add(watch, "b")

        await watch.until_names("a", "b")
        assert watch.lists() == 1


async def test_a_bookmark_moves_the_version_on_so_that_compaction_does_no_harm() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        for number in range(5):
            watch.api.store.create(SANDBOXES, sandbox(f"s{number}"))
        await asyncio.sleep(0.25)
        watch.api.store.compact()

        watch.api.faults.cut()
        add(watch, "b")

        await watch.until_names("a", "b")
        assert watch.lists() == 1


async def test_bookmarks_keep_a_quiet_watch_open() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        await asyncio.sleep(1.0)

        assert watch.reflector.watches == 1
        assert watch.reflector.last_heard_at is not None
        assert time.monotonic() - watch.reflector.last_heard_at < 0.3


async def test_a_watch_that_ends_in_time_is_resumed_without_back_off() -> None:
    pace = Pace(page_size=2, watch_timeout_s=1.0, short_watch_s=0.1, first_retry_s=20.0)
    async with watching("a", pace=pace) as watch:
        await until(lambda: watch.reflector.watches >= 3, timeout_s=8.0)

        assert set(watch.restarts) == {("pods", "ended")}
        assert watch.lists() == 1


async def test_an_older_api_version_is_used_where_the_new_one_is_not_served() -> None:
    async with FakeKubernetes() as api:
        api.served[SANDBOXES] = ("v1alpha1",)
        api.store.create(SANDBOXES, sandbox("a"))
        async with running(api, resource=SANDBOX_RESOURCE) as watch:
            await watch.until_names("a")
            await watch.until_watching()
            assert watch.lists_told == 1

            # The CRD is exchanged for one that serves the new version alone.
            api.served[SANDBOXES] = ("v1beta1",)
            api.faults.cut()
            await until(lambda: watch.lists_told == 2)
            await watch.until_watching()
            assert watch.reflector.refusal is None


async def test_a_missing_crd_is_told_and_its_arrival_is_noticed() -> None:
    async with FakeKubernetes() as api:
        api.served[SANDBOXES] = ()
        async with running(api, resource=SANDBOX_RESOURCE) as watch:
            await until(lambda: watch.reflector.refusal is not None)
            assert watch.reflector.refusal is not None
            assert watch.reflector.refusal.status == 404
            assert watch.lists_told >= 1
            assert not watch.reflector.is_complete

            api.served[SANDBOXES] = ("v1beta1",)
            await until(lambda: watch.reflector.is_complete)
            assert watch.reflector.refusal is None


async def test_one_namespace_is_watched_alone() -> None:
    async with FakeKubernetes() as api:
        api.store.create(PODS, pod("near", of=sandbox("near", namespace="team-a")))
        api.store.create(PODS, pod("far", of=sandbox("far", namespace="team-b")))
        async with running(api, namespace="team-a") as watch:
            await watch.until_names("near")
            assert {namespace for _, _, namespace in api.requests} == {"team-a"}
            assert str(watch.reflector) == "pods in namespace team-a"


async def test_cancelling_ends_it_in_every_phase() -> None:
    for fault in ("none", "stall", "refuse"):
        async with FakeKubernetes() as api:
            api.faults.lists_stall = fault == "stall"
            if fault == "refuse":
                api.faults.refusals.append(api.faults.refusing(500).__enter__())
            async with KubernetesApi(access=ClusterAccess(server=api.url)) as client:
                watch = Watching(api, client)
                task = asyncio.get_running_loop().create_task(watch.reflector.run())
                await asyncio.sleep(0.1)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    async with asyncio.timeout(1.0):
                        await task
                assert task.cancelled()
            api.faults.lists_stall = False
