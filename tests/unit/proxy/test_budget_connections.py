"""Connections whose budget is used up: who waits, who goes on, and how the ones end that hold the memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from router.proxy.budget import STUCK_S
from router.proxy.closing_connection import State
from router.proxy.connection import LARGE_BYTES
from router.proxy.options import ProxyOptions
from router.proxy.sandbox_connection import State as Upstream
from tests.unit.proxy.stage import GET, TO_BOX, Client, Sandbox, Stage

LIMIT = 1_000_000
LARGE = b"x" * (2 * LARGE_BYTES)
POST = b"POST / HTTP/1.1\r\n" + TO_BOX + b"Content-Length: 1000000\r\n\r\n"
HALF_A_HEAD = b"GET / HTTP/1.1\r\nX: "
BEGUN = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
UPGRADE = b"GET / HTTP/1.1\r\n" + TO_BOX + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"


@pytest.fixture
async def stage() -> Stage:
    stage = Stage(limits=ProxyOptions(header_timeout_s=10.0, stream_idle_timeout_s=300.0))
    stage.shelf.budget.limit_bytes = LIMIT
    return stage


def fills(side: Client | Sandbox, size: int) -> None:
    """Lets so much be unsent to a client or a sandbox that doesn't read."""
    side.wire.unsent_bytes = size
    (side.connection if isinstance(side, Client) else side.upstream).pause_writing()


def use_up(stage: Stage, *, size: int = LIMIT + 1) -> tuple[Client, Sandbox]:
    """Has a client that reads nothing hold this much."""
    client, sandbox = stage.talk()
    sandbox.send(BEGUN)
    fills(client, size)
    return client, sandbox


async def test_what_is_unsent_counts_until_it_is_sent(stage):
    client, _ = use_up(stage, size=70_000)
    assert stage.shelf.budget.held_bytes == 70_000

    client.wire.unsent_bytes = 0
    client.connection.resume_writing()

    assert stage.shelf.budget.held_bytes == 0


async def test_a_body_that_nobody_takes_yet_counts_until_it_is_taken(stage):
    stage.shelf.has_idle = False
    client = stage.client()
    client.send(POST)
    client.send(b"x" * 20_000)
    assert stage.shelf.budget.held_bytes == 20_000

    while not stage.shelf.opened or stage.shelf.opened[0].state is not Upstream.AWAITING:
        await asyncio.sleep(0)

    assert stage.shelf.budget.held_bytes == 0


async def test_an_unfinished_head_counts_until_it_is_whole_or_its_client_is_gone(stage):
    client, other = stage.client(), stage.client()
    client.send(HALF_A_HEAD)
    client.send(b"1" * 100)
    other.send(HALF_A_HEAD)
    assert stage.shelf.budget.held_bytes == 2 * len(HALF_A_HEAD) + 100

    client.send(b"\r\n" + TO_BOX + b"\r\n")
    other.leave()

    assert stage.shelf.budget.held_bytes == 0


async def test_an_unfinished_response_head_counts_until_it_is_whole(stage):
    _, sandbox = stage.talk()
    sandbox.send(b"HTTP/1.1 200 OK\r\nX: ")
    assert stage.shelf.budget.held_bytes == 20

    sandbox.send(b"1\r\nContent-Length: 0\r\n\r\n")

    assert stage.shelf.budget.held_bytes == 0


async def test_a_small_request_is_answered_as_ever_while_memory_is_short(stage):
    use_up(stage, size=2 * LIMIT)
    client, sandbox = stage.talk()
    sandbox.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    assert client.received().endswith(b"ok")
    assert not client.wire.is_paused
    client.send(GET)
    assert len(stage.shelf.opened) == 3


async def test_a_large_upload_waits_for_its_turn_while_memory_is_short(stage):
    use_up(stage)
    client, sandbox = stage.talk(POST)
    client.send(LARGE)
    assert client.wire.is_paused
    assert sandbox.received().endswith(LARGE)

    stage.shelf.budget.limit_bytes = 10 * LIMIT
    stage.shelf.budget.settle()
    assert not client.wire.is_paused, "there is room for what it may bring"


async def test_a_large_download_waits_for_its_turn_while_memory_is_short(stage):
    use_up(stage)
    _, sandbox = stage.talk()
    sandbox.send(BEGUN + LARGE)
    assert sandbox.wire.is_paused


async def test_who_is_ready_to_read_again_waits_for_its_turn_too(stage):
    client, sandbox = stage.talk()
    sandbox.send(BEGUN)
    fills(client, 70_000)
    use_up(stage)

    client.wire.unsent_bytes = 0
    client.connection.resume_writing()
    assert sandbox.wire.is_paused

    stage.shelf.budget.limit_bytes = 10 * LIMIT
    stage.shelf.budget.settle()
    assert not sandbox.wire.is_paused


async def test_a_turn_lets_nobody_read_whose_other_side_is_full(stage):
    client, sandbox = stage.talk()
    sandbox.send(BEGUN + LARGE)
    fills(client, 70_000)
    stage.shelf.budget.wait(sandbox.upstream)

    stage.shelf.budget.settle()

    assert sandbox.wire.is_paused


async def test_a_connection_that_goes_back_to_the_pool_reads_on_at_once(stage):
    client, sandbox = stage.talk()
    sandbox.send(BEGUN)
    fills(client, 70_000)
    use_up(stage)
    sandbox.upstream.read_on()
    assert not sandbox.wire.is_paused


async def test_an_upload_that_waited_until_its_time_was_over_is_told_that_memory_is_short(stage):
    use_up(stage)
    client, _ = stage.talk(POST)
    client.send(LARGE)
    assert stage.shelf.budget.is_waiting(client.connection)

    client.connection.on_deadline(client.connection.deadline_at + 1)

    assert b'"code":"overloaded"' in client.received()
    assert stage.records.outcomes[-1].error_reason == "its time was over before there was room"


# --- making room ----------------------------------------------------------------------------


def half_a_head(stage: Stage) -> Client:
    client = stage.client()
    client.send(HALF_A_HEAD)
    client.connection.make_room()
    return client


def stuck_upload(stage: Stage) -> Client:
    client, sandbox = stage.talk(POST)
    fills(sandbox, 300_000)
    sandbox.upstream.make_room()
    assert sandbox.wire.is_aborted
    return client


def held_body(stage: Stage) -> Client:
    stage.shelf.has_idle = False
    client = stage.client()
    client.send(POST)
    client.connection.make_room()
    return client


@pytest.mark.parametrize("ends", [half_a_head, stuck_upload, held_body])
async def test_who_has_no_response_yet_is_told_why_it_ends_and_to_come_again(
    ends: Callable[[Stage], Client], stage: Stage
) -> None:
    client = ends(stage)
    received = client.received()
    assert received.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"overloaded"' in received
    assert b"no memory left" in received
    assert b"Retry-After: 1\r\n" in received
    assert client.is_closed


async def test_a_download_that_is_not_read_is_cut_at_once(stage):
    client, sandbox = use_up(stage)

    client.connection.make_room()

    assert client.wire.is_aborted
    assert sandbox.wire.is_aborted
    client.leave()
    outcome = stage.records.outcome
    assert (outcome.status, outcome.code) == (200, "response_cut")
    assert outcome.error_reason == "the client does not read, and memory was needed for others"


@pytest.mark.parametrize("stuck", ["client", "sandbox"])
async def test_a_tunnel_of_which_one_side_does_not_read_ends(stage, stuck):
    client, sandbox = stage.talk(UPGRADE)
    sandbox.send(SWITCH)
    side: Client | Sandbox = client if stuck == "client" else sandbox
    fills(side, LIMIT)

    (client.connection if stuck == "client" else sandbox.upstream).make_room()

    assert side.wire.is_aborted
    assert client.is_closed
    assert stage.records.outcome.code == "tunnel_overloaded"


async def test_a_last_answer_that_nobody_reads_is_given_up(stage):
    client = stage.client()
    client.send(b"nonsense\r\n\r\n")
    fills(client, 100_000)
    assert client.connection.state is State.LINGERING

    client.connection.make_room()

    assert client.wire.is_aborted


async def test_a_sandbox_that_does_not_end_its_head_is_given_up(stage):
    client, sandbox = stage.talk()
    sandbox.send(b"HTTP/1.1 200 OK\r\nX: ")

    sandbox.upstream.make_room()

    assert client.received().startswith(b"HTTP/1.1 503 ")
    assert sandbox.wire.is_aborted
    sandbox.break_off()
    assert stage.shelf.budget.held_bytes == 0


async def test_stuck_ones_end_while_others_wait_and_those_then_have_their_turn(stage):
    now = 0.0
    budget = stage.shelf.budget
    budget._clock = lambda: now
    stuck = [use_up(stage, size=LIMIT // 2)[0] for _ in range(3)]
    now = STUCK_S + 1
    client, _ = stage.talk(POST)
    client.send(LARGE)

    budget.settle()

    assert [one.wire.is_aborted for one in stuck] == [True, False, False] or [
        one.wire.is_aborted for one in stuck
    ] == [True, True, False]
    assert not client.wire.is_paused
