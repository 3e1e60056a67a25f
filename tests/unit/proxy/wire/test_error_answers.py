"""People get a page or the way to sign in, programs the JSON that they always got."""

from __future__ import annotations

import ipaddress
from urllib.parse import parse_qs, urlsplit

import pytest

from router.error_table import every_error
from router.errors import Forbidden, RouterError, SandboxNotReady, SandboxWaking, Unauthenticated
from router.proxy.wire.error_answers import answer_for, sign_in_url
from router.proxy.wire.local_responses import error_answer
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead, parse_request
from tests.unit.proxy.wire.test_forwarding import STRANGER

HOST = "8888-box.boxes.example"
TLS = Peer("198.51.100.9", is_tls=True, trusted=())
FRONT = Peer("10.0.0.1", is_tls=False, trusted=[ipaddress.ip_network("10.0.0.0/8")])
PERSON = {"Sec_Fetch_Mode": "navigate"}
LOGIN = "https://login.example/start"


def head(line: str = "GET / HTTP/1.1", host: str = HOST, **headers: str) -> RequestHead:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return parse_request("\r\n".join([line, f"Host: {host}", *lines, "", ""]).encode())


def answer(
    error: RouterError, asked: RequestHead, peer: Peer = TLS, login_url: str = ""
) -> tuple[int, dict[str, str], str]:
    raw = answer_for(error, asked, peer, close=False, login_url=login_url).decode()
    first, _, body = raw.partition("\r\n\r\n")
    status, *lines = first.split("\r\n")
    return int(status.split(" ")[1]), dict(line.split(": ", 1) for line in lines), body


@pytest.mark.parametrize("kind", list(every_error()), ids=lambda kind: kind.__name__)
def test_a_program_gets_what_it_always_got(kind: type[RouterError]) -> None:
    for asked in (
        head(),
        head(Accept="*/*"),
        head(Accept="application/json", Sec_Fetch_Mode="cors"),
        head("POST / HTTP/1.1", Content_Length="0"),
        head(Accept="text/html", Sec_Fetch_Mode="no-cors"),
        head(Accept="text/html", Connection="Upgrade", Upgrade="websocket"),
    ):
        for close in (True, False):
            assert answer_for(kind(), asked, TLS, close=close, login_url=LOGIN) == error_answer(
                kind(), is_head=False, close=close
            )


@pytest.mark.parametrize("kind", list(every_error()), ids=lambda kind: kind.__name__)
def test_a_person_gets_a_page_with_the_same_head(kind: type[RouterError]) -> None:
    status, headers, body = answer(kind(), head(**PERSON))
    assert status == kind.status
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Sandbox-Router-Error"] == kind.code
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert int(headers["Content-Length"]) == len(body.encode())
    assert ("Retry-After" in headers) == (kind.retry_after_s is not None)
    assert kind.code in body


def test_a_form_that_was_sent_gets_a_page_too() -> None:
    assert "<html" in answer(Forbidden(), head("POST / HTTP/1.1", **PERSON))[2]
    assert "<html" in answer(Forbidden(), head("POST / HTTP/1.1", Accept="text/html"))[2]


def test_an_answer_to_head_has_the_length_and_no_body() -> None:
    whole = answer_for(Forbidden(), head(**PERSON), TLS, close=False)
    asked = head("HEAD / HTTP/1.1", **PERSON)
    assert whole.startswith(answer_for(Forbidden(), asked, TLS, close=False))


def test_who_looks_at_a_sandbox_that_wakes_sees_that_page() -> None:
    error = SandboxWaking()
    error.page_about = "team-a/box"
    assert "Your visit is starting it again" in answer(error, head(**PERSON))[2]


# --- signing in -----------------------------------------------------------------------------


def back_to(location: str) -> str:
    [there] = parse_qs(urlsplit(location).query)["rd"]
    return there


def test_a_person_without_a_credential_is_sent_to_sign_in() -> None:
    asked = head("GET /lab?a=b&c=%20d HTTP/1.1", **PERSON)
    status, headers, body = answer(Unauthenticated(), asked, login_url=LOGIN)
    assert (status, body) == (303, "")
    assert headers["Location"].startswith("https://login.example/start?rd=https%3A%2F%2F8888-box")
    assert back_to(headers["Location"]) == f"https://{HOST}/lab?a=b&c=%20d"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Sandbox-Router-Error"] == "unauthenticated"
    assert "WWW-Authenticate" not in headers


@pytest.mark.parametrize(
    "asked",
    [
        head(),
        head(Sec_Fetch_Mode="cors"),
        head("OPTIONS / HTTP/1.1", Origin="https://a.example", Access_Control_Request_Method="PUT"),
        head("OPTIONS / HTTP/1.1", Accept="text/html", Access_Control_Request_Method="PUT"),
        head("POST / HTTP/1.1", **PERSON),
        head("HEAD / HTTP/1.1", **PERSON),
        head(Connection="Upgrade", Upgrade="websocket", Accept="text/html"),
    ],
)
def test_nobody_else_is_sent_anywhere(asked: RequestHead) -> None:
    status, headers, _ = answer(Unauthenticated(), asked, login_url=LOGIN)
    assert status == 401
    assert "Location" not in headers


def test_only_who_is_not_known_is_sent_to_sign_in() -> None:
    for error in (Forbidden(), SandboxNotReady()):
        assert answer(error, head(**PERSON), login_url=LOGIN)[0] == error.status


def test_a_session_that_is_over_is_taken_away_on_the_way() -> None:
    error = Unauthenticated()
    error.set_cookie = b"__Host-sandbox-router=; Max-Age=0"
    status, headers, _ = answer(error, head(**PERSON), login_url=LOGIN)
    assert (status, headers["Set-Cookie"]) == (303, "__Host-sandbox-router=; Max-Age=0")


def test_a_link_that_is_over_leads_to_no_circle() -> None:
    asked = head("GET /.sandbox-router/session?link=x HTTP/1.1", **PERSON)
    status, headers, body = answer(Unauthenticated(), asked, login_url=LOGIN)
    assert status == 401
    assert "Location" not in headers
    assert f'href="{sign_in_url(LOGIN, f"https://{HOST}/".encode()).decode()}"' in body


@pytest.mark.parametrize(
    ("asked", "peer", "expected"),
    [
        (head(), TLS, f"https://{HOST}/"),
        (head(), STRANGER, f"https://{HOST}/"),
        (head(host="8888-box.localhost:8080"), STRANGER, "http://8888-box.localhost:8080/"),
        (head(X_Forwarded_Proto="http"), FRONT, f"http://{HOST}/"),
        (head(host="router", X_Forwarded_Host=HOST), FRONT, f"https://{HOST}/"),
        (head(host="router", X_Forwarded_Host=HOST), STRANGER, "https://router/"),
        (head("GET //evil.example/ HTTP/1.1"), TLS, f"https://{HOST}//evil.example/"),
        (
            head("GET /s/a/b/80/x HTTP/1.1", X_Forwarded_Prefix="/p"),
            FRONT,
            f"https://{HOST}/p/s/a/b/80/x",
        ),
    ],
)
def test_people_come_back_to_where_they_were(asked: RequestHead, peer: Peer, expected: str) -> None:
    asked.block = asked.block.replace(b"\r\n\r\n", b"\r\nSec-Fetch-Mode: navigate\r\n\r\n")
    person = parse_request(asked.block)
    _, headers, _ = answer(Unauthenticated(), person, peer, login_url=LOGIN)
    assert back_to(headers["Location"]) == expected


def test_a_login_url_with_a_query_keeps_it() -> None:
    assert sign_in_url("https://l.example/?a=b", b"x&y") == b"https://l.example/?a=b&rd=x%26y"


def test_a_line_that_looks_like_the_router_s_own_path_names_no_place() -> None:
    for target in ("//evil.example/.sandbox-router/session", "/?x=/.sandbox-router/session"):
        body = answer(Unauthenticated(), head(f"GET {target} HTTP/1.1", **PERSON))[2]
        assert "evil.example" not in body
