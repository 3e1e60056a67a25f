"""Before the first table is in, and while a watch catches up: no name is declared unknown too early."""

import asyncio
import json

from tests.integration.proxy.messages import request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.wire import until


async def test_without_a_table_an_unknown_name_is_503_and_may_be_tried_again(router):
    router.index.set_awaited(None)

    told = await router.ask(request(sandbox="unknown"))

    assert (told.status, told.code) == (503, "index_stale")
    assert json.loads(told.body)["retryable"] is True
    assert int(told.get("Retry-After")) > 0
    assert told.detail == "The router does not know its sandboxes yet."
    assert (await router.outcome()).error_reason == "the first table is not complete"


async def test_what_is_known_already_is_served_before_the_table_is_complete(router, pod):
    router.index.set_awaited(None)
    router.knows(pod)
    async with serving(pod):
        assert (await router.ask(request())).status == 200


async def test_as_soon_as_the_table_is_complete_an_unknown_name_is_404(router):
    router.index.set_awaited(None)
    assert (await router.ask(request(sandbox="unknown"))).status == 503

    router.index.set_awaited(frozenset())

    assert (await router.ask(request(sandbox="unknown"))).status == 404


async def test_a_namespace_without_a_table_takes_nothing_from_the_others(router):
    router.index.set_awaited(frozenset({"team-b"}))

    assert (await router.ask(request("GET", "/", ("X-Sandbox-Namespace", "team-b")))).status == 503
    assert (await router.ask(request("GET", "/", ("X-Sandbox-Namespace", "team-a")))).status == 404


async def test_a_load_balancers_check_fails_until_the_table_is_complete(router):
    check = b"GET /healthz HTTP/1.1\r\nHost: router\r\n\r\n"
    router.index.set_awaited(None)
    told = await router.ask(check)
    assert (told.status, told.code) == (503, "index_stale")

    router.index.set_awaited(frozenset())

    assert (await router.ask(check)).status == 200


async def test_a_full_waiting_room_makes_no_404_of_a_missing_table(start_router):
    router = await start_router(waiting_room=0, unknown_grace_s=5.0)
    router.index.set_awaited(None)

    assert (await router.ask(request())).status == 503


async def test_while_a_watch_catches_up_an_unknown_name_is_waited_for(start_router, pod):
    router = await start_router(wait_for_ready_s=30.0)
    router.is_catching_up = True
    async with serving(pod):
        client = await router.connect()
        client.send(request())
        await until(lambda: router.index.waiting() == 1)
        router.knows(pod)

        assert (await client.answer()).status == 200


async def test_when_it_has_caught_up_a_name_that_is_still_unknown_is_404(start_router):
    router = await start_router(wait_for_ready_s=30.0)
    router.is_catching_up = True
    client = await router.connect()
    client.send(request())
    await until(lambda: router.index.waiting() == 1)

    router.is_catching_up = False

    async with asyncio.timeout(5.0):
        assert (await client.answer()).status == 404


async def test_where_nobody_waits_a_name_is_404_though_a_watch_catches_up(start_router):
    router = await start_router(wait_for_ready_s=0.0)
    router.is_catching_up = True

    assert (await router.ask(request())).status == 404
