"""Drives the load's connections: closed loop, fixed rate, one body after another, or idle."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from bench.bodies import MB
from bench.certificates import NAME
from bench.clients import BulkClient, Client, RequestClient, WebSocketClient, message_pool
from bench.heads import ITEM_BODY, Caller
from bench.pacing import Pacer
from bench.tally import Tally
from bench.usage import Meter, Used

SomeClient = TypeVar("SomeClient", bound=Client)
_OPENING_AT_ONCE = 50
_SETTLE_S = 1.0
_ANSWER_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Aim:
    """Where a load goes: one subject, ready to serve."""

    port: int
    caller: Caller
    meter: Meter
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """How long a load runs before it is measured, and while it is."""

    warm_s: float
    window_s: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What one load found. The cost is in the case's own unit; None when nothing was done."""

    cost: float | None
    rate_per_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    busy: float | None = None  # the proxy's share of its core
    others: float | None = None  # other programs' share of the proxy's core
    load_others: float | None = None  # and of the load's
    repeats: int = 0  # how often it was measured again for being disturbed
    stretches: list[float] = field(default_factory=list)  # of an idle case: MB per 1,000 of each
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def disturbance(self) -> float:
        """Other programs' share of the core that they took more of."""
        return max(self.others or 0.0, self.load_others or 0.0)


def measured_of(tally: Tally, used: Used, *, units: float, scale: float) -> Measured:
    """CPU time for each unit of work, scaled from seconds."""
    return Measured(
        cost=used.cpu_s / units * scale if units else None,
        rate_per_s=units / used.elapsed_s,
        p50_ms=tally.latency_ms(0.5),
        p99_ms=tally.latency_ms(0.99),
        busy=used.cpu_s / used.elapsed_s,
        others=used.others_s / used.elapsed_s,
        errors=dict(tally.errors),
    )


async def _open(aim: Aim, make: Callable[[], SomeClient], count: int) -> list[SomeClient]:
    name = None if aim.tls is None else NAME
    loop = asyncio.get_running_loop()
    opened: list[SomeClient] = []
    while len(opened) < count:
        share = min(_OPENING_AT_ONCE, count - len(opened))
        pairs = await asyncio.gather(
            *(
                loop.create_connection(
                    make, "127.0.0.1", aim.port, ssl=aim.tls, server_hostname=name
                )
                for _ in range(share)
            )
        )
        opened.extend(client for _transport, client in pairs)
    return opened


async def window(tally: Tally, meter: Meter, span: Span) -> tuple[int, Used]:
    """Wait out the warm-up and the window; the answers counted in it and what they cost."""
    await asyncio.sleep(span.warm_s)
    tally.restart()
    before = meter.read()
    await asyncio.sleep(span.window_s)
    count = tally.answers
    return count, Used.between(before, meter.read())


async def requests_closed(
    aim: Aim,
    span: Span,
    requests: Sequence[bytes],
    *,
    connections: int,
    body: bytes,
    warm_up: int = 0,
) -> Measured:
    """Each connection sends its next request as soon as it has its answer; µs per request.

    At least `warm_up` answers come before the window opens.
    """
    tally = Tally()
    pool = itertools.cycle(requests)
    running = True

    def on_answer(client: Client) -> None:
        assert isinstance(client, RequestClient)
        if running:
            client.send(next(pool))

    clients = await _open(aim, lambda: RequestClient(tally, on_answer, body=body), connections)
    for client in clients:
        client.send(next(pool))
    deadline = asyncio.get_running_loop().time() + _ANSWER_TIMEOUT_S
    while tally.answers < warm_up and not tally.errors:
        if asyncio.get_running_loop().time() > deadline:
            tally.failed(f"only {tally.answers} answers to warm up")
        await asyncio.sleep(0.05)
    count, used = await window(tally, aim.meter, span)
    running = False
    await asyncio.sleep(0.05)
    for client in clients:
        client.close()
    return measured_of(tally, used, units=count, scale=1e6)


async def requests_paced(
    aim: Aim,
    span: Span,
    requests: Sequence[bytes],
    *,
    connections: int,
    rate_per_s: int,
    body: bytes,
) -> Measured:
    """Requests leave on a schedule, whatever the answers do; µs per request.

    A request that finds no free connection waits for one; its latency counts from when it was due.
    """
    tally = Tally()
    pool = itertools.cycle(requests)
    overdue: deque[int] = deque()
    free: deque[RequestClient] = deque()

    def on_answer(client: Client) -> None:
        assert isinstance(client, RequestClient)
        if overdue:
            client.send(next(pool), overdue.popleft())
        else:
            free.append(client)

    def on_due(moment_ns: int) -> None:
        if free:
            free.popleft().send(next(pool), moment_ns)
        else:
            overdue.append(moment_ns)

    clients = await _open(aim, lambda: RequestClient(tally, on_answer, body=body), connections)
    free.extend(clients)
    pacer = Pacer(rate_per_s, on_due)
    pacer.start()
    try:
        count, used = await window(tally, aim.meter, span)
    finally:
        pacer.stop()
    if count < 0.98 * rate_per_s * span.window_s:
        tally.failed(f"held {count / used.elapsed_s:.0f}/s only")
    await asyncio.sleep(0.05)
    for client in clients:
        client.close()
    return measured_of(tally, used, units=count, scale=1e6)


async def bulk(aim: Aim, *, up: bool, chunked: bool, size: int, times: int) -> Measured:
    """One body after another over one connection; ms of CPU per MB (10^6 bytes)."""
    tally = Tally()
    done = asyncio.Event()
    (client,) = await _open(aim, lambda: BulkClient(tally, lambda _client: done.set()), 1)

    async def move(bytes_to_move: int) -> None:
        done.clear()
        start = client.upload if up else client.download
        start(aim.caller, bytes_to_move, chunked=chunked)
        await _answered(done, tally)

    await move(MB)
    tally.restart()
    before = aim.meter.read()
    for _ in range(times):
        if not tally.errors:
            await move(size)
    used = Used.between(before, aim.meter.read())
    client.close()
    return measured_of(tally, used, units=tally.answers * size / MB, scale=1e3)


async def _answered(done: asyncio.Event, tally: Tally) -> None:
    """Wait for an answer, an error, or too long."""
    deadline = asyncio.get_running_loop().time() + _ANSWER_TIMEOUT_S
    while not done.is_set() and not tally.errors:
        if asyncio.get_running_loop().time() > deadline:
            tally.failed(f"no answer within {_ANSWER_TIMEOUT_S:.0f} s")
            return
        try:
            await asyncio.wait_for(done.wait(), timeout=0.25)
        except TimeoutError:
            continue


async def websocket_echoes(aim: Aim, span: Span, *, connections: int, size: int) -> Measured:
    """Each WebSocket says its next message when the last came back; µs per message echoed."""
    tally = Tally()
    running = True

    def on_echo(client: Client) -> None:
        assert isinstance(client, WebSocketClient)
        if running:
            client.say()

    messages = message_pool(size)
    clients = await _open(
        aim, lambda: WebSocketClient(tally, on_echo, messages=messages), connections
    )
    await asyncio.gather(*(client.upgrade(aim.caller) for client in clients))
    for client in clients:
        if not client.closing:
            client.say()
    count, used = await window(tally, aim.meter, span)
    running = False
    await asyncio.sleep(0.05)
    for client in clients:
        client.close()
    return measured_of(tally, used, units=count, scale=1e6)


async def idle_memory(
    aim: Aim, requests: Sequence[bytes], *, websockets: bool, steps: tuple[int, ...]
) -> Measured:
    """Open connections, use each once, leave them idle; MB (10^6 bytes) per 1,000 of them.

    With several steps the dearest stretch counts: from none to the first, or between steps.
    """
    tally = Tally()
    pool = itertools.cycle(requests)
    messages = message_pool(64)
    clients: list[Client] = []
    stretches: list[float] = []
    held, memory = 0, await _settled_memory(aim.meter)
    for step in steps:
        while len(clients) < step and not tally.errors:
            share = min(_OPENING_AT_ONCE, step - len(clients))
            if websockets:
                clients += await _websockets_once(aim, tally, messages, share)
            else:
                clients += await _requests_once(aim, tally, pool, share)
        now = await _settled_memory(aim.meter)
        stretches.append((now - memory) / MB / (step - held) * 1_000)
        held, memory = step, now
    for client in clients:
        client.close()
    await asyncio.sleep(0.2)
    return Measured(cost=max(stretches), stretches=stretches, errors=dict(tally.errors))


async def _settled_memory(meter: Meter) -> int:
    await asyncio.sleep(_SETTLE_S)
    return meter.memory_bytes()


async def _requests_once(
    aim: Aim, tally: Tally, pool: itertools.cycle[bytes], count: int
) -> list[RequestClient]:
    done = asyncio.Event()
    clients = await _open(
        aim, lambda: RequestClient(tally, lambda _client: done.set(), body=ITEM_BODY), count
    )
    for client in clients:
        done.clear()
        client.send(next(pool))
        await _answered(done, tally)
    return clients


async def _websockets_once(
    aim: Aim, tally: Tally, messages: list[tuple[bytes, bytes]], count: int
) -> list[WebSocketClient]:
    done = asyncio.Event()
    clients = await _open(
        aim,
        lambda: WebSocketClient(tally, lambda _client: done.set(), messages=messages),
        count,
    )
    for client in clients:
        await client.upgrade(aim.caller)
        if not client.closing:
            done.clear()
            client.say()
            await _answered(done, tally)
    return clients
