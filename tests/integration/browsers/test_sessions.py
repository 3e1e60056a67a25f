"""Attacks on a person's session, in a real browser: what other pages may make it do, what links do, and what stays after a logout."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from tests.fakes.browser import WHY_NOT, provided
from tests.fakes.links import link
from tests.integration.browsers.stage import DOMAIN, Stage, stage

pytestmark = pytest.mark.skipif(provided() is None, reason=WHY_NOT)

COOKIE = "__Host-sandbox-router"
OPEN_A_SOCKET = """address => new Promise(done => {
    const socket = new WebSocket(address)
    socket.onopen = () => socket.send('id')
    socket.onmessage = message => done(message.data)
    socket.onclose = () => done('refused')
})"""


@pytest.fixture
async def the(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as running:
        yield running


def terminal_of(the: Stage) -> str:
    return the.address.replace("https", "wss") + "/terminal"


# --- what a session is for ------------------------------------------------------------------


async def test_a_link_opens_the_page_with_its_scripts_forms_and_sockets(the: Stage) -> None:
    form = "<form method=post action=/saved><button>save</button></form>"
    the.mine.write("/lab", f"<h1>lab</h1>{form}<script src=/code.js></script>")
    page, response = await the.click(the.link(path="/lab?tab=1#here"))

    assert response.status == 200
    assert page.url == f"{the.address}/lab?tab=1#here"
    assert await page.evaluate("fetch('/api').then(r => r.status)") == 200
    assert await page.evaluate(OPEN_A_SOCKET, terminal_of(the)) == "echo id"
    await page.click("button")
    await page.wait_for_url("**/saved")
    assert the.mine.got("/saved") == ["POST"]
    assert the.mine.got("/code.js") == ["GET"]
    assert await page.evaluate("document.cookie") == ""


# --- other people's pages -------------------------------------------------------------------


async def attacks(the: Stage, where: str, body: str) -> Page:
    """Returns the tab in which alice, signed in to her own app, looks at a page of somebody else's."""
    await the.signed_in()
    the.mine.requests.clear()
    if where == "sandbox":
        the.evil.write("/attack", body)
        return await the.of_mallory()
    the.foreign.write("/attack", body)
    page, _ = await the.click(f"{the.foreign_address}/attack")
    return page


@pytest.mark.parametrize("where", ["sandbox", "foreign"])
async def test_no_other_page_opens_the_terminals_websocket(the: Stage, where: str) -> None:
    page = await attacks(the, where, "<p>hello")
    assert await page.evaluate(OPEN_A_SOCKET, terminal_of(the)) == "refused"
    assert the.mine.requests == []


@pytest.mark.parametrize("where", ["sandbox", "foreign"])
async def test_no_other_page_posts_a_form(the: Stage, where: str) -> None:
    for kind in ("application/x-www-form-urlencoded", "text/plain"):
        fields = f"method=post enctype={kind} action={the.address}/delete"
        page = await attacks(the, where, f"<form {fields}><input name=x value=1></form>")
        async with page.expect_navigation() as arrived:
            await page.evaluate("document.forms[0].submit()")
        answer = await arrived.value
        assert answer is not None
        assert answer.status in (401, 403)
        assert the.mine.requests == []


@pytest.mark.parametrize("where", ["sandbox", "foreign"])
async def test_no_other_page_has_a_get_with_effects_done(the: Stage, where: str) -> None:
    there = the.address
    page = await attacks(
        the,
        where,
        f"<img src={there}/i><script src={there}/s></script><link rel=stylesheet href={there}/c>"
        f"<link rel=prefetch href={there}/p><video src={there}/v></video>",
    )
    await page.evaluate(f"fetch('{there}/f', {{mode: 'no-cors', credentials: 'include'}})")
    await page.evaluate(f"navigator.sendBeacon('{there}/b', 'x')")
    with pytest.raises(PlaywrightError, match="Failed to fetch"):
        await page.evaluate(f"fetch('{there}/g', {{credentials: 'include'}})")
    assert the.mine.requests == []


@pytest.mark.parametrize("where", ["sandbox", "foreign"])
async def test_no_other_page_frames_the_app(the: Stage, where: str) -> None:
    tags = ("iframe src", "object data", "embed src")
    page = await attacks(the, where, "".join(f"<{tag}={the.address}/framed>" for tag in tags))
    await page.wait_for_load_state("networkidle")
    assert the.mine.requests == []


async def test_with_session_iframe_another_site_frames_it_and_may_still_not_act(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, session_iframe="true") as the:
        the.mine.write("/app", "<h1>mine</h1>")
        the.foreign.write("/portal", f"<iframe src='{the.link(path='/app')}'></iframe>")
        page, _ = await the.click(f"{the.foreign_address}/portal")
        assert await page.frame_locator("iframe").locator("h1").inner_text() == "mine"
        inner = page.frames[1]
        assert await inner.evaluate("fetch('/save', {method: 'POST'}).then(r => r.status)") == 200
        assert await inner.evaluate(OPEN_A_SOCKET, terminal_of(the)) == "echo id"

        the.mine.requests.clear()
        assert await page.evaluate(OPEN_A_SOCKET, terminal_of(the)) == "refused"
        post = (
            f"fetch('{the.address}/x', {{method: 'POST', mode: 'no-cors', credentials: 'include'}})"
        )
        await page.evaluate(post)
        assert the.mine.requests == []


async def test_a_link_in_another_page_opens_the_app_in_a_window(the: Stage) -> None:
    page = await attacks(the, "foreign", f"<a href={the.address}/lab>lab</a>")
    await page.click("a")
    await page.wait_for_url("**/lab")
    assert the.mine.got("/lab") == ["GET"]


# --- links and cookies ----------------------------------------------------------------------


async def test_a_link_that_is_wrong_shows_a_page_and_begins_nothing(the: Stage) -> None:
    good = link()
    header, claims, signature = good.split(".")
    wrong = {
        "tampered with": f"{header}.{link(name='box-b').split('.')[1]}.{signature}",
        "cut off": f"{header}.{claims}.",
        "expired": link(iat=1_000_000, exp=1_000_060),
        "of another port": link(port=80),
        "of another sandbox": link(name="box-b", namespace="team-b"),
    }
    for what, token in wrong.items():
        page, response = await the.click(the.opening(token))
        assert response.status in (401, 403), what
        assert await page.locator("h1").inner_text(), what
        assert token not in await page.content(), what
        assert await the.cookies(the.address) == {}, what
    assert the.mine.requests == []


@pytest.mark.parametrize(
    "path",
    [
        "//evil.test/",
        "/\\evil.test/",
        "/%2f/evil.test/",
        "\\\\evil.test",
        "/\t/evil.test",
        "https://evil.test/",
    ],
)
async def test_a_link_never_leads_to_another_host(the: Stage, path: str) -> None:
    page, _ = await the.click(the.link(path=path))
    assert page.url.startswith(the.address + "/")
    assert the.foreign.requests == []


async def test_a_session_is_sent_to_no_sibling_and_opens_none(the: Stage) -> None:
    await the.signed_in()
    siblings = [the.origin("8888-box-b--team-b"), the.origin("80-box-a--team-a")]
    for sibling in siblings:
        assert await the.cookies(sibling) == {}
        _, response = await the.click(sibling)
        assert response.status == 401
    assert the.evil.requests == []


async def test_a_sandbox_fixes_nobodys_session(the: Stage) -> None:
    """Mallory's own good session of box-a, planted from box-b, isn't used: whoever came would work under her name."""
    await the.click(the.link(sub="mallory"))
    planted = (await the.cookies(the.address))[COOKIE]
    await the.person.clear_cookies()
    the.evil.write(
        "/set", "<p>hello", Set_Cookie=f"{COOKIE}={planted}; Domain={DOMAIN}; Path=/; Secure"
    )
    page = await the.of_mallory("/set")
    for name in (COOKIE, "sandbox-router", "__Secure-sandbox-router"):
        for ends in (f"Domain={DOMAIN}; Path=/", "Path=/", f"Domain={DOMAIN}; Path=/lab"):
            await page.evaluate(f"document.cookie = '{name}={planted}; {ends}; Secure'")
    assert COOKIE not in await the.cookies(the.address)
    the.mine.requests.clear()
    _, response = await the.click(f"{the.address}/lab")
    assert response.status == 401
    assert the.mine.requests == []


async def test_no_other_page_signs_a_reader_in_as_somebody_else(the: Stage) -> None:
    """Login CSRF: neither hidden, nor in a window where alice has a session already."""
    mallorys = the.link(sub="mallory", path="/lab")
    hidden = f"<img src='{mallorys}'><iframe src='{mallorys}'></iframe>"
    the.foreign.write("/hidden", hidden)
    page, _ = await the.click(f"{the.foreign_address}/hidden")
    await page.wait_for_load_state("networkidle")
    assert await the.cookies(the.address) == {}

    page = await attacks(the, "foreign", f"<a href='{mallorys}'>look</a>")
    alices = await the.cookies(the.address)
    async with page.expect_navigation():
        await page.click("a")
    assert await the.cookies(the.address) == alices


# --- the end --------------------------------------------------------------------------------


async def test_after_a_logout_neither_address_nor_cache_nor_back_shows_the_page(
    the: Stage,
) -> None:
    the.mine.write("/secret", "<h1>secret</h1>", Cache_Control="max-age=3600")
    page, _ = await the.click(the.link(path="/secret"))
    socket = f"window.closed_ = ({OPEN_A_SOCKET})('{terminal_of(the)}')"
    assert await page.evaluate(socket) == "echo id"
    again = await page.goto(f"{the.address}/secret")
    assert again is not None

    logout = "fetch('/.sandbox-router/logout', {method: 'POST'}).then(r => r.status)"
    assert await page.evaluate(logout) < 400
    assert await the.cookies(the.address) == {}
    await page.goto("about:blank")
    for step in (page.go_back, lambda: page.goto(f"{the.address}/secret")):
        answer = await step()
        assert answer is None or answer.status == 401
        assert "secret" not in await page.locator("body").inner_text()
