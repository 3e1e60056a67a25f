"""Lists that come as the beginning of the watch, where the server can; and what happens where it can't."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.fakes.cluster_objects import pod, sandbox
from tests.fakes.kubernetes_api import FakeKubernetes
from tests.fakes.kubernetes_store import PODS, SANDBOXES
from tests.unit.discovery.reflecting import (
    PACE,
    SANDBOX_RESOURCE,
    add,
    running,
    until,
    watching,
)


async def test_the_list_and_the_watch_are_one_request() -> None:
    async with watching("a", "b", "c", streams_lists=True) as watch:
        await watch.until_names("a", "b", "c")
        await watch.until_watching()
        add(watch, "d")
        watch.api.store.delete(PODS, "default", "a")
        await watch.until_names("b", "c", "d")

        assert watch.api.requests == [("watch", "pods", None)]
        assert watch.store.calls[0] == ("replace", ["a", "b", "c"])
        assert watch.reflector.is_complete
        assert watch.lists_told == 1


async def test_an_empty_list_is_complete_too() -> None:
    async with watching(streams_lists=True) as watch:
        await until(lambda: watch.reflector.is_complete)
        assert watch.store.calls == [("replace", [])]


async def test_an_expired_version_is_followed_by_one_streamed_list_that_replaces_at_once() -> None:
    async with watching("a", "b", streams_lists=True) as watch:
        await watch.until_watching()
        async with watch.api.away():
            watch.api.store.delete(PODS, "default", "a")
            add(watch, "c")
            watch.api.store.compact()
            assert watch.store.names == {"a", "b"}

        await watch.until_names("b", "c")
        assert [call for call in watch.store.calls if call[0] == "replace"] == [
            ("replace", ["a", "b"]),
            ("replace", ["b", "c"]),
        ]
        assert watch.lists() == 0


async def test_a_cut_after_the_list_goes_on_from_its_version_without_another() -> None:
    async with watching("a", streams_lists=True) as watch:
        await watch.until_watching()
        watch.api.faults.cut()
        add(watch, "b")

        await watch.until_names("a", "b")
        assert watch.reflector.lists == 1


async def test_a_stream_cut_before_the_lists_end_leaves_the_store_as_it_was() -> None:
    async with watching("a", "b", streams_lists=True) as watch:
        await watch.until_watching()
        watch.api.faults.cut_streams = 1
        async with watch.api.away():
            watch.api.store.compact()
            add(watch, "c")
            watch.api.store.compact()

        await watch.until_names("a", "b", "c")
        assert watch.store.calls == [("replace", ["a", "b"]), ("replace", ["a", "b", "c"])]
        assert watch.lists() == 0


async def test_streams_that_never_reach_the_lists_end_are_followed_by_pages_and_tried_again_later() -> (
    None
):
    async with FakeKubernetes(streams_lists=True) as api:
        api.store.create(PODS, pod("a", of=sandbox("a")))
        api.faults.cut_streams = 2
        async with running(api) as watch:
            await watch.until_names("a")
            await watch.until_watching()
            assert watch.lists() == 1

            api.faults.open()[0].expire = True
            api.store.wake_watches()
            await until(lambda: watch.reflector.lists == 2)
            assert watch.lists() == 1


async def test_a_server_that_refuses_to_stream_is_asked_once_and_never_again() -> None:
    async with watching("a", streams_lists=False) as watch:
        await watch.until_watching()
        watch.api.faults.open()[0].expire = True
        watch.api.store.wake_watches()
        await until(lambda: watch.reflector.lists == 2)
        await watch.until_watching()

        assert [verb for verb, _, _ in watch.api.requests] == [
            *("watch", "list", "watch"),
            *("list", "watch"),
        ]
        assert watch.restarts["pods", "other"] == 0


async def test_a_server_that_fails_to_stream_is_listed_in_pages_at_once_and_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeKubernetes(streams_lists=True) as api:
        api.store.create(PODS, pod("a", of=sandbox("a")))
        api.faults.streams_fail = True
        async with running(api, pace=replace(PACE, first_retry_s=60.0)) as watch:
            await watch.until_names("a")
            await watch.until_watching()

            assert [verb for verb, _, _ in api.requests] == ["watch", "list", "watch"]
            assert not watch.restarts
            assert [record for record in caplog.records if record.levelname == "WARNING"] == []

            # Its etcd may be a newer one by now.
            api.faults.streams_fail = False
            api.faults.open()[0].expire = True
            api.store.wake_watches()
            await until(lambda: watch.reflector.lists == 2)
            assert watch.lists() == 1


async def test_a_server_that_ignores_the_wish_is_given_up_after_a_silence_and_listed_in_pages() -> (
    None
):
    async with FakeKubernetes(streams_lists=True) as api:
        api.store.create(PODS, pod("a", of=sandbox("a")))
        api.faults.streams_unmarked = True
        async with running(api, pace=replace(PACE, marker_timeout_s=0.1)) as watch:
            await watch.until_names("a")
            await watch.until_watching()

            assert watch.lists() == 1
            assert watch.restarts["pods", "timeout"] == 1


async def test_a_server_that_never_answers_the_watch_is_asked_again() -> None:
    async with FakeKubernetes(streams_lists=True) as api:
        stalled = asyncio.Event()

        async def never(*_: object) -> None:
            stalled.set()
            await asyncio.sleep(3600.0)

        serve, api._resource = api._resource, never  # type: ignore[method-assign,assignment]
        async with running(api, pace=replace(PACE, opening_timeout_s=0.1)) as watch:
            await stalled.wait()
            await until(lambda: watch.reflector.problem == "the watch was not answered")
            api._resource = serve  # type: ignore[method-assign]

            await until(lambda: watch.reflector.is_complete)
            assert watch.lists() == 0


async def test_an_older_api_version_is_streamed_where_the_new_one_is_not_served() -> None:
    async with FakeKubernetes(streams_lists=True) as api:
        api.served[SANDBOXES] = ("v1alpha1",)
        api.store.create(SANDBOXES, sandbox("a"))
        async with running(api, resource=SANDBOX_RESOURCE) as watch:
            await watch.until_names("a")
            await watch.until_watching()
            assert watch.lists() == 0
