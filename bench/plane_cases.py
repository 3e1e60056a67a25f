"""The table of what the plane measurements measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench import heads
from bench.heads import ITEM_BODY, Caller
from bench.plane_stage import SESSION_KEYS, Stage
from bench.plane_traffic import (
    Body,
    Make,
    Messages,
    Requests,
    answer_with_many_headers,
    chunked_answer,
)
from bench.sandbox import ITEM_ANSWER, STORED_ANSWER

SANDBOXES = 10_000
_HEADS = 64 * 64
_US, _US_ECHO, _US_MB = "µs per request", "µs per message echoed", "µs per MB"


@dataclass(frozen=True, slots=True)
class PlaneCase:
    """One thing whose cost is measured, on a worker of its own."""

    name: str
    title: str
    unit: str
    make: Make
    settings: Mapping[str, str] = field(default_factory=dict)
    sandboxes: int = 1


def _caller(stage: Stage) -> Caller:
    return Caller("box-0", stage.token)


def _gets(answer: bytes, *, batches: int = 1) -> Make:
    return lambda stage: Requests(
        stage, heads.different_gets(_caller(stage), _HEADS), answer=answer, batches=batches
    )


def _misses(stage: Stage) -> Requests:
    callers = [Caller(f"box-{n}", stage.token) for n in range(SANDBOXES)]
    return Requests(
        stage,
        heads.gets_in_turn(callers),
        answer=ITEM_ANSWER,
        connections=8,
        batches=8,
        warm_up=SANDBOXES,
    )


def _body(*, up: bool, chunked: bool) -> Make:
    return lambda stage: Body(stage, _caller(stage), up=up, chunked=chunked)


def _messages(size: int) -> Make:
    return lambda stage: Messages(stage, _caller(stage), size=size)


def _posts(stage: Stage) -> Requests:
    return Requests(stage, heads.different_posts(_caller(stage), _HEADS), answer=STORED_ANSWER)


def _proxied(stage: Stage) -> Requests:
    return Requests(stage, heads.proxied_gets(_caller(stage), _HEADS), answer=ITEM_ANSWER)


_HOST = "8888-box-0--default.boxes.example"
_FOR_BROWSERS = {"base-domain": "boxes.example", "session-key-file": SESSION_KEYS}


def _by_browser(*, session: bool) -> Make:
    return lambda stage: Requests(
        stage,
        heads.browser_gets(
            _HOST,
            authorization="" if session else stage.token,
            session=stage.session if session else "",
            count=_HEADS,
        ),
        answer=ITEM_ANSWER,
    )


PLANE_CASES: tuple[PlaneCase, ...] = (
    PlaneCase("get", "small GET, heads differ", _US, _gets(ITEM_ANSWER)),
    PlaneCase(
        "get-miss",
        "small GET, ten thousand sandboxes in turn over eight connections",
        _US,
        _misses,
        settings={"max-idle-upstream-total": str(2 * SANDBOXES)},
        sandboxes=SANDBOXES,
    ),
    PlaneCase("post", "POST of 1 KB", _US, _posts),
    PlaneCase(
        "get-proxied",
        "small GET behind a trusted proxy",
        _US,
        _proxied,
        settings={"trusted-proxies": "127.0.0.0/8"},
    ),
    PlaneCase(
        "get-log",
        "small GET, access log on",
        _US,
        _gets(ITEM_ANSWER, batches=16),
        settings={"access-log": "true"},
    ),
    PlaneCase(
        "get-page",
        "small GET of a browser's page, with a bearer token",
        _US,
        _by_browser(session=False),
        settings=_FOR_BROWSERS,
    ),
    PlaneCase(
        "get-session",
        "the same with a session",
        _US,
        _by_browser(session=True),
        settings=_FOR_BROWSERS,
    ),
    PlaneCase("get-chunked", "small GET, chunked response", _US, _gets(chunked_answer(ITEM_BODY))),
    PlaneCase(
        "get-headers",
        "small GET, response with 45 headers",
        _US,
        _gets(answer_with_many_headers(ITEM_BODY)),
    ),
    PlaneCase("ws-64b", "WebSocket message of 64 B", _US_ECHO, _messages(64)),
    PlaneCase("ws-4kb", "WebSocket message of 4 KB", _US_ECHO, _messages(4_096)),
    PlaneCase("down", "body down, with a length", _US_MB, _body(up=False, chunked=False)),
    PlaneCase("down-chunked", "body down, chunked", _US_MB, _body(up=False, chunked=True)),
    PlaneCase("up", "body up, with a length", _US_MB, _body(up=True, chunked=False)),
    PlaneCase("up-chunked", "body up, chunked", _US_MB, _body(up=True, chunked=True)),
)
