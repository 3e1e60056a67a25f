"""The table of what is measured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property

from bench import handshakes, heads, loads
from bench.bodies import MB
from bench.loads import Aim, Measured, Span
from bench.subjects import (
    BULK,
    MEMORY,
    REQUEST,
    SANDBOX_ID,
    TLS,
    TURNS,
    USUAL,
    WEBSOCKET,
    Setup,
)

_RATE_PER_S = 3_000
_ECHOING = 64
SANDBOXES = (SANDBOX_ID, *(f"box-{n}" for n in range(10_000)))


@dataclass(frozen=True, slots=True)
class Effort:
    """How much each measurement does; the quick one only shows that everything works."""

    span: Span
    bulk_times: int
    idle_steps: tuple[int, ...]


FULL = Effort(Span(warm_s=1.0, window_s=4.0), bulk_times=15, idle_steps=(1_000, 3_000))
QUICK = Effort(Span(warm_s=0.3, window_s=0.7), bulk_times=1, idle_steps=(200,))


class Requests:
    """Everything that is sent, made once for the whole run."""

    def __init__(self, caller: heads.Caller) -> None:
        self._caller = caller

    @cached_property
    def same_gets(self) -> list[bytes]:
        return heads.same_gets(self._caller)

    @cached_property
    def different_gets(self) -> list[bytes]:
        return heads.different_gets(self._caller)

    @cached_property
    def proxied_gets(self) -> list[bytes]:
        return heads.proxied_gets(self._caller)

    @cached_property
    def gets_in_turn(self) -> list[bytes]:
        """One for each of ten thousand sandboxes."""
        return heads.gets_in_turn(
            [heads.Caller(each, self._caller.token) for each in SANDBOXES[1:]]
        )

    @cached_property
    def different_posts(self) -> list[bytes]:
        return heads.different_posts(self._caller)


Measure = Callable[[Aim, Requests, Effort], Awaitable[Measured]]


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is measured, of every subject whose families have it."""

    name: str
    family: str
    title: str
    unit: str
    measure: Measure
    setup: Setup = USUAL


def _closed(pick: Callable[[Requests], list[bytes]], connections: int, body: bytes) -> Measure:
    return lambda aim, requests, effort: loads.requests_closed(
        aim, effort.span, pick(requests), connections=connections, body=body
    )


def _in_turn() -> Measure:
    return lambda aim, requests, effort: loads.requests_closed(
        aim,
        effort.span,
        requests.gets_in_turn,
        connections=8,
        body=heads.ITEM_BODY,
        warm_up=len(requests.gets_in_turn),
    )


def _handshakes(*, resumed: bool) -> Measure:
    return lambda aim, requests, effort: handshakes.handshakes(
        aim, effort.span, requests.different_gets, resumed=resumed, body=heads.ITEM_BODY
    )


def _paced(pick: Callable[[Requests], list[bytes]]) -> Measure:
    return lambda aim, requests, effort: loads.requests_paced(
        aim,
        effort.span,
        pick(requests),
        connections=64,
        rate_per_s=_RATE_PER_S,
        body=heads.ITEM_BODY,
    )


def _bulk(*, up: bool, chunked: bool) -> Measure:
    return lambda aim, requests, effort: loads.bulk(
        aim, up=up, chunked=chunked, size=100 * MB, times=effort.bulk_times
    )


def _echoes(size: int) -> Measure:
    return lambda aim, requests, effort: loads.websocket_echoes(
        aim, effort.span, connections=_ECHOING, size=size
    )


def _idle(*, websockets: bool) -> Measure:
    return lambda aim, requests, effort: loads.idle_memory(
        aim, requests.different_gets, websockets=websockets, steps=effort.idle_steps
    )


def _same(requests: Requests) -> list[bytes]:
    return requests.same_gets


def _different(requests: Requests) -> list[bytes]:
    return requests.different_gets


def _proxied(requests: Requests) -> list[bytes]:
    return requests.proxied_gets


def _posts(requests: Requests) -> list[bytes]:
    return requests.different_posts


_US = "µs CPU per request"
_US_NEW = "µs CPU per connection"
_MS = "ms CPU per MB"
_US_ECHO = "µs CPU per message echoed"
_MB_IDLE = "MB per 1,000"

CASES: tuple[Case, ...] = (
    Case(
        "get-64",
        REQUEST,
        "small GET, 64 connections, one head",
        _US,
        _closed(_same, 64, heads.ITEM_BODY),
    ),
    Case(
        "get-8",
        REQUEST,
        "small GET, 8 connections, one head",
        _US,
        _closed(_same, 8, heads.ITEM_BODY),
    ),
    Case("get-rate", REQUEST, "small GET, 3,000/s, one head", _US, _paced(_same)),
    Case(
        "get-64-differ",
        REQUEST,
        "small GET, 64 connections, heads differ",
        _US,
        _closed(_different, 64, heads.ITEM_BODY),
    ),
    Case(
        "get-8-differ",
        REQUEST,
        "small GET, 8 connections, heads differ",
        _US,
        _closed(_different, 8, heads.ITEM_BODY),
    ),
    Case("get-rate-differ", REQUEST, "small GET, 3,000/s, heads differ", _US, _paced(_different)),
    Case(
        "post-64-differ",
        REQUEST,
        "POST of 1 KB, 64 connections, heads differ",
        _US,
        _closed(_posts, 64, heads.STORED_BODY),
    ),
    Case(
        "get-64-proxied",
        REQUEST,
        "small GET behind a trusted proxy, 64 connections, heads differ",
        _US,
        _closed(_proxied, 64, heads.ITEM_BODY),
        Setup(behind_proxy=True),
    ),
    Case(
        "get-8-turns",
        TURNS,
        "small GET, 8 connections, ten thousand sandboxes in turn",
        _US,
        _in_turn(),
        Setup(sandboxes=SANDBOXES),
    ),
    Case(
        "tls-64",
        TLS,
        "small GET over TLS, 64 connections, heads differ",
        _US,
        _closed(_different, 64, heads.ITEM_BODY),
        Setup(tls=True),
    ),
    Case(
        "tls-full",
        TLS,
        "a full TLS handshake, one GET, the end",
        _US_NEW,
        _handshakes(resumed=False),
        Setup(tls=True),
    ),
    Case(
        "tls-resumed",
        TLS,
        "a resumed TLS handshake, one GET, the end",
        _US_NEW,
        _handshakes(resumed=True),
        Setup(tls=True),
    ),
    Case("down", BULK, "100 MB down, with a length", _MS, _bulk(up=False, chunked=False)),
    Case("down-chunked", BULK, "100 MB down, chunked", _MS, _bulk(up=False, chunked=True)),
    Case("up", BULK, "100 MB up, with a length", _MS, _bulk(up=True, chunked=False)),
    Case("up-chunked", BULK, "100 MB up, chunked", _MS, _bulk(up=True, chunked=True)),
    Case("ws-64b", WEBSOCKET, "WebSocket messages of 64 B, 64 connections", _US_ECHO, _echoes(64)),
    Case(
        "ws-4kb", WEBSOCKET, "WebSocket messages of 4 KB, 64 connections", _US_ECHO, _echoes(4_096)
    ),
    Case(
        "idle-keepalive", MEMORY, "idle keep-alive connections", _MB_IDLE, _idle(websockets=False)
    ),
    Case("idle-websocket", MEMORY, "idle WebSockets", _MB_IDLE, _idle(websockets=True)),
)
