"""What Admission is told of a request's session: the credential, the path, and whose page it is."""

from __future__ import annotations

from typing import Any

import pytest

from router.auth.authenticator import Authenticated, Credentials
from router.auth.principal import Principal
from router.errors import CrossOrigin, Unauthenticated
from router.proxy.caller import Caller
from router.proxy.request import Request
from router.proxy.session_use import SessionUse
from router.proxy.wire.peer import ClientAddresses, Peer
from router.proxy.wire.request_head import parse_request
from router.proxy.wire.session_cookie import SessionRules
from router.routing.target import TargetParser
from tests.fakes.deciders import DecidesEachTime

ALICE = Principal(subject="alice", mode="session")
PARSER = TargetParser(
    base_domain="boxes.example",
    path_prefix="/s",
    default_port=8888,
    default_namespace="default",
    proxy_timeout_s=180.0,
)
USUAL = SessionRules()
COOKIE = "__Host-sandbox-router=v"


class Remembers(DecidesEachTime):
    """Keeps the credentials that it was asked about."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.asked = Credentials()
        self.refuses = refuses

    def authenticate(self, credentials: Credentials) -> Authenticated:
        self.asked = credentials
        if self.refuses:
            raise Unauthenticated
        return Authenticated(ALICE, consumed_authorization=False)


def request(target: str = "/", host: str = "8888-box.boxes.example", **headers: str) -> Request:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    block = "\r\n".join([f"GET {target} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode()
    caller = Caller(Peer("198.51.100.9", is_tls=True, trusted=()))
    return Request(parse_request(block), caller, ClientAddresses(()), 180.0)


def asked(
    about: Request, rules: SessionRules | None = USUAL, **how: Any
) -> tuple[bytes | None, bytes | None, bool]:
    """Returns the session and the link that the authenticator was shown, and whether a pod is needed."""
    authenticator = Remembers(**how)
    head = about.head
    target = PARSER.parse(head.asked, head.host, head.target)
    SessionUse(rules).authenticate(about, target, Credentials(), authenticator)
    shown = authenticator.asked
    return shown.session, shown.link, not about.needs_no_pod


def test_the_cookie_is_a_credential_of_its_own() -> None:
    assert asked(request(Cookie=f"a=b; {COOKIE}")) == (b"v", None, True)
    assert asked(request(Cookie="a=b")) == (None, None, True)
    assert asked(request()) == (None, None, True)


def test_two_cookies_of_the_name_are_no_session() -> None:
    assert asked(request(Cookie=f"{COOKIE}; {COOKIE}")) == (b"", None, True)


def test_where_there_are_no_sessions_nothing_is_read() -> None:
    own = request("/.sandbox-router/session?link=x", Cookie=COOKIE)
    assert asked(own, None) == (None, None, True)


def test_by_path_the_cookie_counts_only_where_that_was_said() -> None:
    cookie = "__Secure-sandbox-router=v"
    by_path = request("/s/default/box/8888/", "router.example", Cookie=cookie)
    assert asked(by_path) == (None, None, True)
    assert asked(by_path, SessionRules(path_mode=True)) == (b"v", None, True)


def test_by_header_there_is_no_session() -> None:
    named = request(host="router.example", X_Sandbox_ID="box", Cookie=COOKIE)
    assert asked(named, SessionRules(path_mode=True)) == (None, None, True)


def test_on_the_way_in_only_the_link_counts() -> None:
    own = "/.sandbox-router/session"
    assert asked(request(f"{own}?link=l", Cookie=COOKIE)) == (None, b"l", False)
    assert asked(request(own, Cookie=COOKIE)) == (None, b"", False)
    by_path = request(f"/s/default/box/8888{own}?link=l", "router.example")
    assert asked(by_path, SessionRules(path_mode=True)) == (None, b"l", False)


def test_on_the_way_out_the_session_counts_and_no_pod_is_needed() -> None:
    assert asked(request("/.sandbox-router/logout", Cookie=COOKIE)) == (b"v", None, False)


def test_a_session_that_is_refused_is_taken_away() -> None:
    with pytest.raises(Unauthenticated) as caught:
        asked(request(Cookie=COOKIE), refuses=True)
    assert caught.value.set_cookie.startswith(b"__Host-sandbox-router=; Path=/; Max-Age=0;")


def test_nothing_is_taken_away_from_who_has_none() -> None:
    for about in (
        request(),
        request(Cookie="a=b"),
        request("/.sandbox-router/session?link=l", Cookie=COOKIE),
    ):
        with pytest.raises(Unauthenticated) as caught:
            asked(about, refuses=True)
        assert caught.value.set_cookie == b""


def test_a_foreign_page_is_refused_and_the_log_says_why() -> None:
    use = SessionUse(SessionRules())
    use.refuse_foreign_pages(request(Sec_Fetch_Site="same-origin"), ALICE)
    with pytest.raises(CrossOrigin) as caught:
        use.refuse_foreign_pages(request(Sec_Fetch_Site="cross-site"), ALICE)
    assert caught.value.reason == "Sec-Fetch-Site is cross-site"


def test_a_session_over_tls_is_not_used_by_the_page_without() -> None:
    use = SessionUse(SessionRules())
    plain = {"Origin": "http://8888-box.boxes.example", "Connection": "upgrade", "Upgrade": "x"}
    about = request(Cookie=COOKIE, **plain)
    about.caller = Caller(Peer("198.51.100.9", is_tls=False, trusted=()))
    with pytest.raises(CrossOrigin):
        use.refuse_foreign_pages(about, ALICE)
