"""Who wakes a sandbox and who does not: each row of the table."""

from __future__ import annotations

import pytest

from router.proxy.options import ProxyOptions
from router.proxy.wake_rules import WakeRules, page_at
from router.proxy.wire.request_head import RequestHead, parse_request
from router.routing.endpoint import Endpoint, SandboxRef, State, Wishes

ASLEEP = Endpoint(SandboxRef("default", "box"), "", State.SUSPENDED, sandbox_uid="s-1")
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\n"


def head(method: str = "GET", lines: str = "") -> RequestHead:
    return parse_request(f"{method} / HTTP/1.1\r\nHost: router\r\n{lines}\r\n".encode())


def rules(wakes: str = "all", **options: object) -> WakeRules:
    return WakeRules(ProxyOptions(wakes=wakes, **options))  # type: ignore[arg-type]


WAKES = {
    "a program's GET": head(),
    "a program's POST": head("POST", "Content-Length: 0\r\n"),
    "HEAD": head("HEAD"),
    "a navigation": head(lines="Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n"),
    "a form that is sent": head("POST", "Sec-Fetch-Mode: navigate\r\nContent-Length: 0\r\n"),
    "an old browser's navigation": head(lines="Accept: text/html\r\n"),
    "another purpose": head(lines="Purpose: research\r\n"),
}
DOES_NOT_WAKE = {
    "OPTIONS": head("OPTIONS"),
    "a preflight": head(
        "OPTIONS", "Origin: https://a.example\r\nAccess-Control-Request-Method: PUT\r\n"
    ),
    "a prefetch": head(lines="Sec-Purpose: prefetch\r\nSec-Fetch-Mode: navigate\r\n"),
    "a prerender": head(lines="Sec-Purpose: prefetch;prerender\r\nSec-Fetch-Mode: navigate\r\n"),
    "an older browser's prefetch": head(lines="Purpose: prefetch\r\n"),
    "a prefetch on its second line": head(lines="Sec-Purpose: x\r\nSEC-PURPOSE: Prefetch\r\n"),
    "a favicon": head(lines="Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n"),
    "a script's fetch": head(lines="Sec-Fetch-Mode: cors\r\n"),
    "a script's fetch of its own origin": head(lines="Sec-Fetch-Mode: same-origin\r\n"),
    "a mode that contradicts itself": head(
        lines="Sec-Fetch-Mode: navigate\r\nSec-Fetch-Mode: cors\r\n"
    ),
    "a browser's WebSocket": head(lines=f"{UPGRADE}Sec-Fetch-Mode: websocket\r\n"),
    "a program's WebSocket": head(lines=UPGRADE),
}


@pytest.mark.parametrize("which", WAKES)
def test_it_wakes(which: str) -> None:
    assert rules().why_not(WAKES[which], ASLEEP) == ""


@pytest.mark.parametrize("which", DOES_NOT_WAKE)
def test_it_does_not_wake_and_says_why(which: str) -> None:
    assert rules().why_not(DOES_NOT_WAKE[which], ASLEEP) != ""


@pytest.mark.parametrize("which", [which for which in DOES_NOT_WAKE if "WebSocket" in which])
def test_a_websocket_wakes_where_the_operator_says_so(which: str) -> None:
    assert rules(wake_websockets=True).why_not(DOES_NOT_WAKE[which], ASLEEP) == ""


def test_a_websocket_that_is_a_prefetch_does_not_wake_even_then() -> None:
    asked = head(lines=f"{UPGRADE}Sec-Purpose: prefetch\r\n")
    assert rules(wake_websockets=True).why_not(asked, ASLEEP) != ""


def test_nothing_wakes_while_waking_is_off() -> None:
    off = rules("")
    assert not off.is_on
    assert "off" in off.why_not(head(), ASLEEP)
    assert not off.concern(ASLEEP)


def test_only_whose_owner_asked_for_it_is_woken_with_annotated() -> None:
    annotated = rules("annotated")
    asked = Endpoint(ASLEEP.ref, "", State.SUSPENDED, wishes=Wishes(wakes_on_request=True))
    assert annotated.why_not(head(), asked) == ""
    assert "on-request" in annotated.why_not(head(), ASLEEP)


def test_a_sandbox_is_on_its_way_for_as_long_as_requests_may_wait_for_it() -> None:
    resumed = Endpoint(ASLEEP.ref, "", State.STARTING, resumed_at=100.0)
    known = rules(wake_timeout_s=60.0)
    assert known.is_on_its_way(resumed, 159.0)
    assert not known.is_on_its_way(resumed, 160.0)
    assert not known.is_on_its_way(ASLEEP, 1.0)
    assert not rules("annotated", wake_timeout_s=60.0).is_on_its_way(resumed, 101.0)
    assert known.ends_at(7.0) == 67.0


def test_a_page_is_for_people_alone() -> None:
    assert page_at(head(lines="Sec-Fetch-Mode: navigate\r\n"), 10.0) == 12.0
    assert page_at(head(lines="Accept: text/html,*/*;q=0.8\r\n"), 10.0) == 12.0
    assert page_at(head(), 10.0) is None
    assert page_at(head("POST", "Sec-Fetch-Mode: navigate\r\nContent-Length: 0\r\n"), 10.0) is None


def test_it_says_what_it_is() -> None:
    assert "on=True all=True" in repr(rules())
