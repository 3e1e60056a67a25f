"""The page /activity: what it says, by which clock, and of whom it may be concluded that they are idle."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.admin.activity import ActivityFilter, Seen, document
from router.errors import BadRequest
from router.telemetry.activity import Use
from router.timestamps import parse_timestamp

T0 = 1_790_000_000.0
"""The wall clock when the monotonic one stood at 0."""


async def page(
    *uses: Use,
    now: float = 500.0,
    asked_at: float = 500.0,
    jump_s: float = 0.0,
    gaps: tuple[str, ...] = (),
) -> dict[str, Any]:
    seen = Seen(
        now=now, started_at=100.0, complete_since=200.0, slices=[[], uses[:1], uses[1:]], gaps=gaps
    )
    text = await document(seen, monotonic=lambda: asked_at, wall=lambda: T0 + asked_at + jump_s)
    read: dict[str, Any] = json.loads(text)
    return read


def box(used_at: float, *, awake_until: float = 0.0) -> Use:
    return Use("team-a", "box", "uid-a", used_at, 0, 0, awake_until)


async def test_it_tells_of_each_sandbox_and_since_when_it_knows() -> None:
    told = await page(box(450.0), Use("team-b", "other", "", 500.0, 2, 3, 0.0))
    assert {key: told[key] for key in ("complete", "incomplete_because")} == {
        "complete": True,
        "incomplete_because": "",
    }
    assert [parse_timestamp(told[key]) - T0 for key in ("now", "started", "complete_since")] == [
        500.0,
        100.0,
        200.0,
    ]
    assert told["process"] == (await page())["process"] != ""
    first, second = told["sandboxes"]
    assert parse_timestamp(first.pop("last_activity")) == T0 + 450.0
    assert first == {
        "namespace": "team-a",
        "name": "box",
        "uid": "uid-a",
        "open_requests": 0,
        "open_tunnels": 0,
        "awake_until": None,
    }
    assert (second["uid"], second["open_requests"], second["open_tunnels"]) == ("", 2, 3)


async def test_nothing_seen_is_an_empty_list() -> None:
    assert (await page())["sandboxes"] == []


async def test_what_could_not_be_asked_is_said() -> None:
    told = await page(gaps=("worker 0 does not answer", "worker 1 is not running"))
    assert told["complete"] is False
    assert told["incomplete_because"] == "worker 0 does not answer; worker 1 is not running"


@pytest.mark.parametrize(
    ("awake_until", "expected"), [(450.0, 450.0), (300.0, 400.0), (900.0, 500.0)]
)
async def test_whoever_is_kept_awake_is_active_until_then_and_never_in_the_future(
    awake_until: float, expected: float
) -> None:
    (entry,) = (await page(box(400.0, awake_until=awake_until)))["sandboxes"]
    assert parse_timestamp(entry["last_activity"]) - T0 == expected
    assert parse_timestamp(entry["awake_until"]) - T0 == awake_until


async def test_use_after_the_moment_of_the_question_is_told_as_of_then() -> None:
    (entry,) = (await page(box(501.0)))["sandboxes"]
    assert parse_timestamp(entry["last_activity"]) - T0 == 500.0


@pytest.mark.parametrize("jump_s", [-86_400.0, 0.0, 3600.0])
async def test_a_clock_that_was_set_changes_no_age(jump_s: float) -> None:
    told = await page(box(450.0), jump_s=jump_s)
    now = parse_timestamp(told["now"])
    assert now - T0 == 500.0 + jump_s
    assert now - parse_timestamp(told["sandboxes"][0]["last_activity"]) == 50.0
    assert now - parse_timestamp(told["started"]) == 400.0


def test_a_filter_names_a_namespace_and_a_sandbox_and_nothing_else() -> None:
    assert ActivityFilter.of({"namespace": "a", "name": "b"}) == ActivityFilter("a", "b")
    assert ActivityFilter.of({}) == ActivityFilter()
    with pytest.raises(BadRequest, match="namespace, name"):
        ActivityFilter.of({"nmae": "b"})
