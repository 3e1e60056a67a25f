"""What `explain --awake` says: what keeps a sandbox awake, as far as one router knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.timestamps import parse_timestamp


def as_text(name: str, told: Mapping[str, Any]) -> str:
    """Returns the router's answer about one sandbox for people. Raises KeyError, ValueError for what is no such answer."""
    now = parse_timestamp(told["now"])
    since = parse_timestamp(told["complete_since"])
    lines = []
    for entry in told["sandboxes"]:
        lines.append(f"{name}  uid={entry['uid'] or '-'}")
        idle_s = now - parse_timestamp(entry["last_activity"])
        lines.append(f"last activity  {entry['last_activity']}, {_span(idle_s)} ago")
        lines.append(f"kept awake by  {_reasons(entry, now) or 'nothing now'}")
    if not told["sandboxes"]:
        lines.append(f"{name}  no activity since {told['complete_since']}")
        lines.append("kept awake by  nothing now")
    lines.append(
        f"known since    {told['complete_since']}, {_span(now - since)} ago; what was before, this router doesn't know"
    )
    if not told["complete"]:
        lines.append(
            f"not complete   {told['incomplete_because']}: nobody is suspended on this answer"
        )
    lines.append("Each router knows what it carried itself: ask every one.")
    return "\n".join(lines)


def _reasons(entry: Mapping[str, Any], now: float) -> str:
    reasons = []
    if entry["open_requests"]:
        reasons.append(f"{entry['open_requests']} open request(s)")
    if entry["awake_until"] is not None:
        left_s = parse_timestamp(entry["awake_until"]) - now
        if left_s > 0:
            reasons.append(
                f"a wish (POST /.sandbox-router/awake) until {entry['awake_until']}, {_span(left_s)} more"
            )
    if entry["open_tunnels"]:
        reasons.append(f"{entry['open_tunnels']} open tunnel(s), while something moves on them")
    return "; ".join(reasons)


def _span(seconds: float) -> str:
    """Returns a span of time for people: `42 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
