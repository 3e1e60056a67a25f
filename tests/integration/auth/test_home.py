"""A person's own page on the base domain: who sees what there, and what else its tokens are good for (nothing)."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from router.auth.jws import parse_jws
from tests.fakes.links import (
    PLATFORM_SECRET,
    bearer,
    home_link,
    home_session,
    link,
    session,
)
from tests.integration.auth.browser import (
    BOX,
    DOMAIN,
    LINKED,
    ON_ITS_PAGE,
    TYPED,
    Browser,
    browsing,
)
from tests.integration.auth.door import POD, Answer

HOME = DOMAIN
OPEN = "/.sandbox-router/open?sandbox=team-a/box-a&port=8888"
SUBMITTED = {**TYPED, "Sec-Fetch-Site": "same-origin"}
"""What a browser says of a form of the page's own."""


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    async with browsing(tmp_path, home=True) as browser:
        yield browser


async def at_home(browser: Browser, **claims: object) -> Answer:
    """Begins a session on the page, and returns the page."""
    begun = await browser.begin(home_link(**claims), host=HOME)
    assert (begun.status, begun.headers["location"]) == (303, "/")
    return await browser.ask(host=HOME, **TYPED)


async def submit(browser: Browser, path: str, **headers: str) -> Answer:
    """Returns the answer to a form of the page's own."""
    given = {**SUBMITTED, "Origin": browser.origin(HOME), "Content-Length": "0", **headers}
    return await browser.ask(path, "POST", host=HOME, **given)


def named(page: Answer) -> list[str]:
    return re.findall(r"/</span>([^<]+)</h2>", page.body.decode())


# --- what is shown --------------------------------------------------------------------------


async def test_it_shows_the_sandboxes_that_the_caller_may_open_and_no_others(
    browser: Browser,
) -> None:
    page = await at_home(browser)

    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-store"
    assert named(page) == ["box-a", "box-p", "box-s", "box-z"]
    assert b"box-b" not in page.body
    assert b"<span>alice</span>" in page.body


async def test_the_list_alone_is_the_page_s_and_can_be_searched(browser: Browser) -> None:
    page = await at_home(browser)
    path = "/.sandbox-router/sandboxes"

    listing = await browser.ask(path, host=HOME, **ON_ITS_PAGE)
    found = await browser.ask(f"{path}?search=box-s", host=HOME, **ON_ITS_PAGE)
    nothing = await browser.ask(f"{path}?search=box-b", host=HOME, **ON_ITS_PAGE)

    assert listing.body.strip() in page.body
    assert named(found) == ["box-s"]
    assert b"No sandbox that you may open matches." in nothing.body


async def test_what_is_searched_for_stays_text(browser: Browser) -> None:
    await at_home(browser)
    page = await browser.ask("/?search=%3Cscript%3Ealert(1)%3C/script%3E%22", host=HOME, **TYPED)
    assert b"&lt;script&gt;alert(1)&lt;/script&gt;&#34;" in page.body
    assert b"<script>alert" not in page.body


async def test_its_policy_runs_no_script_but_its_own_and_it_is_framed_nowhere(
    browser: Browser,
) -> None:
    page = await at_home(browser)
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert f"form-action 'self' *.{HOME}:{browser.port};" in policy
    for name, kind in (("look.css", "text/css"), ("home.js", "text/javascript")):
        file = await browser.ask(f"/.sandbox-router/{name}", host=HOME)
        assert file.headers["content-type"] == f"{kind}; charset=utf-8"
        assert f"/.sandbox-router/{name}".encode() in page.body


@pytest.mark.parametrize("query", ["page=0", "page=x", "search=%FF", "&".join(["a=b"] * 20)])
async def test_a_query_that_cannot_be_read_is_refused(browser: Browser, query: str) -> None:
    await at_home(browser)
    assert (await browser.ask(f"/?{query}", host=HOME, **TYPED)).status == 400


async def test_who_may_not_do_everything_is_offered_nothing(browser: Browser) -> None:
    grants = [{"namespace": "team-a", "name": "box-a", "methods": ["GET"]}]
    page = await at_home(browser, sandboxes=grants)
    assert named(page) == []
    assert b"There is no sandbox that you may open." in page.body
    assert (await submit(browser, OPEN)).code == "forbidden"


# --- who calls ------------------------------------------------------------------------------


async def test_without_a_session_a_person_is_told_what_is_needed_and_a_program_too(
    browser: Browser,
) -> None:
    person, program = await browser.ask(host=HOME, **TYPED), await browser.ask(host=HOME)
    assert (person.status, program.status) == (401, 401)
    assert person.headers["content-type"].startswith("text/html")
    assert program.code == "unauthenticated"


async def test_a_gateway_token_shows_what_it_grants(browser: Browser) -> None:
    page = await browser.ask(host=HOME, Authorization=f"Bearer {bearer()}")
    assert named(page) == ["box-a"]


async def test_a_session_that_is_not_good_is_taken_away(browser: Browser) -> None:
    ended = home_session(iat=int(time.time()) - 100, exp=int(time.time()) - 60)
    for value in (ended, session(), "junk", home_session(secret=PLATFORM_SECRET)):
        browser.jar[HOME] = {"sandbox-router": value}
        refused = await browser.ask(host=HOME, **TYPED)
        assert refused.code == "unauthenticated"
        assert browser.jar[HOME] == {}


async def test_home_s_tokens_open_no_sandbox_and_a_sandbox_s_tokens_are_not_at_home(
    browser: Browser,
) -> None:
    for token in (home_link(), home_session()):
        assert (await browser.begin(token)).code == "unauthenticated"
        browser.jar[BOX] = {"sandbox-router": token}
        assert (await browser.ask(**TYPED)).code == "unauthenticated"
        for host in (BOX, HOME):
            header = {"Authorization": f"Bearer {token}"}
            assert (await browser.ask(host=host, **header)).code == "unauthenticated"
    for token in (link(), link(PLATFORM_SECRET, typ="home-link+jwt"), bearer(), home_session()):
        assert (await browser.begin(token, host=HOME)).code == "unauthenticated"
    assert browser.door.reached() == 0


@pytest.mark.parametrize(
    "claims",
    [
        {"sandboxes": None},
        {"sandboxes": "all"},
        {"sandboxes": [{"namespace": "team-a"}]},
        {"sandboxes": [{"namespace": "team-a", "name": "a", "wake": "yes"}]},
        {"jti": None},
        {"iat": None},
        {"exp": 4_000_000_000},
        {"session_ttl": "long"},
    ],
    ids=str,
)
async def test_a_link_that_is_not_right_begins_no_session(
    browser: Browser, claims: dict[str, object]
) -> None:
    assert (await browser.begin(home_link(**claims), host=HOME)).code == "unauthenticated"


async def test_a_session_begins_where_a_person_opens_its_link_alone(browser: Browser) -> None:
    framed = {**LINKED, "Sec-Fetch-Dest": "iframe"}
    for headers in (framed, {**LINKED, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}):
        assert (await browser.begin(home_link(), host=HOME, **headers)).code == "cross_origin"


async def test_a_foreign_page_makes_nobody_somebody_else(browser: Browser) -> None:
    await at_home(browser)
    of_mallory = await browser.begin(home_link(sub="mallory"), host=HOME, **LINKED)
    assert of_mallory.code == "cross_origin"
    assert b"alice" in (await browser.ask(host=HOME, **TYPED)).body


# --- the way in -----------------------------------------------------------------------------


async def test_opening_a_sandbox_leads_to_its_own_host_with_a_session_there(
    browser: Browser,
) -> None:
    await at_home(browser)
    opened = await submit(browser, OPEN)

    assert opened.status == 303
    where = urlsplit(opened.headers["location"])
    assert (where.scheme, where.netloc) == ("", f"{BOX}:{browser.port}")
    assert where.path == "/.sandbox-router/session"
    assert opened.headers["referrer-policy"] == "no-referrer"
    begun = await browser.ask(
        f"{where.path}?{where.query}", **{**TYPED, "Sec-Fetch-Site": "same-site"}
    )
    assert (begun.status, begun.headers["location"]) == (303, "/")
    assert (await browser.ask(**TYPED)).status == 200


async def test_the_session_there_lasts_no_longer_than_the_one_at_home(browser: Browser) -> None:
    await at_home(browser, session_ttl=120)
    opened = await submit(browser, OPEN)
    [token] = parse_qs(urlsplit(opened.headers["location"]).query)["link"]
    claims = parse_jws(token.encode()).claims
    assert 100 <= claims["session_ttl"] <= 120
    assert (claims["sub"], claims["uid"]) == ("alice", POD)


async def test_signing_out_at_home_ends_what_was_opened_from_there(browser: Browser) -> None:
    await at_home(browser)
    where = urlsplit((await submit(browser, OPEN)).headers["location"])
    await browser.ask(f"{where.path}?{where.query}", **TYPED)
    assert (await browser.ask(**TYPED)).status == 200
    kept = dict(browser.jar[HOME])

    out = await submit(browser, "/.sandbox-router/logout")

    assert out.status == 200
    assert browser.jar[HOME] == {}
    assert (await browser.ask(**TYPED)).code == "unauthenticated"
    browser.jar[HOME] = kept
    assert (await browser.ask(host=HOME, **TYPED)).code == "unauthenticated"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("sandbox=team-b/box-b&port=8888", "forbidden"),
        ("sandbox=team-a/none&port=8888", "sandbox_not_found"),
        ("sandbox=box-a&port=8888", "sandbox_not_found"),
        ("port=8888", "sandbox_not_found"),
        ("sandbox=team-a/box-a", "bad_request"),
        ("sandbox=team-a/box-a&port=0", "bad_request"),
        ("sandbox=team-a/box-a&port=8888x", "bad_request"),
    ],
)
async def test_what_may_not_or_cannot_be_opened_is_refused(
    browser: Browser, query: str, code: str
) -> None:
    await at_home(browser)
    for path in ("open", "wake"):
        assert (await submit(browser, f"/.sandbox-router/{path}?{query}")).code == code


async def test_without_waking_nothing_is_woken(browser: Browser) -> None:
    await at_home(browser)
    path = "/.sandbox-router/wake?sandbox=team-a/box-z&port=8888"
    assert (await submit(browser, path)).code == "forbidden"


# --- pages of others ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {**LINKED, "Origin": "https://evil.example"},
        {**TYPED, "Sec-Fetch-Site": "same-site", "Origin": f"http://{BOX}"},
        {**TYPED, "Origin": "null"},
        TYPED,
        {"Origin": f"https://{HOME}"},
    ],
    ids=["foreign", "sandbox", "null", "none", "other scheme"],
)
async def test_a_form_of_another_page_does_nothing(
    browser: Browser, headers: dict[str, str]
) -> None:
    await at_home(browser)
    for path in (
        OPEN,
        "/.sandbox-router/wake?sandbox=team-a/box-z&port=80",
        "/.sandbox-router/logout",
    ):
        refused = await browser.ask(path, "POST", host=HOME, **{"Content-Length": "0", **headers})
        assert refused.code == "cross_origin", path
    assert (await browser.ask(host=HOME, **TYPED)).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_another_page_reads_nothing(browser: Browser, site: str) -> None:
    await at_home(browser)
    for mode, dest in (("cors", "empty"), ("no-cors", "script"), ("navigate", "iframe")):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        for path in ("/", "/.sandbox-router/sandboxes"):
            assert (await browser.ask(path, host=HOME, **headers)).code == "cross_origin"


# --- what else the base domain is for -----------------------------------------------------


async def test_a_sandbox_is_still_named_by_header_there(browser: Browser) -> None:
    named_by_header = {"X-Sandbox-ID": "box-a", "X-Sandbox-Namespace": "team-a"}
    answer = await browser.ask(host=HOME, Authorization=f"Bearer {bearer()}", **named_by_header)
    assert (answer.status, answer.body) == (200, b"ok")


@pytest.mark.parametrize(
    "path", ["/other", "/.sandbox-router/awake", "/.sandbox-router/", "/index.html"]
)
async def test_any_other_path_names_no_sandbox_as_before(browser: Browser, path: str) -> None:
    await at_home(browser)
    assert (await browser.ask(path, host=HOME, **ON_ITS_PAGE)).code == "misdirected"


@pytest.mark.parametrize(
    "host", ["evil.example", f"www.{HOME}", f"x{HOME}", f"{HOME}.evil.example"]
)
async def test_no_other_host_is_home(browser: Browser, host: str) -> None:
    assert (await browser.ask(host=host)).code == "misdirected"


async def test_a_method_that_does_not_fit_the_path_is_refused(browser: Browser) -> None:
    await at_home(browser)
    posted = await submit(browser, "/")
    assert (posted.code, posted.headers["allow"]) == ("method_not_allowed", "GET")
    got = await browser.ask(OPEN, host=HOME, **SUBMITTED)
    assert (got.code, got.headers["allow"]) == ("method_not_allowed", "POST")
    with_body = await submit(browser, OPEN, **{"Content-Length": "5"})
    assert with_body.code == "bad_request"


async def test_a_head_request_has_no_body(browser: Browser) -> None:
    await at_home(browser)
    headers = {"Connection": "close"}
    reader, writer = await browser.door.connect()
    writer.write(browser.lines("/", "HEAD", HOME, headers))
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body == b""


async def test_unless_it_is_switched_on_there_is_no_page(tmp_path: Path) -> None:
    async with browsing(tmp_path) as browser:
        assert (await browser.ask(host=HOME, **TYPED)).code == "misdirected"
        assert (await browser.begin(home_link(), host=HOME)).code == "misdirected"
