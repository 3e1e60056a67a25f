"""Which requests are for the base domain itself. What becomes of them: tests/integration/auth/test_home.py."""

from __future__ import annotations

from typing import Any, cast

import pytest

from router.errors import BadRequest, Misdirected
from router.proxy.at_home import AtHome
from router.proxy.caller import Caller
from router.proxy.request import Request
from router.proxy.wire.peer import ClientAddresses, Peer
from router.proxy.wire.request_head import parse_request

PEER = Peer("192.0.2.1", is_tls=True, trusted=())


def home() -> AtHome:
    nothing = cast(Any, None)
    return AtHome(
        base_domain="Boxes.Example.", admission=nothing, page=nothing, desk=None, rules=None
    )


def asked(path: str, host: str) -> Request:
    head = parse_request(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return Request(head, Caller(PEER), ClientAddresses(()), 1.0)


@pytest.mark.parametrize("host", ["boxes.example", "BOXES.example:443", "boxes.example.:8443"])
@pytest.mark.parametrize("path", ["/", "/?search=a", "/.sandbox-router/home.js"])
def test_the_base_domain_s_own_paths_are(host: str, path: str) -> None:
    assert home().takes(asked(path, host), Misdirected())


@pytest.mark.parametrize(
    ("path", "host"),
    [
        ("/lab", "boxes.example"),
        ("//", "boxes.example"),
        ("/.sandbox-router/awake", "boxes.example"),
        ("/", "a.boxes.example"),
        ("/", "boxes.example.evil.example"),
        ("/", "[2001:db8::1]"),
    ],
)
def test_any_other_path_and_host_is_not(path: str, host: str) -> None:
    assert not home().takes(asked(path, host), Misdirected())


def test_what_failed_for_another_reason_is_not() -> None:
    assert not home().takes(asked("/", "boxes.example"), BadRequest())
