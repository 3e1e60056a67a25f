"""The session cookie: its form for each way of naming a sandbox, how it is found, and what no sandbox may set."""

from __future__ import annotations

import ipaddress

import pytest

from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead, parse_request
from router.proxy.wire.session_cookie import (
    SECURE_MARK,
    SessionCookie,
    SessionRules,
    is_loopback,
    session_cookie,
    sets_reserved,
)
from router.routing.endpoint import SandboxRef
from router.routing.target import NamedBy, Target

STRANGER = Peer("198.51.100.9", is_tls=False, trusted=())
OVER_TLS = Peer("198.51.100.9", is_tls=True, trusted=())
FRONT = Peer("10.0.0.1", is_tls=False, trusted=[ipaddress.ip_network("10.0.0.0/8")])
HOST = SessionCookie(b"__Host-sandbox-router", b"/", iframe=False)


def head(host: str = "8888-box.boxes.example", **headers: str) -> RequestHead:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return parse_request("\r\n".join(["GET / HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode())


def target(named_by: NamedBy, root: bytes = b"") -> Target:
    return Target(
        ref=SandboxRef("default", "box"),
        port=8888,
        uid="",
        timeout_s=None,
        pod_ip=None,
        named_by=named_by,
        path_root=root,
    )


BY_HOST, BY_HEADER = target(NamedBy.HOST), target(NamedBy.HEADER)
BY_PATH = target(NamedBy.PATH, b"/s/default/box/8888")


def form(
    about: Target, asked: RequestHead, peer: Peer = OVER_TLS, **rules: bool
) -> tuple[bytes, bytes] | None:
    cookie = session_cookie(about, asked, peer, SessionRules(**rules))
    return None if cookie is None else (cookie.name, cookie.path)


def test_a_host_has_a_cookie_that_no_other_host_can_set() -> None:
    assert form(BY_HOST, head()) == (b"__Host-sandbox-router", b"/")


def test_a_path_has_one_only_where_that_was_said() -> None:
    assert form(BY_PATH, head()) is None
    assert form(BY_PATH, head(), path_mode=True) == (
        b"__Secure-sandbox-router",
        b"/s/default/box/8888",
    )


def test_a_path_behind_a_front_s_prefix_is_the_browser_s() -> None:
    asked = head(X_Forwarded_Prefix="/tools", X_Forwarded_Proto="https")
    assert form(BY_PATH, asked, FRONT, path_mode=True) == (
        b"__Secure-sandbox-router",
        b"/tools/s/default/box/8888",
    )


def test_by_header_there_is_none() -> None:
    assert form(BY_HEADER, head(), path_mode=True) is None


@pytest.mark.parametrize(
    ("host", "peer", "proto", "name"),
    [
        ("8888-box.localhost:8080", STRANGER, None, b"sandbox-router"),
        ("127.0.0.1:8080", STRANGER, None, b"sandbox-router"),
        ("[::1]:8080", STRANGER, None, b"sandbox-router"),
        ("8888-box.localhost", OVER_TLS, None, b"__Host-sandbox-router"),
        ("8888-box.localhost", FRONT, "https", b"__Host-sandbox-router"),
        ("8888-box.localhost", FRONT, "http", b"sandbox-router"),
        ("8888-box.boxes.example", STRANGER, None, b"__Host-sandbox-router"),
        ("8888-box.boxes.example", FRONT, "http", b"__Host-sandbox-router"),
        ("localhost.evil.example", STRANGER, None, b"__Host-sandbox-router"),
        ("notlocalhost", STRANGER, None, b"__Host-sandbox-router"),
        ("10.0.0.5", STRANGER, None, b"__Host-sandbox-router"),
        ("1271.example", STRANGER, None, b"__Host-sandbox-router"),
    ],
)
def test_without_tls_only_loopback_has_a_plain_one(
    host: str, peer: Peer, proto: str | None, name: bytes
) -> None:
    asked = head(host) if proto is None else head(host, X_Forwarded_Proto=proto)
    assert form(BY_HOST, asked, peer) == (name, b"/")


def test_what_a_trusted_front_says_of_the_host_counts() -> None:
    asked = head("router.internal", X_Forwarded_Host="8888-box.localhost")
    assert form(BY_HOST, asked, FRONT) == (b"sandbox-router", b"/")
    assert form(BY_HOST, asked, STRANGER) == (b"__Host-sandbox-router", b"/")


def test_its_attributes_keep_it_from_scripts_and_other_sites() -> None:
    assert HOST.setting(b"v", max_age_s=60) == (
        b"__Host-sandbox-router=v; Path=/; Max-Age=60; HttpOnly; Secure; SameSite=Lax"
    )
    framed = SessionCookie(b"__Host-sandbox-router", b"/", iframe=True)
    assert framed.setting(b"v", max_age_s=60).endswith(b"; Secure; SameSite=None; Partitioned")
    tried = SessionCookie(b"sandbox-router", b"/", iframe=True)
    assert tried.setting(b"", max_age_s=0) == (
        b"sandbox-router=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"
    )


@pytest.mark.parametrize(
    ("cookies", "value"),
    [
        (b"__Host-sandbox-router=v", b"v"),
        (b"a=b; __Host-sandbox-router=v; c=d", b"v"),
        (b"a=b;__Host-sandbox-router=v", b"v"),
        (b"a=__Host-sandbox-router=v", None),
        (b"x__Host-sandbox-router=v", None),
        (b"__host-sandbox-router=v", None),
        (b"sandbox-router=v", None),
        (b"__Secure-sandbox-router=v", None),
        (b"__Host-sandbox-router", None),
        (b"__Host-sandbox-router=", b""),
        (b"__Host-sandbox-router=v; __Host-sandbox-router=w", b""),
        (b"", None),
    ],
)
def test_its_value_is_found_by_its_very_name_and_once(cookies: bytes, value: bytes | None) -> None:
    assert HOST.value_in(cookies) == value


@pytest.mark.parametrize("name", [b"__Host-sandbox-router", b"__Secure-sandbox-router"])
def test_the_mark_tells_the_forms_that_need_tls(name: bytes) -> None:
    assert SECURE_MARK in name + b"=v"
    assert SECURE_MARK not in b"a=b; sandbox-router=v"


@pytest.mark.parametrize(
    "value",
    [
        b"__Host-sandbox-router=v",
        b"__Secure-sandbox-router=v; Path=/s",
        b"sandbox-router=v; Domain=boxes.example",
        b"SANDBOX-ROUTER=v",
        b" __HOST-Sandbox-Router = v",
        b"=__Host-sandbox-router=v",
        b"= =sandbox-router=v",
        b"__Host-sandbox-router",
        b"\tsandbox-router\t=v",
    ],
)
def test_a_sandbox_sets_none_of_the_names(value: bytes) -> None:
    assert sets_reserved(value)


@pytest.mark.parametrize(
    "value", [b"a=b", b"a=sandbox-router=v", b"my-sandbox-router=v", b"", b"sandbox-router2=v"]
)
def test_other_cookies_are_the_app_s_own(value: bytes) -> None:
    assert not sets_reserved(value)


@pytest.mark.parametrize("host", [b"localhost", b"a.b.localhost:1", b"127.9.9.9", b"[::1]:80"])
def test_loopback_is_told(host: bytes) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", [b"", b"localhost.example", b"8.8.8.8", b"[::2]", b"1-a.example"])
def test_other_hosts_are_not_loopback(host: bytes) -> None:
    assert not is_loopback(host)
