"""A person's own page in a real browser: from a link to a sandbox's app, by clicks and by keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.fakes.browser import WHY_NOT, Tab, browser, provided
from tests.fakes.links import home_link
from tests.integration.auth.browser import Browser, browsing
from tests.integration.auth.door import Sandbox

pytestmark = pytest.mark.skipif(provided() is None, reason=WHY_NOT)

DOMAIN = "sandbox.localhost"
NAMES = "[...document.querySelectorAll('.cards h2')].map(e => e.textContent).join()"
BOX = "8888-box-a--team-a.sandbox.localhost"


@asynccontextmanager
async def at_home(folder: Path, link: str | None = None) -> AsyncIterator[tuple[Browser, Tab]]:
    """Opens the page by a link."""
    async with (
        browsing(folder, home=True, base_domain=DOMAIN) as router,
        browser() as tab,
    ):
        url = f"http://{DOMAIN}:{router.port}/.sandbox-router/session?link={link or home_link()}"
        await tab.call("Page.navigate", url=url)
        await tab.until("location.pathname === '/' && document.readyState === 'complete'")
        yield router, tab


def page_of(sandbox: Sandbox, body: bytes) -> None:
    sandbox.answer = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    )


async def test_a_link_leads_to_the_page_and_a_click_into_the_sandbox(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (router, tab):
        page_of(router.door.sandbox, b"<title>app</title><p>The app.</p>")
        assert await tab.evaluate(NAMES) == "team-a/box-a,team-a/box-p,team-a/box-s,team-a/box-z"
        assert await tab.evaluate("location.search") == "", "the link is not kept in the address"
        assert tab.errors() == []

        await tab.evaluate("document.querySelector('form[action*=\"box-a\"] button').click()")

        await tab.until("document.title === 'app'")
        assert await tab.evaluate("location.href") == f"http://{BOX}:{router.port}/"
        assert b"sandbox-router=" not in router.door.sandbox.heads[0]
        assert tab.errors() == []


async def test_the_way_in_needs_no_mouse(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (router, tab):
        page_of(router.door.sandbox, b"<title>app</title>")
        await tab.evaluate("document.getElementById('search-text').focus()")
        for letter in "box-a":
            await tab.press(letter)
        await tab.until(f"{NAMES} === 'team-a/box-a'")
        assert await tab.evaluate("location.search") == "?search=box-a"
        for _ in range(9):
            await tab.press("Tab")
            if await tab.evaluate("document.activeElement.textContent.startsWith('Open')"):
                break
        await tab.press("Enter")
        await tab.until("document.title === 'app'")


async def test_signing_out_ends_it_and_the_way_back_shows_nothing(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (router, tab):
        await tab.evaluate("document.querySelector('.who button').click()")
        await tab.until("document.body?.innerText.includes('signed out')")
        await tab.evaluate("history.back()")
        await tab.until(
            "document.querySelector('h1') && !document.body.innerText.includes('signed out')"
        )
        await tab.until("!document.body?.innerText.includes('box-a')", timeout_s=5)
        await tab.call("Page.navigate", url=f"http://{DOMAIN}:{router.port}/")
        await tab.until("document.querySelector('h1') && !document.querySelector('.cards')")


async def test_a_sandboxs_page_can_do_nothing_there(tmp_path: Path) -> None:
    async with at_home(tmp_path) as (router, tab):
        home = f"http://{DOMAIN}:{router.port}"
        attack = f"""<title>evil</title><script>
        const told = [];
        const post = fetch('{home}/.sandbox-router/open?sandbox=team-a/box-b&port=8888',
          {{method: 'POST', credentials: 'include', mode: 'no-cors', redirect: 'manual'}});
        const read = fetch('{home}/.sandbox-router/sandboxes', {{credentials: 'include'}});
        Promise.allSettled([post, read]).then(all => {{
          const [posted, got] = all;
          told.push('read ' + got.status, 'text ' + (got.value ? got.value.status : 'none'));
          const frame = document.createElement('iframe');
          frame.onload = () => {{
            try {{ told.push('frame ' + frame.contentDocument.body.innerText.length); }}
            catch (error) {{ told.push('frame closed'); }}
            document.title = told.join();
          }};
          frame.src = '{home}/';
          document.body.append(frame);
        }});
        </script>"""
        page_of(router.door.sandbox, attack.encode())
        await tab.evaluate("document.querySelector('form[action*=\"box-a\"] button').click()")
        await tab.until("document.title.includes('frame')")
        assert await tab.evaluate("document.title") == "read rejected,text none,frame closed"


@pytest.mark.parametrize("width", [360, 1280])
async def test_it_fits_narrow_and_wide_windows(tmp_path: Path, width: int) -> None:
    async with at_home(tmp_path) as (_, tab):
        await tab.resize(width, 700)
        assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
