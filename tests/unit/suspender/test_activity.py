from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from router.routing.endpoint import SandboxRef
from router.suspender.activity import (
    Answer,
    IncompleteAnswer,
    Seen,
    UnusableAnswer,
    parse_activity,
)
from tests.fakes.activity_router import activity

BOX = SandboxRef("default", "box")
EVERY = {BOX, SandboxRef("default", "other")}


def parsed(document: Any) -> Answer:
    return parse_activity(orjson.dumps(document), EVERY)


def test_ages_are_by_the_routers_own_clock() -> None:
    for now in (datetime(1999, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)):
        answer = parsed(activity(now=now, uptime_s=500.0, idle_s={"box": 20.5}))

        assert answer == Answer(500.0, {BOX: Seen(idle_s=20.5, awake_s=0.0)})


def test_which_process_answered_is_kept_where_it_is_told() -> None:
    document = activity()
    assert parsed(document).process == ""
    document["process"] = "one"
    assert parsed(document).process == "one"


def test_an_open_request_is_activity_now() -> None:
    answer = parsed(activity(idle_s={"box": 900.0}, busy=("box",)))

    assert answer.sandboxes[BOX].idle_s == 0.0


def test_a_sandbox_may_be_kept_awake_without_any_activity() -> None:
    answer = parsed(activity(awake_s={"box": 60.0}))

    assert answer.sandboxes[BOX] == Seen(idle_s=float("inf"), awake_s=60.0)


def test_an_awake_time_that_is_over_is_none() -> None:
    answer = parsed(activity(idle_s={"box": 9.0}, awake_s={"box": -60.0}))

    assert answer.sandboxes[BOX].awake_s == 0.0


def test_of_two_entries_of_one_name_the_latest_activity_counts() -> None:
    document = activity(idle_s={"box": 900.0})
    document["sandboxes"] += activity(idle_s={"box": 3.0}, awake_s={"box": 5.0})["sandboxes"]

    assert parsed(document).sandboxes[BOX] == Seen(3.0, 5.0)


def test_sandboxes_that_nobody_asks_about_are_left_out() -> None:
    answer = parsed(activity(idle_s={"box": 1.0, "unknown": 1.0}))

    assert answer.sandboxes.keys() == {BOX}


def test_an_answer_that_says_that_it_is_not_complete_is_refused_as_such() -> None:
    with pytest.raises(IncompleteAnswer):
        parsed(activity(is_complete=False))


def test_a_router_that_had_to_forget_something_counts_as_one_that_began_then() -> None:
    document = activity(uptime_s=500.0)
    document["complete_since"] = activity(uptime_s=200.0)["started"]
    forgetful = parsed(document)
    document["complete_since"] = activity(uptime_s=900.0)["started"]

    assert (forgetful.uptime_s, parsed(document).uptime_s) == (200.0, 500.0)


@pytest.mark.parametrize("missing", ["now", "started", "complete", "sandboxes"])
def test_no_part_may_be_missing(missing: str) -> None:
    document = activity(idle_s={"box": 1.0})
    del document[missing]

    with pytest.raises(UnusableAnswer):
        parsed(document)


@pytest.mark.parametrize("missing", ["namespace", "name", "last_activity", "open_requests"])
def test_no_part_of_an_entry_may_be_missing(missing: str) -> None:
    document = activity(idle_s={"box": 1.0})
    del document["sandboxes"][0][missing]

    with pytest.raises(UnusableAnswer):
        parsed(document)


@pytest.mark.parametrize("spoilt", [{"open_requests": True}, {"last_activity": "now"}, {"name": 3}])
def test_no_part_of_an_entry_may_be_something_else(spoilt: dict[str, Any]) -> None:
    document = activity(idle_s={"box": 1.0})
    document["sandboxes"][0] |= spoilt

    with pytest.raises(UnusableAnswer):
        parsed(document)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"complete": true'])
def test_another_servers_answer_is_refused(body: bytes) -> None:
    with pytest.raises(UnusableAnswer):
        parse_activity(body, EVERY)


def test_an_entry_that_is_no_object_is_refused() -> None:
    with pytest.raises(UnusableAnswer):
        parsed(activity() | {"sandboxes": [1]})
