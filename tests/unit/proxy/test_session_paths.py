"""Where sessions begin and end: who gets one, where it leads, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from router.auth.authenticator import Authenticated
from router.auth.authorizer import Permit
from router.auth.principal import Principal
from router.auth.session_desk import BegunSession
from router.errors import BadRequest, CrossOrigin, MethodNotAllowed, RouterError
from router.proxy.caller import Caller
from router.proxy.request import Request
from router.proxy.session_paths import AnsweredHere, SessionPaths
from router.proxy.wire.peer import ClientAddresses, Peer
from router.proxy.wire.request_head import parse_request
from router.proxy.wire.router_paths import own_path
from router.proxy.wire.session_cookie import SessionRules
from router.routing.endpoint import Endpoint, SandboxRef, State
from router.routing.target import TargetParser

ALICE = Principal(subject="alice", mode="link")
MALLORY = Principal(subject="mallory", mode="link")
SESSION = Principal(subject="alice", mode="session", token_id="sid-1")
BOX = Endpoint(SandboxRef("default", "box"), "pod-1", State.READY)
HOST = "8888-box.boxes.example"
PARSER = TargetParser(
    base_domain="boxes.example",
    path_prefix="/s",
    default_port=8888,
    default_namespace="default",
    proxy_timeout_s=180.0,
)
IN, OUT = "/.sandbox-router/session?link=the-link", "/.sandbox-router/logout"


class Desk:
    """Knows the cookie `alices`, and keeps what it did."""

    def __init__(self) -> None:
        self.begun: list[tuple[Principal, bytes, Endpoint]] = []
        self.ended: list[Principal] = []

    def begin(self, caller: Principal, link: bytes, endpoint: Endpoint) -> BegunSession:
        self.begun.append((caller, link, endpoint))
        return BegunSession("new", 60, "/lab?a=b")

    def link(self, *about: Any, **how: Any) -> str:
        raise AssertionError("nobody asked for one")

    def whose(self, cookie: bytes) -> Principal | None:
        return SESSION if cookie == b"alices" else None

    def end(self, session: Principal) -> None:
        self.ended.append(session)


class Place:
    def __init__(self, **rules: Any) -> None:
        self.desk = Desk()
        self.paths = SessionPaths(desk=self.desk, rules=SessionRules(**rules))

    def answering(
        self,
        target: str,
        method: str = "GET",
        caller: Principal = ALICE,
        host: str = HOST,
        *,
        is_tls: bool = True,
        **headers: str,
    ) -> AnsweredHere | None:
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        block = "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *lines, "", ""])
        peer = Peer("198.51.100.9", is_tls=is_tls, trusted=())
        request = Request(parse_request(block.encode()), Caller(peer), ClientAddresses(()), 1.0)
        head = request.head
        request.target = PARSER.parse(head.asked, head.host, head.target)
        request.permit = Permit(caller, BOX, 8888)
        request.authenticated = Authenticated(caller, consumed_authorization=False)
        path = own_path(head.target, request.target.path_root)
        if path in (b"session", b"logout"):
            self.paths.check(path, request)
        return self.paths.answering(request)

    def answer(self, target: str = IN, method: str = "GET", *args: Any, **how: Any) -> bytes:
        answered = self.answering(target, method, *args, **how)
        assert answered is not None
        return answered._answer(is_head=method == "HEAD", close=False)


def test_a_session_begins() -> None:
    place = Place()
    assert place.answer() == (
        b"HTTP/1.1 303 See Other\r\n"
        b"Location: /lab?a=b\r\n"
        b"Set-Cookie: __Host-sandbox-router=new; Path=/; Max-Age=60; HttpOnly; Secure; SameSite=Lax\r\n"
        b"Cache-Control: no-store\r\n"
        b"Referrer-Policy: no-referrer\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    assert place.desk.begun == [(ALICE, b"the-link", BOX)]


def test_by_path_it_leads_below_the_sandbox_s_root() -> None:
    answer = Place(path_mode=True).answer(f"/s/default/box/8888{IN}", host="router.example")
    assert b"\r\nLocation: /s/default/box/8888/lab?a=b\r\n" in answer
    assert b"\r\nSet-Cookie: __Secure-sandbox-router=new; Path=/s/default/box/8888; " in answer


@pytest.mark.parametrize("target", ["/.sandbox-router/awake", "/.sandbox-router/", "/lab"])
def test_another_path_is_somebody_else_s(target: str) -> None:
    assert Place().answering(target) is None


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS"])
def test_a_session_begins_by_get(method: str) -> None:
    with pytest.raises(MethodNotAllowed) as caught:
        Place().answer(method=method)
    assert caught.value.allow == "GET"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_a_session_ends_by_post(method: str) -> None:
    with pytest.raises(MethodNotAllowed) as caught:
        Place().answer(OUT, method, SESSION)
    assert caught.value.allow == "POST"


@pytest.mark.parametrize(
    ("how", "refusal"),
    [
        ({"target": f"/s/default/box/8888{IN}", "host": "router.example"}, BadRequest),
        ({"host": "router.example", "X_Sandbox_ID": "box"}, BadRequest),
        ({"Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"}, CrossOrigin),
        ({"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}, CrossOrigin),
    ],
)
def test_no_session_begins(how: dict[str, Any], refusal: type[RouterError]) -> None:
    place = Place()
    with pytest.raises(refusal):
        place.answer(**how)
    assert place.desk.begun == []


def test_where_browsers_keep_no_cookie_that_is_said() -> None:
    place = Place()
    from ipaddress import ip_network

    peer = Peer("10.0.0.1", is_tls=False, trusted=[ip_network("10.0.0.0/8")])
    block = f"GET {IN} HTTP/1.1\r\nHost: {HOST}\r\nX-Forwarded-Proto: http\r\n\r\n".encode()
    request = Request(parse_request(block), Caller(peer), ClientAddresses(()), 1.0)
    request.target = PARSER.parse(request.head.asked, request.head.host, request.head.target)
    with pytest.raises(BadRequest, match="needs https"):
        place.paths.check(b"session", request)


# --- somebody else's session ----------------------------------------------------------------

ALICES = {"Cookie": "__Host-sandbox-router=alices"}


def test_a_page_of_another_origin_replaces_nobody_s_session() -> None:
    place = Place()
    for site in ("cross-site", "same-site"):
        with pytest.raises(CrossOrigin, match="somebody else"):
            place.answer(caller=MALLORY, Sec_Fetch_Site=site, **OPENED, **ALICES)
    assert place.desk.begun == []


OPENED = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}


@pytest.mark.parametrize(
    ("caller", "more"),
    [
        (ALICE, {"Sec_Fetch_Site": "cross-site", **ALICES}),
        (MALLORY, {"Sec_Fetch_Site": "none", **ALICES}),
        (MALLORY, {"Sec_Fetch_Site": "same-origin", **ALICES}),
        (MALLORY, {"Sec_Fetch_Site": "cross-site", "Cookie": "__Host-sandbox-router=over"}),
        (MALLORY, {"Sec_Fetch_Site": "cross-site"}),
    ],
)
def test_a_session_is_replaced_by_the_same_person_s_or_by_the_user(
    caller: Principal, more: dict[str, str]
) -> None:
    assert Place().answer(caller=caller, **OPENED, **more).startswith(b"HTTP/1.1 303")


# --- the end --------------------------------------------------------------------------------


def test_a_session_ends() -> None:
    place = Place()
    answer = place.answer(OUT, "POST", SESSION)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert (
        b"\r\nSet-Cookie: __Host-sandbox-router=; Path=/; Max-Age=0; HttpOnly; Secure; " in answer
    )
    assert b'\r\nClear-Site-Data: "cache"\r\n' in answer
    assert b"\r\nCache-Control: no-store\r\n" in answer
    assert place.desk.ended == [SESSION]


def test_who_has_no_session_ends_none() -> None:
    place = Place()
    bearer = Principal(subject="alice", mode="jwt", token_id="t1")
    assert b"Max-Age=0" in place.answer(OUT, "POST", bearer)
    assert place.desk.ended == []


def test_its_repr_has_no_secret() -> None:
    assert repr(Place().paths).startswith("<SessionPaths SessionRules(")


def test_what_is_refused_in_any_case_is_refused_before_there_is_a_permit() -> None:
    place = Place()
    peer = Peer("198.51.100.9", is_tls=True, trusted=())
    for method, refused in (("GET", False), ("POST", True)):
        block = f"{method} {IN} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
        request = Request(parse_request(block), Caller(peer), ClientAddresses(()), 1.0)
        request.target = PARSER.parse(request.head.asked, request.head.host, request.head.target)
        request.authenticated = Authenticated(ALICE, consumed_authorization=False)
        if refused:
            with pytest.raises(MethodNotAllowed):
                place.paths.check(b"session", request)
        else:
            place.paths.check(b"session", request)
    assert place.desk.begun == []
