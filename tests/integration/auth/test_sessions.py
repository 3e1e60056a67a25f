"""A person clicks a link, works in a sandbox's page, and signs out: what each kind of token is good for, and what foreign pages get."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from router.admin.explain import Question
from tests.fakes.links import SESSION_SECRET, bearer, link, session
from tests.integration.auth.browser import (
    BOX,
    DOMAIN,
    LINKED,
    ON_ITS_PAGE,
    TYPED,
    Browser,
    browsing,
)
from tests.integration.auth.door import read_answer

OTHER_PORT = f"80-box-a--team-a.{DOMAIN}"
SIBLING = f"8888-box-b--team-b.{DOMAIN}"


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    async with browsing(tmp_path) as browser:
        yield browser


# --- the way of a link ----------------------------------------------------------------------


async def test_a_link_begins_a_session_and_leads_to_its_path(browser: Browser) -> None:
    begun = await browser.begin(link(path="/lab?reset"))
    assert begun.status == 303
    assert begun.headers["location"] == "/lab?reset"
    assert begun.headers["cache-control"] == "no-store"
    assert begun.headers["referrer-policy"] == "no-referrer"
    attributes = begun.headers["set-cookie"].split("; ")
    assert attributes[1:] == ["Path=/", "Max-Age=28800", "HttpOnly", "SameSite=Lax"]
    assert browser.door.reached() == 0

    assert (await browser.ask("/lab", **TYPED)).status == 200


async def test_the_sandbox_never_sees_the_session(browser: Browser) -> None:
    await browser.begin(link())
    browser.jar[BOX] = {"theme": "dark", **browser.jar[BOX], "_xsrf": "1"}
    await browser.ask(**TYPED)
    (head,) = browser.door.sandbox.heads
    assert b"\r\nCookie: theme=dark; _xsrf=1\r\n" in head
    assert b"sandbox-router=" not in head


async def test_a_session_alone_in_its_header_leaves_no_header(browser: Browser) -> None:
    await browser.begin(link())
    await browser.ask(**TYPED)
    assert b"ookie:" not in browser.door.sandbox.heads[0]


async def test_without_a_session_nothing_is_answered(browser: Browser) -> None:
    assert (await browser.ask(**TYPED)).code == "unauthenticated"
    assert browser.door.reached() == 0


async def test_a_link_can_be_used_again_until_it_expires(browser: Browser) -> None:
    again = link()
    assert (await browser.begin(again)).status == 303
    assert (await browser.begin(again)).status == 303
    assert (await browser.begin(link(exp=int(time.time()) - 60))).code == "unauthenticated"


async def test_the_session_of_one_sandbox_opens_no_other(browser: Browser) -> None:
    await browser.begin(link())
    browser.jar[SIBLING] = browser.jar[OTHER_PORT] = browser.jar[BOX]
    assert (await browser.ask(host=SIBLING, **TYPED)).code == "forbidden"
    assert (await browser.ask(host=OTHER_PORT, **TYPED)).code == "forbidden"
    assert browser.door.reached() == 0


@pytest.mark.parametrize(
    "claims",
    [
        {"port": 80},
        {"name": "box-b"},
        {"namespace": "team-b"},
        {"name": "*"},
        {"port": None},
        {"jti": None},
        {"iat": None},
        {"exp": int(time.time()) + 700},
        {"iat": int(time.time()) - 3600, "exp": int(time.time()) + 60},
        {"uid": "another-uid"},
        {"path": "//evil.example"},
        {"session_ttl": -1},
    ],
    ids=str,
)
async def test_a_link_that_is_not_for_this_page_begins_nothing(
    browser: Browser, claims: dict[str, object]
) -> None:
    answer = await browser.begin(link(**claims))
    assert answer.status in (401, 403)
    assert "set-cookie" not in answer.headers


async def test_a_link_that_was_tampered_with_begins_nothing(browser: Browser) -> None:
    header, claims, signature = link().split(".")
    forged = link(b"x" * 40).split(".")[1]
    for tampered in (f"{header}.{forged}.{signature}", f"{header}.{claims}.", "nonsense", ""):
        assert (await browser.begin(tampered)).code == "unauthenticated"
    twice = f"{link()}&link={link()}"
    assert (await browser.begin(twice)).code == "unauthenticated"


async def test_each_kind_of_token_is_good_for_nothing_else(browser: Browser) -> None:
    for wrong in (bearer(), bearer(SESSION_SECRET), session(), link(typ="JWT"), link(typ=None)):
        assert (await browser.begin(wrong)).code == "unauthenticated"
    for wrong in (bearer(), bearer(SESSION_SECRET), link(), link(SESSION_SECRET)):
        answer = await browser.ask(Cookie=f"sandbox-router={wrong}", **TYPED)
        assert answer.code == "unauthenticated"
    for wrong in (link(), link(SESSION_SECRET), session()):
        assert (await browser.ask(Authorization=f"Bearer {wrong}")).code == "unauthenticated"
        assert (await browser.ask(X_Sandbox_Token=wrong)).code == "unauthenticated"
    assert browser.door.reached() == 0
    assert (await browser.ask(Authorization=f"Bearer {bearer()}")).status == 200


async def test_the_platform_cannot_make_sessions(browser: Browser) -> None:
    from tests.fakes.links import PLATFORM_SECRET

    forged = session(PLATFORM_SECRET)
    assert (await browser.ask(Cookie=f"sandbox-router={forged}")).code == "unauthenticated"


async def test_a_session_is_as_long_as_its_link_wants_and_no_longer_than_the_setting(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path, session_ttl="1h") as browser:
        for wanted, got in ((None, 3600), (600, 600), (86400, 3600)):
            begun = await browser.begin(link(session_ttl=wanted))
            assert f"Max-Age={got};" in begun.headers["set-cookie"]


async def test_a_session_that_is_refused_is_taken_away(browser: Browser) -> None:
    browser.jar[BOX] = {"sandbox-router": "nonsense"}
    answer = await browser.ask(**TYPED)
    assert answer.code == "unauthenticated"
    assert browser.jar[BOX] == {}


async def test_a_bearer_token_beats_the_session(browser: Browser) -> None:
    await browser.begin(link())
    refused = await browser.ask(Authorization="Bearer nonsense", **TYPED)
    assert refused.code == "unauthenticated"
    allowed = await browser.ask(method="DELETE", Authorization=f"Bearer {bearer()}")
    assert allowed.status == 200, "and needs no Origin"


async def test_a_link_begins_no_session_at_another_sandbox_s_public_port(tmp_path: Path) -> None:
    async with browsing(tmp_path, public_ports="true") as browser:
        host = f"80-box-p--team-a.{DOMAIN}"
        answer = await browser.begin(link(), host=host)
        assert answer.code == "forbidden"
        assert "set-cookie" not in answer.headers
        assert (await browser.begin(link(name="box-p", port=80), host=host)).status == 303


async def test_a_session_in_a_second_cookie_line_counts_and_is_taken_out_too(
    browser: Browser,
) -> None:
    await browser.begin(link())
    (value,) = browser.jar[BOX].values()
    reader, writer = await browser.door.connect()
    head = browser.lines("/", "GET", BOX, {**TYPED, "Cookie": "a=1"})
    writer.write(head[:-2] + f"Cookie: b=2; sandbox-router={value}\r\n\r\n".encode())
    assert (await read_answer(reader)).status == 200
    (seen,) = browser.door.sandbox.heads
    assert b"\r\nCookie: a=1\r\n" in seen
    assert b"\r\nCookie: b=2\r\n" in seen
    assert value.encode() not in seen


# --- foreign pages --------------------------------------------------------------------------


@pytest.mark.parametrize("host", [BOX])
async def test_the_sandbox_s_own_page_may_change_things(browser: Browser, host: str) -> None:
    await browser.begin(link())
    own = browser.origin(host)
    assert (await browser.ask("/api", "POST", Origin=own, **ON_ITS_PAGE)).status == 200


async def test_a_foreign_page_may_change_nothing(browser: Browser) -> None:
    await browser.begin(link())
    for origin in ("https://evil.example", browser.origin(SIBLING), "null"):
        for method in ("POST", "PUT", "DELETE", "PATCH", "PROPFIND"):
            answer = await browser.ask("/api", method, Origin=origin)
            assert (answer.status, answer.code) == (403, "cross_origin")
    assert (await browser.ask("/api", "POST")).code == "cross_origin", "without Origin"
    assert browser.door.reached() == 0


async def test_a_foreign_page_opens_no_websocket(browser: Browser) -> None:
    await browser.begin(link())
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
    for origin in (browser.origin(SIBLING), "https://evil.example", "null"):
        answer = await browser.ask("/terminal", Origin=origin, **upgrade)
        assert answer.code == "cross_origin"
    assert (await browser.ask("/terminal", **upgrade)).code == "cross_origin"
    assert browser.door.reached() == 0
    own = await browser.ask("/terminal", Origin=browser.origin(), **upgrade)
    assert own.status == 101


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_foreign_page_loads_nothing_and_may_link(browser: Browser, site: str) -> None:
    await browser.begin(link())
    for mode, dest in (
        ("no-cors", "image"),
        ("no-cors", "script"),
        ("cors", "empty"),
        ("navigate", "iframe"),
        ("navigate", "embed"),
    ):
        answer = await browser.ask(
            Sec_Fetch_Site=site, Sec_Fetch_Mode=mode, Sec_Fetch_Dest=dest, Accept="*/*"
        )
        assert answer.code == "cross_origin"
    assert browser.door.reached() == 0
    assert (await browser.ask(**{**LINKED, "Sec-Fetch-Site": site})).status == 200


async def test_on_a_connection_that_was_believed_each_request_is_asked_where_it_is_from(
    browser: Browser,
) -> None:
    await browser.begin(link())
    reader, writer = await browser.door.connect()
    foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    codes = []
    for headers in (TYPED, TYPED, foreign, ON_ITS_PAGE):
        writer.write(browser.lines("/", "GET", BOX, headers))
        codes.append((await read_answer(reader)).code)
    assert codes == ["", "", "cross_origin", ""]


async def test_other_origins_can_be_let_in(tmp_path: Path) -> None:
    async with browsing(tmp_path, session_origins="https://console.example.com") as browser:
        await browser.begin(link())
        origin = "https://console.example.com"
        assert (await browser.ask("/api", "POST", Origin=origin)).status == 200
        evil = await browser.ask("/api", "POST", Origin="https://console.example.com.evil.example")
        assert evil.code == "cross_origin"


# --- beginning a session for somebody else --------------------------------------------------


async def test_no_page_begins_a_session_behind_its_user_s_back(browser: Browser) -> None:
    for mode, dest in (("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe")):
        named = {"Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        answer = await browser.begin(link(), **named)
        assert answer.code == "cross_origin"
        assert "set-cookie" not in answer.headers


async def test_a_page_of_another_origin_makes_nobody_somebody_else(browser: Browser) -> None:
    await browser.begin(link())
    mallory = link(sub="mallory")
    refused = await browser.begin(mallory, **{"Sec-Fetch-Site": "cross-site"})
    assert refused.code == "cross_origin"
    again = await browser.begin(link(), **{"Sec-Fetch-Site": "cross-site"})
    assert again.status == 303, "a new link of the same person"
    assert (await browser.begin(mallory)).status == 303, "typed by the user"


@pytest.mark.parametrize("name", ["sandbox-router", "__Host-sandbox-router", "Sandbox-Router"])
async def test_a_sandbox_can_set_no_cookie_of_the_router_s(tmp_path: Path, name: str) -> None:
    async with browsing(tmp_path) as browser:
        await browser.begin(link())
        cookies = f"Set-Cookie: {name}=evil; Path=/\r\nSet-Cookie: ={name}=evil\r\n"
        browser.door.sandbox.answer = (
            f"HTTP/1.1 200 OK\r\n{cookies}Set-Cookie: own=1\r\nContent-Length: 0\r\n\r\n".encode()
        )
        answer = await browser.ask(**TYPED)
    assert answer.headers["set-cookie"] == "own=1"


# --- what people see, and what caches keep --------------------------------------------------


async def test_what_a_session_got_is_for_its_browser_alone(browser: Browser) -> None:
    await browser.begin(link())
    assert (await browser.ask(**TYPED)).headers["cache-control"] == "private"
    by_token = await browser.ask(Authorization=f"Bearer {bearer()}")
    assert "cache-control" not in by_token.headers


async def test_a_person_without_a_session_reads_what_is_needed(browser: Browser) -> None:
    answer = await browser.ask(**TYPED)
    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert b"This sandbox needs a link" in answer.body
    assert "basic" not in answer.headers["www-authenticate"].lower(), "no dialog hides the page"
    over = await browser.begin("nonsense")
    assert b"This link does not work any more" in over.body
    program = await browser.ask()
    assert program.detail == "Credentials are required."


async def test_a_person_without_a_session_is_sent_to_sign_in(tmp_path: Path) -> None:
    async with browsing(tmp_path, login_url="https://login.example/start") as browser:
        answer = await browser.ask("/lab", **TYPED)
        assert answer.status == 303
        back = f"http%3A%2F%2F{BOX}%3A{browser.port}%2Flab"
        assert answer.headers["location"] == f"https://login.example/start?rd={back}"
        assert (await browser.ask("/lab")).status == 401
        preflight = await browser.ask(
            "/api", "OPTIONS", Origin="https://a.example", Access_Control_Request_Method="PUT"
        )
        assert preflight.status == 401


async def test_who_is_somebody_else_can_sign_out_on_the_page_that_says_so(browser: Browser) -> None:
    await browser.begin(link())
    refused = await browser.begin(link(sub="mallory"), **{"Sec-Fetch-Site": "cross-site"})
    assert b'<form method="post" action="/.sandbox-router/logout">' in refused.body
    out = await browser.ask(
        "/.sandbox-router/logout",
        "POST",
        Origin=browser.origin(),
        **{**TYPED, "Sec-Fetch-Site": "same-origin"},
    )
    assert b"You have signed out" in out.body
    assert (
        await browser.begin(link(sub="mallory"), **{"Sec-Fetch-Site": "cross-site"})
    ).status == 303


async def test_a_session_is_explained_and_never_repeated(browser: Browser) -> None:
    await browser.begin(link())
    (value,) = browser.jar[BOX].values()
    named = ((b"Host", BOX.encode()), (b"Cookie", b"sandbox-router=" + value.encode()))
    own = await browser.door.worker.explain(Question((*named, (b"Sec-Fetch-Site", b"none"))))
    assert own["principal"]["mode"] == "session"
    assert own["principal"]["offered"] == ["session"]
    assert own["decision"]["decision"] == "allowed"
    assert own["outcome"]["code"] == ""
    foreign = await browser.door.worker.explain(
        Question((*named, (b"Sec-Fetch-Site", b"cross-site")))
    )
    assert foreign["outcome"]["code"] == "cross_origin"
    assert foreign["outcome"]["reason"] == "Sec-Fetch-Site is cross-site"
    assert value not in str(own) + str(foreign)


# --- the end --------------------------------------------------------------------------------


async def test_who_signs_out_has_no_session_any_more(browser: Browser) -> None:
    await browser.begin(link())
    kept = dict(browser.jar[BOX])
    out = await browser.ask(
        "/.sandbox-router/logout", "POST", Origin=browser.origin(), **ON_ITS_PAGE
    )
    assert out.status == 200
    assert out.headers["clear-site-data"] == '"cache"'
    assert browser.jar[BOX] == {}
    browser.jar[BOX] = kept
    assert (await browser.ask(**TYPED)).code == "unauthenticated", "a copy of the cookie"


async def test_a_foreign_page_signs_nobody_out(browser: Browser) -> None:
    await browser.begin(link())
    out = await browser.ask("/.sandbox-router/logout", "POST", Origin="https://evil.example")
    assert out.code == "cross_origin"
    assert browser.jar[BOX]
    assert (await browser.ask("/.sandbox-router/logout", **TYPED)).code == "method_not_allowed"


async def test_signing_out_closes_what_the_session_has_open(browser: Browser) -> None:
    await browser.begin(link())
    reader, writer = await browser.door.connect()
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Origin": browser.origin()}
    writer.write(browser.lines("/terminal", "GET", BOX, upgrade))
    assert (await read_answer(reader)).status == 101
    await browser.ask("/.sandbox-router/logout", "POST", Origin=browser.origin(), **ON_ITS_PAGE)
    async with asyncio.timeout(10):
        left = await reader.read()
    assert left.endswith(b"\x88\x15\x03\xf0the right has ended"), left


async def test_a_session_begins_in_a_sandbox_that_is_not_ready(browser: Browser) -> None:
    host = f"8888-box-s--team-a.{DOMAIN}"
    assert (await browser.begin(link(name="box-s"), host=host)).status == 303


# --- other ways in --------------------------------------------------------------------------

ROOT = "/s/team-a/box-a/8888"


async def test_by_path_a_session_is_kept_to_its_sandbox_s_root(tmp_path: Path) -> None:
    given = {"path_prefix": "/s", "session_path_mode": "true"}
    async with browsing(tmp_path, **given) as browser:
        begun = await browser.ask(
            f"{ROOT}/.sandbox-router/session?link={link(path='/lab')}", host="localhost", **TYPED
        )
        assert (begun.status, begun.headers["location"]) == (303, f"{ROOT}/lab")
        assert f"; Path={ROOT}; " in begun.headers["set-cookie"]
        assert (await browser.ask(f"{ROOT}/lab", host="localhost", **TYPED)).status == 200
        assert b"sandbox-router=" not in browser.door.sandbox.heads[-1]
        other = await browser.ask("/s/team-b/box-b/8888/", host="localhost", **TYPED)
        assert other.code == "forbidden", "even where a browser sent it there"
        out = await browser.ask(
            f"{ROOT}/.sandbox-router/logout",
            "POST",
            host="localhost",
            Origin=browser.origin("localhost"),
        )
        assert out.status == 200
        assert f"; Path={ROOT}; Max-Age=0" in out.headers["set-cookie"]


async def test_by_path_there_is_no_session_unless_that_was_said(tmp_path: Path) -> None:
    async with browsing(tmp_path, path_prefix="/s") as browser:
        begun = await browser.ask(
            f"{ROOT}/.sandbox-router/session?link={link()}", host="localhost", **TYPED
        )
        assert begun.code == "bad_request"
        assert "set-cookie" not in begun.headers


async def test_behind_a_trusted_front_with_tls_the_cookie_is_the_host_s_alone(
    tmp_path: Path,
) -> None:
    host = "8888-box-a--team-a.boxes.example"
    front = {"X-Forwarded-Host": host, "X-Forwarded-Proto": "https"}
    async with browsing(
        tmp_path, base_domain="boxes.example", trusted_proxies="127.0.0.1"
    ) as browser:
        begun = await browser.begin(link(), host=host, **front)
        assert begun.headers["set-cookie"].startswith("__Host-sandbox-router=")
        assert "; HttpOnly; Secure; SameSite=Lax" in begun.headers["set-cookie"]
        own = {**front, "Origin": f"https://{host}"}
        assert (await browser.ask("/api", "POST", host=host, **own)).status == 200
        plain = {**front, "Origin": f"http://{host}"}
        assert (await browser.ask("/api", "POST", host=host, **plain)).code == "cross_origin"
        (value,) = browser.jar[host].values()
        unprefixed = await browser.ask(host=host, Cookie=f"sandbox-router={value}", **front)
        assert unprefixed.code == "unauthenticated", "a sibling can set that one"
        insecure = await browser.begin(link(), host=host, **{**front, "X-Forwarded-Proto": "http"})
        assert insecure.code == "bad_request"


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS", "DELETE"])
async def test_a_session_begins_by_get_alone(browser: Browser, method: str) -> None:
    path = f"/.sandbox-router/session?link={link()}"
    answer = await browser.ask(path, method, Origin=browser.origin())
    assert (answer.code, answer.headers["allow"]) == ("method_not_allowed", "GET")
