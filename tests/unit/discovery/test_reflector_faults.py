from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

import pytest

from router.discovery.history import HistoryCheck
from router.discovery.recovery import Recovery
from router.discovery.reflector import Phase
from tests.fakes.cluster_objects import pod, sandbox
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import PODS
from tests.unit.discovery.reflecting import (
    PACE,
    add,
    running,
    until,
    watching,
)

BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9999"}}}\n'


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


async def test_a_quiet_watch_that_stood_is_resumed_at_once_each_time_it_is_cut() -> None:
    # As an idle load balancer does all day: were it a failure, the waits would grow to 20 s.
    pace = replace(PACE, first_retry_s=20.0, retry_limit_s=20.0, short_watch_s=0.0)
    async with watching("a", pace=pace) as watch:
        for number in range(6):
            await watch.until_watching()
            watch.api.faults.cut()
            add(watch, f"n{number}")
            await until(lambda number=number: f"n{number}" in watch.store.names)  # type: ignore[misc]

        assert watch.lists() == 1
        assert watch.restarts == {("pods", "ended"): 6}


async def test_a_watch_that_stood_and_is_cut_is_neither_a_problem_nor_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with watching("a", pace=replace(PACE, short_watch_s=0.0)) as watch:
        await watch.until_watching()
        watches = watch.reflector.watches
        watch.api.faults.cut()
        await until(lambda: watch.reflector.watches > watches)

        assert watch.reflector.problem == ""
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_watch_that_waits_out_an_outage_comes_back_with_the_first_that_gets_through() -> (
    None
):
    recovery = Recovery()
    async with watching("a", recovery=recovery) as quick:
        patient = replace(PACE, first_retry_s=600.0, retry_limit_s=600.0)
        async with running(quick.api, recovery=recovery, pace=patient) as slow:
            await quick.until_watching()
            await until(lambda: slow.reflector.phase is Phase.WATCHING)
            async with quick.api.away():
                await until(lambda: slow.reflector.phase is Phase.WAITING)
                await until(lambda: quick.reflector.phase is Phase.WAITING)
            add(quick, "b")

            await slow.until_names("a", "b")


async def test_a_wait_that_the_server_asked_for_is_not_cut_short_by_others() -> None:
    recovery = Recovery()
    async with FakeKubernetes() as api:
        with api.faults.refusing(503, times=1, retry_after_s=1):
            async with running(api, recovery=recovery) as watch:
                await until(lambda: watch.reflector.phase is Phase.WAITING)
                for _ in range(20):
                    recovery.tell()
                    await asyncio.sleep(0.01)
                assert watch.reflector.phase is Phase.WAITING


async def test_bookmarks_of_a_watch_that_ends_at_once_again_and_again_are_no_progress() -> None:
    async with watching("a", pace=replace(PACE, short_watch_s=600.0)) as watch:
        await watch.until_watching()
        for number in range(3):
            await watch.until_watching()
            before = watch.restarts["pods", "connection"]
            watch.api.faults.open()[0].raw = BOOKMARK
            watch.api.store.wake_watches()
            await until(lambda: watch.reflector.events > number)  # noqa: B023
            watch.api.faults.cut()
            await until(lambda: watch.restarts["pods", "connection"] > before)  # noqa: B023

        assert "failures=3" in repr(watch.reflector._retries)


async def test_a_bookmark_from_before_what_was_seen_is_another_history() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        watch.api.faults.open()[0].raw = BOOKMARK.replace(b"9999", b"12")
        watch.api.store.wake_watches()

        await until(lambda: watch.reflector.lists == 2)
        assert watch.restarts["pods", "expired"] == 1


async def test_a_restore_in_silence_is_found_out_by_asking_and_listed_again() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        watch.api.faults.future_is_silent = True
        watch.api.store = type(watch.api.store)(first_version=5)
        watch.api.store.create(PODS, pod("b", of=sandbox("b")))
        watch.api.faults.cut()
        await until(lambda: watch.reflector.watches == 2)
        # The watch stands and says nothing; and it would stand like that for hours.
        assert watch.store.names == {"a"}

        await HistoryCheck(watches=[watch.reflector], interval_s=1.0).look()

        await watch.until_names("b")
        await watch.until_watching()
        assert watch.restarts["pods", "expired"] == 1
        add(watch, "c")
        await watch.until_names("b", "c")


async def test_a_history_that_went_on_is_not_listed_again() -> None:
    async with watching("a") as watch:
        await watch.until_watching()
        add(watch, "b")
        await HistoryCheck(watches=[watch.reflector], interval_s=1.0).look()
        add(watch, "c")
        await watch.until_names("a", "b", "c")

        assert watch.reflector.lists == watch.reflector.watches == 1


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

        # A 500 to the first request may be about streams alone: the pages that follow at once tell.
        assert watch.restarts == {("pods", reason): 2 if status == 500 else 3}
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
