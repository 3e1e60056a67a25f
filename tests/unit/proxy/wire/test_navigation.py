"""Who opens a page, and who is sent to a sandbox's root with its slash."""

from __future__ import annotations

import pytest

from router.proxy.wire.navigation import (
    fetch_mode,
    is_navigation,
    is_shown_to_a_person,
    missing_slash,
)
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import parse_request
from router.routing.endpoint import SandboxRef
from router.routing.target import NamedBy, Target
from tests.unit.proxy.wire.test_forwarding import PROXY, STRANGER, UPGRADE, head_of

ROOT = "/s/team/box/8888"
BROWSER = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((BROWSER,), True),
        (("Sec-Fetch-Mode: navigate",), True),
        (("sec-fetch-mode: cors", BROWSER), False),
        (("Sec-Fetch-Mode: no-cors", BROWSER), False),
        (("Accept: */*",), False),
        (("Accept: application/json, text/html",), False),
        (("Accept: application/json;q=0.9, TEXT/HTML;level=1",), True),
        (("Accept: text/html;q=0.5, application/json",), False),
        (("Accept: text/html;q=0",), False),
        (("Accept: text/html;q=nan",), False),
        (("Accept: " + "text/html," * 100,), False),
        ((), False),
    ],
)
def test_a_browser_that_opens_a_page_is_known(lines: tuple[str, ...], expected: bool) -> None:
    assert is_navigation(head_of(*lines)) is expected


@pytest.mark.parametrize("method", ["POST", "HEAD", "get"])
def test_no_other_method_opens_a_page(method: str) -> None:
    assert not is_navigation(head_of("Sec-Fetch-Mode: navigate", line=f"{method} / HTTP/1.1"))


@pytest.mark.parametrize(
    ("method", "line", "expected"),
    [
        ("GET", BROWSER, True),
        ("POST", "Sec-Fetch-Mode: navigate", True),
        ("POST", BROWSER, True),
        ("HEAD", BROWSER, True),
        ("PUT", "Sec-Fetch-Mode: navigate", True),
        ("PUT", BROWSER, False),
        ("OPTIONS", BROWSER, False),
        ("GET", "Sec-Fetch-Mode: cors", False),
        ("GET", "Accept: */*", False),
    ],
)
def test_what_a_person_sees_is_known(method: str, line: str, expected: bool) -> None:
    assert is_shown_to_a_person(head_of(line, line=f"{method} / HTTP/1.1")) is expected


def test_an_upgrade_is_shown_to_nobody() -> None:
    assert not is_shown_to_a_person(head_of(*UPGRADE, BROWSER))


def test_an_upgrade_opens_no_page() -> None:
    assert not is_navigation(head_of(*UPGRADE, BROWSER))


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (ROOT, f"{ROOT}/"),
        (f"{ROOT}?a=b/c", f"{ROOT}/?a=b/c"),
        (f"{ROOT}/", None),
        (f"{ROOT}/?a", None),
        (f"{ROOT}/a", None),
    ],
)
def test_a_page_at_the_root_has_a_slash(path: str, where: str | None) -> None:
    target = Target(SandboxRef("team", "box"), 8888, named_by=NamedBy.PATH, path_root=ROOT.encode())
    head = head_of(BROWSER, line=f"GET {path} HTTP/1.1")
    assert missing_slash(target, head, STRANGER) == (None if where is None else where.encode())
    assert missing_slash(target, head_of(line=f"GET {path} HTTP/1.1"), STRANGER) is None


@pytest.mark.parametrize(("peer", "where"), [(PROXY, f"/tools{ROOT}/"), (STRANGER, f"{ROOT}/")])
def test_the_prefix_of_a_trusted_front_comes_first(peer: Peer, where: str) -> None:
    target = Target(SandboxRef("team", "box"), 8888, named_by=NamedBy.PATH, path_root=ROOT.encode())
    head = head_of(BROWSER, "X-Forwarded-Prefix: /tools", line=f"GET {ROOT} HTTP/1.1")
    assert missing_slash(target, head, peer) == where.encode()


def test_a_sandbox_that_is_not_named_by_path_has_no_root() -> None:
    target = Target(SandboxRef("team", "box"), 8888)
    assert missing_slash(target, head_of(BROWSER), STRANGER) is None


def test_the_mode_of_a_fetch_is_found_in_the_spellings_that_browsers_use() -> None:
    for line in (b"Sec-Fetch-Mode: cors", b"sec-fetch-mode:cors"):
        head = parse_request(b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n\r\n" % line)
        assert fetch_mode(head) == b"cors"
    assert fetch_mode(parse_request(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")) is None
