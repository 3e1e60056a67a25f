"""What the demo prints: the table of answers, the commands to try by hand, and a failed step (pure text)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from router.demo.child import StepFailed
from router.demo.stage import NAMESPACE, PORT_ASKED_FOR, Place
from router.demo.tour import Row

HEADINGS = ("request", "sandbox", "status", "what came back", "took", "")


@dataclass(frozen=True, slots=True)
class Command:
    """One command line that works when pasted into a shell, with what it shows."""

    shows: str
    line: str


def table(rows: Iterable[Row]) -> str:
    """Returns the rows as aligned text, one line each."""
    cells = [
        HEADINGS,
        *(
            (
                row.request,
                row.sandbox,
                str(row.status or "-"),
                row.answer,
                f"{row.took_s * 1000:.0f} ms",
                "ok" if row.is_right else "WRONG",
            )
            for row in rows
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths[:-1]))
    return "\n".join(f"  {line}" for line in lines)


def commands(place: Place, *, python: str) -> tuple[Command, ...]:
    """Returns what to try by hand; the first command sets what the others use."""
    curl = 'curl -sS -H "Authorization: Bearer $TOKEN"'
    websocket_url = f"{place.url}{place.path('echo', '/ws')}".replace("http", "ws", 1)
    explain = f"namespace={NAMESPACE}&name=hello&port={PORT_ASKED_FOR}"
    return (
        Command("the token of this run, for the commands below", f"TOKEN={place.token}"),
        Command("a sandbox, named by header", f'{curl} -H "X-Sandbox-ID: hello" {place.url}/'),
        Command("another one, named by path", f"{curl} {place.url}{place.path('echo')}"),
        Command(
            "a stream, event by event",
            f'{curl} -N -H "X-Sandbox-ID: ticker" "{place.url}/events?count=5"',
        ),
        Command(
            "a WebSocket message",
            f'{python} -m router.demo.say {websocket_url} "$TOKEN" "Hello from the shell"',
        ),
        Command(
            "a refusal, and how to tell it from the app's own",
            f'curl -sS -i -H "X-Sandbox-ID: hello" {place.url}/',
        ),
        Command(
            "why a request goes where it goes",
            f'{curl} "{place.admin_url}/debug/route?{explain}"',
        ),
        Command("the metrics", f"curl -sS {place.admin_url}/metrics"),
    )


def sleep_commands(place: Place, *, sleeping: str, switch: str, guest: str) -> tuple[Command, ...]:
    """Returns what to try by hand with a sandbox that sleeps; the first command sets what the others use."""
    root = f"{place.url}{place.path(sleeping)}"
    curl = 'curl -sS -H "Authorization: Bearer $TOKEN"'
    only_how = "-o /dev/null -w '%{http_code} after %{time_total} s\\n'"
    explain = f"namespace={NAMESPACE}&name={sleeping}&port={PORT_ASKED_FOR}"
    return (
        Command("the token of this run, which has the right to wake", f"TOKEN={place.token}"),
        Command(
            "a prefetch does not wake it: 409",
            f"{curl} {only_how} -H 'Sec-Purpose: prefetch' {root}",
        ),
        Command(
            "nor does a token without that right",
            f'curl -sS -i -H "Authorization: Bearer {guest}" {root}',
        ),
        Command(
            "what a request would come to", f'{curl} "{place.admin_url}/debug/route?{explain}"'
        ),
        Command("a call wakes it: 200, once it is there", f"{curl} {only_how} {root}"),
        Command(
            "suspend it again: its process ends",
            f"curl -sS -X POST --unix-socket {shlex.quote(switch)} http://demo/suspend",
        ),
        Command(
            "how many wakes there were, and how they ended",
            f"curl -sS {place.admin_url}/metrics | grep ^sandbox_router_wakes_total",
        ),
    )


def link_command(place: Place, session_keys: Path) -> str:
    """Returns the command, without the program's name, that makes another link to the home page."""
    keys = shlex.quote(str(session_keys))
    return f"token home-link '{NAMESPACE}/*' --wake --ttl 10m --secret-file {keys} --url {place.home_url}"


def sleep_hints(commands: Sequence[Command], *, page_url: str, again: str) -> str:
    """Returns the commands as pasteable lines, and a link for a browser; `again` makes another."""
    lines = [
        *("It has been suspended again. Try it by hand, in another terminal:", ""),
        *_pasteable(commands),
        *("", "Or open your sandboxes in a browser, and wake the one that sleeps:"),
        *_link(page_url, again),
    ]
    return "\n".join(lines)


def hints(commands: Sequence[Command], *, page_url: str, again: str) -> str:
    """Returns the commands as pasteable lines, and a link for a browser; `again` makes another."""
    lines = ["Try it by hand, in another terminal:", "", *_pasteable(commands)]
    lines += ["", "Or open your sandboxes in a browser:", *_link(page_url, again)]
    return "\n".join(lines)


def _link(page_url: str, again: str) -> list[str]:
    return [
        "",
        f"  {page_url}",
        "",
        "The link can be clicked for ten minutes. Another one:",
        "",
        f"  {again}",
    ]


def _pasteable(commands: Sequence[Command]) -> list[str]:
    return [line for each in commands for line in (f"  # {each.shows}", f"  {each.line}")]


def failure(error: StepFailed) -> str:
    """Returns which step failed, why, and the last lines of the process that it is about."""
    lines = [f"FAILED to {error.step}: {error.why}"]
    if error.lines:
        lines += ["Its last lines:", *(f"  | {line}" for line in error.lines)]
    return "\n".join(lines)
