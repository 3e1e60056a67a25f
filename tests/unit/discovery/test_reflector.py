from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from router.discovery.api_client import KubernetesApi
from router.discovery.cluster_access import ClusterAccess
from router.discovery.listing import Listing
from router.discovery.objects import identity
from router.discovery.reflector import Pace, Phase, Reflector, Resource
from tests.fakes.cluster_objects import pod, sandbox
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import PODS, SANDBOXES

PACE = Pace(
    page_size=2,
    read_timeout_s=0.3,
    watch_timeout_s=60.0,
    silence_limit_s=0.4,
    first_retry_s=0.01,
    retry_limit_s=0.05,
    short_watch_s=0.05,
)
POD_RESOURCE = Resource("pods", ("/api/v1",), label_selector="agents.x-k8s.io/sandbox-name-hash")
SANDBOX_RESOURCE = Resource(
    "sandboxes", ("/apis/agents.x-k8s.io/v1beta1", "/apis/agents.x-k8s.io/v1alpha1")
)


class Names:
    """A store that keeps names, and every call it got."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.calls: list[tuple[str, Any]] = []

    def begin_list(self) -> Listing[str, str]:
        return Listing(key=str, is_known=lambda _: False, commit=self._replace)

    def _replace(self, _: set[str], records: list[str]) -> None:
        self.names = set(records)
        self.calls.append(("replace", sorted(self.names)))

    def upsert(self, record: str) -> None:
        if record == "poison":
            raise RuntimeError("a bug in the store")
        self.names.add(record)
        self.calls.append(("upsert", record))

    def remove(self, record: str) -> None:
        self.names.discard(record)
        self.calls.append(("remove", record))


class Watching:
    """A reflector that runs against a fake API server."""

    def __init__(self, api: FakeKubernetes, client: KubernetesApi, **change: Any) -> None:
        self.api = api
        self.store = Names()
        self.lists_told = 0
        self.restarts: Counter[tuple[str, str]] = Counter()
        arguments = {
            "api": client,
            "resource": POD_RESOURCE,
            "namespace": None,
            "parse": lambda item: identity(item)[2],
            "store": self.store,
            "pace": PACE,
            "on_list": self._told,
            "restarts": self.restarts,
        }
        self.reflector: Reflector[str] = Reflector(**(arguments | change))

    def _told(self) -> None:
        self.lists_told += 1

    async def until_names(self, *names: str) -> None:
        await until(lambda: self.store.names == set(names))

    async def until_watching(self) -> None:
        await until(lambda: bool(self.api.faults.open(self.reflector.resource.name)))
        await until(lambda: self.reflector.phase is Phase.WATCHING)

    def lists(self) -> int:
        return self.api.requests.count(("list", self.reflector.resource.name, None))


async def until(is_true: Callable[[], bool], timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_true():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def watching(*pods: str, **change: Any) -> AsyncIterator[Watching]:
    async with FakeKubernetes(bookmark_interval_s=0.1) as api:
        for name in pods:
            api.store.create(PODS, pod(name, of=sandbox(name)))
        async with running(api, **change) as watch:
            yield watch


@asynccontextmanager
async def running(api: FakeKubernetes, **change: Any) -> AsyncIterator[Watching]:
    async with KubernetesApi(access=ClusterAccess(server=api.url)) as client:
        watch = Watching(api, client, **change)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(watch.reflector.run())
            try:
                yield watch
            finally:
                task.cancel()


def add(watch: Watching, name: str) -> None:
    watch.api.store.create(PODS, pod(name, of=sandbox(name)))


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


@pytest.mark.parametrize("by_status", [False, True])
async def test_an_expired_version_leads_to_one_new_list_and_an_atomic_replacement(
    by_status: bool,
) -> None:
    async with watching("a", "b", "c") as watch:
        await watch.until_watching()
        watch.api.faults.expires_by_status = by_status
        async with watch.api.away():
            watch.api.store.delete(PODS, "default", "a")
            add(watch, "d")
            watch.api.store.compact()
            assert watch.store.names == {"a", "b", "c"}

        await watch.until_names("b", "c", "d")
        await watch.until_watching()

        assert [call for call in watch.store.calls if call[0] == "replace"] == [
            ("replace", ["a", "b", "c"]),
            ("replace", ["b", "c", "d"]),
        ]
        assert watch.restarts["pods", "expired"] == 1


async def test_an_expired_event_in_a_running_watch_leads_to_a_new_list() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        watch.api.faults.open()[0].expire = True
        watch.api.store.wake_watches()

        await until(lambda: watch.lists() == 2)
        await watch.until_watching()
        add(watch, "b")
        await watch.until_names("a", "b")


async def test_a_list_whose_continue_token_expires_begins_again_with_larger_pages() -> None:
    async with watching() as watch:
        for name in "abcde":
            add(watch, name)
        await watch.until_names(*"abcde")
        requests = watch.api.requests
        await watch.until_watching()
        requests.clear()
        with watch.api.faults.refusing(410, verb="list", times=1, reason="Expired"):
            watch.api.faults.open()[0].expire = True
            watch.api.store.wake_watches()
            await until(lambda: ("watch", "pods", None) in requests)

        # One refused page of two, then one page of eight.
        assert requests[:2] == [("list", "pods", None)] * 2
        assert requests[2] == ("watch", "pods", None)


async def test_a_version_from_the_future_leads_to_a_new_list() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        async with watch.api.away():
            # The cluster's store was restored from a backup.
            watch.api.store = type(watch.api.store)(first_version=5)
            watch.api.store.create(PODS, pod("b", of=sandbox("b")))

        await watch.until_names("b")
        assert watch.restarts["pods", "expired"] == 1


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "unauthorized"),
        (403, "forbidden"),
        (429, "throttled"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
@pytest.mark.parametrize("plain_text", [False, True])
async def test_a_refused_list_is_tried_again_until_it_works(
    status: int, reason: str, plain_text: bool
) -> None:
    async with FakeKubernetes() as api:
        api.store.create(PODS, pod("a", of=sandbox("a")))
        with api.faults.refusing(status, times=3, plain_text=plain_text):
            async with running(api) as watch:
                await until(lambda: bool(watch.reflector.problem))
                assert str(status) in watch.reflector.problem
                assert not watch.reflector.is_complete

                await watch.until_names("a")
                await watch.until_watching()

        assert watch.restarts == {("pods", reason): 3}
        assert watch.reflector.problem == ""
        assert watch.reflector.refusal is None


@pytest.mark.parametrize("status", [401, 403, 429, 500, 504])
async def test_a_refused_watch_is_tried_again_from_the_same_version(status: int) -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        with watch.api.faults.refusing(status, verb="watch", times=3):
            watch.api.faults.cut()
            add(watch, "b")
            await watch.until_names("a", "b")

        assert watch.lists() == 1


async def test_a_watch_that_is_refused_again_and_again_ends_in_a_new_list() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        with watch.api.faults.refusing(500, verb="watch"):
            watch.api.faults.cut()
            await until(lambda: watch.lists() >= 2)
        add(watch, "b")
        await watch.until_names("a", "b")


async def test_retry_after_is_waited() -> None:
    async with FakeKubernetes() as api:
        with api.faults.refusing(429, times=1, retry_after_s=1):
            started_at = time.monotonic()
            async with running(api) as watch:
                await until(lambda: watch.reflector.is_complete)

        assert time.monotonic() - started_at >= 1.0


async def test_a_half_open_watch_is_noticed_by_its_silence() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        watch.api.faults.open()[0].is_stalled = True

        add(watch, "b")

        await watch.until_names("a", "b")
        assert watch.lists() == 1
        assert watch.restarts["pods", "timeout"] == 1


async def test_bookmarks_keep_a_quiet_watch_open() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        await asyncio.sleep(1.0)

        assert watch.reflector.watches == 1
        assert watch.reflector.last_heard_at is not None
        assert time.monotonic() - watch.reflector.last_heard_at < 0.3


async def test_a_list_that_stalls_is_given_up_and_begun_again() -> None:
    async with FakeKubernetes() as api:
        api.store.create(PODS, pod("a", of=sandbox("a")))
        api.faults.lists_stall = True
        async with running(api) as watch:
            await until(lambda: watch.lists() >= 2)
            assert watch.store.calls == []

            api.faults.lists_stall = False
            await watch.until_names("a")


@pytest.mark.parametrize(
    "junk",
    [
        b"this is no JSON\n",
        b"[1, 2]\n",
        b'{"type": "ADDED"}\n',
        b'{"type": "ADDED", "object": 7}\n',
        b'"x"\n',
        b"\xff\xfe\n",
    ],
)
async def test_what_is_no_event_leads_to_a_new_list(junk: bytes) -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        watch.api.faults.open()[0].raw = junk
        watch.api.store.wake_watches()

        await until(lambda: watch.lists() == 2)
        await watch.until_watching()
        assert watch.restarts["pods", "bad_event"] == 1


async def test_a_line_without_end_leads_to_a_new_list_in_bounded_memory() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        watch.api.faults.open()[0].raw = b"x" * (9 * 1024 * 1024)
        watch.api.store.wake_watches()

        await until(lambda: watch.lists() == 2)
        assert watch.restarts["pods", "bad_event"] == 1


async def test_an_object_that_cannot_be_read_is_skipped_and_the_others_are_not() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        watch.api.faults.open()[0].raw = b'{"type":"ADDED","object":{"metadata":{"name":"x"}}}\n'
        add(watch, "b")

        await watch.until_names("a", "b")
        assert watch.lists() == 1


async def test_an_unknown_kind_of_event_is_ignored() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        item = '{"metadata":{"name":"x","namespace":"y","uid":"z"}}'
        watch.api.faults.open()[0].raw = f'{{"type":"FUTURE","object":{item}}}\n'.encode()
        add(watch, "b")

        await watch.until_names("a", "b")


async def test_a_bug_in_the_store_ends_neither_the_reflector_nor_the_truth(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        add(watch, "poison")

        await until(lambda: watch.lists() >= 2)
        await watch.until_names("a", "poison")

    assert any(record.exc_info for record in caplog.records)


async def test_a_watch_that_ends_in_time_is_resumed_without_back_off() -> None:
    pace = Pace(page_size=2, watch_timeout_s=1.0, short_watch_s=0.1, first_retry_s=20.0)
    async with watching("a", pace=pace) as watch:
        await until(lambda: watch.reflector.watches >= 3, timeout_s=8.0)

        assert set(watch.restarts) == {("pods", "ended")}
        assert watch.lists() == 1


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered() -> None:
    async with FakeKubernetes() as api:
        with api.faults.refusing(200, verb="watch", plain_text=True, message="") as refusal:
            async with running(api) as watch:
                await until(lambda: watch.reflector.watches >= 4)
                began_at, before = time.monotonic(), refusal.hits
                await asyncio.sleep(0.5)
                assert refusal.hits - before <= (time.monotonic() - began_at) / 0.02 + 1


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


async def test_while_the_server_is_away_the_store_keeps_what_it_has() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        async with watch.api.away():
            await until(lambda: watch.reflector.phase is Phase.WAITING)
            await asyncio.sleep(0.3)
            assert watch.store.names == {"a"}
            assert watch.reflector.problem
            add(watch, "b")

        await watch.until_names("a", "b")
        assert watch.lists() == 1


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
