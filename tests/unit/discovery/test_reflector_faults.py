from __future__ import annotations

import asyncio
import time

import pytest

from router.discovery.reflector import Phase
from tests.fakes.cluster_objects import pod, sandbox
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import PODS
from tests.unit.discovery.reflecting import (
    add,
    running,
    until,
    watching,
)


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


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered() -> None:
    async with FakeKubernetes() as api:
        with api.faults.refusing(200, verb="watch", plain_text=True, message="") as refusal:
            async with running(api) as watch:
                await until(lambda: watch.reflector.watches >= 4)
                began_at, before = time.monotonic(), refusal.hits
                await asyncio.sleep(0.5)
                assert refusal.hits - before <= (time.monotonic() - began_at) / 0.02 + 1


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
