"""What Envoy is told of a request that may pass."""

from __future__ import annotations

import pytest

from router.proxy.wire.check_answers import probe_answer, yes_answer
from router.proxy.wire.request_head import parse_request
from router.proxy.wire.stripping import Stripped

STRIPPED = Stripped.of(["x-corporate-*", "x-secret"], ["session", "front-*"])


def answer(
    *lines: bytes, keep_authorization: bool = True, stripped: Stripped | None = STRIPPED
) -> dict[bytes, bytes]:
    """Returns the headers of a yes to a request with these lines."""
    head = parse_request(b"\r\n".join([b"GET / HTTP/1.1", b"Host: box", *lines, b"", b""]))
    told = yes_answer(
        head,
        b"10.0.0.5:80",
        keep_authorization=keep_authorization,
        stripped=stripped,
        is_head=False,
        close=False,
    )
    status, *headers = told[: told.index(b"\r\n\r\n")].split(b"\r\n")
    assert status == b"HTTP/1.1 200 OK"
    assert told.endswith(b"\r\n\r\n")
    pairs = [line.split(b": ", 1) for line in headers]
    return {name.lower(): value for name, value in pairs}


def removed(*lines: bytes, keep_authorization: bool = True) -> set[bytes]:
    told = answer(*lines, keep_authorization=keep_authorization)
    return set(told[b"x-envoy-auth-headers-to-remove"].split(b","))


@pytest.mark.parametrize(
    "name",
    [
        *(b"x-sandbox-upstream", b"x-envoy-original-dst-host", b"x-sandbox-token", b"x-sandbox-id"),
        *(b"x-forwarded-client-cert", b"forwarded", b"x-real-ip", b"remote-user", b"x-secret"),
    ],
)
def test_what_must_never_cross_is_removed_whether_it_was_seen_or_not(name: bytes) -> None:
    assert name in removed()


@pytest.mark.parametrize(
    "name", [b"X-Auth-Request-User", b"X_Forwarded_For", b"X_Sandbox_Id", b"X-Corporate-Secret"]
)
def test_what_belongs_to_a_family_is_removed_when_it_was_seen(name: bytes) -> None:
    assert name.lower() in removed(name + b": 1")
    assert name.lower() not in removed()


@pytest.mark.parametrize(
    "name", [b"x-app", b"x-forwarded-for", b"x-forwarded-proto", b"host", b"cookie", b"upgrade"]
)
def test_what_is_the_apps_or_envoys_own_stays(name: bytes) -> None:
    assert name not in removed(
        b"X-App: 1", b"X-Forwarded-For: 192.0.2.1", b"X-Forwarded-Proto: https"
    )


def test_authorization_is_removed_only_when_it_was_the_routers() -> None:
    assert b"authorization" not in removed()
    assert b"authorization" in removed(keep_authorization=False)


@pytest.mark.parametrize(
    ("came", "left"),
    [
        (b"a=1; session=s; b=2", b"a=1; b=2"),
        (b"front-x=1; a=1", b"a=1"),
        # Two Cookie lines, as Envoy joins them.
        (b"a=1,session=s", b"a=1"),
        (b"a=1,session=s; b=2", b"a=1; b=2"),
        (b"a=1; session=x,y; b=2", b"a=1; b=2"),
    ],
)
def test_the_cookies_that_may_cross_come_in_place_of_all(came: bytes, left: bytes) -> None:
    assert answer(b"Cookie: " + came)[b"cookie"] == left


@pytest.mark.parametrize("came", [b"a=1; b=2", b"a=1,2; b=3"])
def test_cookies_that_may_all_cross_stay_as_they_are(came: bytes) -> None:
    assert b"cookie" not in answer(b"Cookie: " + came)
    assert b"cookie" not in removed(b"Cookie: " + came)


def test_a_cookie_header_of_which_nothing_is_left_is_removed() -> None:
    assert b"cookie" in removed(b"Cookie: session=s")
    assert b"cookie" in removed(b"Cookie: session=s,a=1")  # rather too much than a part of a secret
    assert b"cookie" not in answer(b"Cookie: session=s", stripped=None)


def test_the_credential_among_subprotocols_is_cut_out() -> None:
    offered = b"Sec-WebSocket-Protocol: "
    token = b"sandbox-router.bearer.abc"
    assert answer(offered + b"chat," + token)[b"sec-websocket-protocol"] == b"chat"
    assert b"sec-websocket-protocol" in removed(offered + token)
    assert b"sec-websocket-protocol" not in answer(offered + b"chat")


def test_a_probe_gets_what_would_let_no_request_pass() -> None:
    assert probe_answer(is_head=False, close=False).startswith(b"HTTP/1.1 204 ")
    assert b"Connection: close\r\n" in probe_answer(is_head=True, close=True)
