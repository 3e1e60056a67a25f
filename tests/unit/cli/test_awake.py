"""What keeps a sandbox awake, in words."""

from __future__ import annotations

from typing import Any

import pytest

from router.cli.awake import as_text

BOX = {
    "namespace": "team-a",
    "name": "box",
    "uid": "uid-a",
    "last_activity": "2026-12-01T11:58:30Z",
    "open_requests": 0,
    "open_tunnels": 0,
    "awake_until": None,
}


def told(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "now": "2026-12-01T12:00:00Z",
        "started": "2026-12-01T08:00:00Z",
        "complete": True,
        "incomplete_because": "",
        "complete_since": "2026-12-01T09:50:00Z",
        "sandboxes": list(entries),
        **more,
    }


def test_an_idle_sandbox_is_told_with_its_last_activity_and_since_when_that_is_known() -> None:
    assert as_text("team-a/box", told(BOX)).splitlines() == [
        "team-a/box  uid=uid-a",
        "last activity  2026-12-01T11:58:30Z, 1 min 30 s ago",
        "kept awake by  nothing now",
        "known since    2026-12-01T09:50:00Z, 2 h 10 min ago; what was before, this router doesn't know",
        "Each router knows what it carried itself: ask every one.",
    ]


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"open_requests": 2}, "kept awake by  2 open request(s)"),
        ({"open_tunnels": 1}, "1 open tunnel(s), while something moves on them"),
        ({"awake_until": "2026-12-01T12:00:42Z"}, "until 2026-12-01T12:00:42Z, 42 s more"),
        ({"awake_until": "2026-12-01T11:59:00Z"}, "kept awake by  nothing now"),
        ({"uid": ""}, "team-a/box  uid=-"),
    ],
)
def test_each_reason_is_told(facts: dict[str, Any], says: str) -> None:
    assert says in as_text("team-a/box", told(BOX | facts))


def test_a_sandbox_that_was_not_used_is_told_as_such() -> None:
    assert "no activity since 2026-12-01T09:50:00Z" in as_text("team-a/box", told())


def test_what_is_not_known_is_said() -> None:
    text = as_text("a/b", told(complete=False, incomplete_because="worker 0 is not running"))
    assert "not complete   worker 0 is not running: nobody is suspended on this answer" in text
