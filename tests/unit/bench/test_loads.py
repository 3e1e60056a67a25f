"""The loads, against the harness's own sandbox without a proxy between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from bench import heads, loads
from bench.loads import Span

from .conftest import CALLER, aim_at

SPAN = Span(warm_s=0.05, window_s=0.3)
Answering = Callable[[bytes], Awaitable[int]]


@pytest.mark.parametrize("make", [heads.different_gets, heads.same_gets])
async def test_a_closed_loop_counts_every_answer(
    sandbox_port: int, make: Callable[[heads.Caller], list[bytes]]
) -> None:
    measured = await loads.requests_closed(
        aim_at(sandbox_port), SPAN, make(CALLER), connections=8, body=heads.ITEM_BODY
    )

    assert measured.errors == {}
    assert measured.cost is not None
    assert measured.cost > 0
    assert measured.rate_per_s is not None
    assert measured.rate_per_s > 500
    assert measured.p50_ms is not None
    assert measured.p99_ms is not None
    assert measured.p50_ms <= measured.p99_ms


async def test_the_window_opens_after_as_many_answers_as_asked_for(sandbox_port: int) -> None:
    measured = await loads.requests_closed(
        aim_at(sandbox_port),
        SPAN,
        heads.same_gets(CALLER),
        connections=8,
        body=heads.ITEM_BODY,
        warm_up=100,
    )

    assert measured.errors == {}


async def test_a_warm_up_that_never_ends_is_an_error(
    sandbox_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "_ANSWER_TIMEOUT_S", 0.0)

    measured = await loads.requests_closed(
        aim_at(sandbox_port),
        Span(warm_s=0.0, window_s=0.0),
        heads.same_gets(CALLER),
        connections=1,
        body=heads.ITEM_BODY,
        warm_up=10**9,
    )

    assert [reason for reason in measured.errors if reason.endswith("answers to warm up")]


async def test_posts_are_answered_too(sandbox_port: int) -> None:
    measured = await loads.requests_closed(
        aim_at(sandbox_port),
        SPAN,
        heads.different_posts(CALLER, 100),
        connections=8,
        body=heads.STORED_BODY,
    )

    assert measured.errors == {}


@pytest.mark.alone
async def test_a_fixed_rate_is_held(sandbox_port: int) -> None:
    measured = await loads.requests_paced(
        aim_at(sandbox_port),
        SPAN,
        heads.same_gets(CALLER),
        connections=8,
        rate_per_s=500,
        body=heads.ITEM_BODY,
    )

    assert measured.errors == {}
    assert measured.rate_per_s == pytest.approx(500, rel=0.1)


async def test_a_rate_that_is_not_held_is_an_error(sandbox_port: int) -> None:
    measured = await loads.requests_paced(
        aim_at(sandbox_port),
        SPAN,
        heads.same_gets(CALLER),
        connections=1,
        rate_per_s=400_000,
        body=heads.ITEM_BODY,
    )

    assert any(reason.startswith("held ") for reason in measured.errors)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("up", [False, True])
async def test_long_bodies_arrive_whole(sandbox_port: int, up: bool, chunked: bool) -> None:
    measured = await loads.bulk(
        aim_at(sandbox_port), up=up, chunked=chunked, size=5_000_000, times=2
    )

    assert measured.errors == {}
    assert measured.cost is not None
    assert measured.cost > 0


@pytest.mark.parametrize("size", [64, 4_096])
async def test_websocket_messages_come_back(sandbox_port: int, size: int) -> None:
    measured = await loads.websocket_echoes(aim_at(sandbox_port), SPAN, connections=4, size=size)

    assert measured.errors == {}
    assert measured.rate_per_s is not None
    assert measured.rate_per_s > 200


@pytest.mark.parametrize("websockets", [False, True])
async def test_idle_memory_is_told_for_each_stretch(
    sandbox_port: int, websockets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "_SETTLE_S", 0.01)

    measured = await loads.idle_memory(
        aim_at(sandbox_port), heads.same_gets(CALLER), websockets=websockets, steps=(60, 120)
    )

    assert measured.errors == {}
    assert len(measured.stretches) == 2
    assert measured.cost == max(measured.stretches)


def answer(body: bytes, status: bytes = b"200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, size, body)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (answer(heads.ITEM_BODY[:-1] + b"!"), "an answer with another body"),
        (answer(heads.ITEM_BODY + b"!"), "an answer without its content-length"),
        (answer(b"{}", b"503 Service Unavailable"), "answered b'HTTP/1.1 503"),
        (answer(heads.ITEM_BODY[:9], length=153), "the connection ended: closed by the proxy"),
    ],
)
async def test_a_wrong_answer_is_an_error(answering: Answering, wrong: bytes, reason: str) -> None:
    measured = await loads.requests_closed(
        aim_at(await answering(wrong)),
        SPAN,
        heads.same_gets(CALLER),
        connections=2,
        body=heads.ITEM_BODY,
    )

    assert len(measured.errors) == 1
    assert next(iter(measured.errors)).startswith(reason)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (answer(b"x" * 1_000_000), "a body of 1000000 bytes, intact: False"),
        (answer(b"", b"404 Not Found"), "answered b'HTTP/1.1 404"),
        (answer(b"abc"), "a body of 3 bytes"),
    ],
)
async def test_a_wrong_body_is_an_error(answering: Answering, wrong: bytes, reason: str) -> None:
    measured = await loads.bulk(
        aim_at(await answering(wrong)), up=False, chunked=False, size=1_000_000, times=1
    )

    assert any(each.startswith(reason) for each in measured.errors), measured.errors


async def test_a_refused_upgrade_is_an_error(answering: Answering) -> None:
    refusing = await answering(answer(b"", b"403 Forbidden"))

    measured = await loads.websocket_echoes(aim_at(refusing), SPAN, connections=2, size=64)

    assert list(measured.errors.values()) == [2]
