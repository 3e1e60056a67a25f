"""The operator's page in a real browser, of a real router."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.fakes.browser import WHY_NOT, Tab, browser, provided
from tests.fakes.router_process import RouterProcess, router

pytestmark = pytest.mark.skipif(provided() is None, reason=WHY_NOT)

FIRST = "document.querySelector('#table tbody th')?.textContent"
TOTAL = "document.querySelector('.states a')?.textContent"
LIVE = "document.getElementById('live')?.textContent === 'Live.'"


def write_table(path: Path, *names: str) -> None:
    entries = (f"  - {{name: {name}, namespace: team-a, host: 127.0.0.1}}\n" for name in names)
    path.write_text("sandboxes:\n" + "".join(entries))


@asynccontextmanager
async def shown(table: Path, *flags: str) -> AsyncIterator[tuple[RouterProcess, Tab]]:
    """Opens the page of a router with this table."""
    file = f"--sandboxes-file={table}"
    async with (
        router("--discovery=file", file, "--auth=none", *flags) as running,
        browser() as tab,
    ):
        await running.until_ready()
        await tab.call("Page.navigate", url=f"http://127.0.0.1:{running.admin_port}/")
        await tab.until(LIVE)
        yield running, tab
        assert tab.errors() == []


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_it_is_live_and_follows_what_happens(tmp_path: Path, workers: str) -> None:
    table = tmp_path / "s.yaml"
    write_table(table, *(f"box-{n:03}" for n in range(120)))
    async with shown(table, f"--workers={workers}") as (running, tab):
        assert await tab.evaluate("document.querySelector('.state.good').innerText") == "Ready"
        assert await tab.evaluate(TOTAL) == "All 120"

        async with aiohttp.ClientSession() as session:
            for _ in range(3):
                lost = {"X-Sandbox-ID": "nobody"}
                url = f"http://127.0.0.1:{running.http_port}/"
                async with session.get(url, headers=lost) as response:
                    assert response.status == 404
        await tab.until("/sandbox_not_found\\s*3/.test(document.body.innerText)")
        write_table(table, "only")
        await tab.until(f"{TOTAL} === 'All 1'")


async def test_searching_and_paging_need_no_mouse_and_load_no_new_page(tmp_path: Path) -> None:
    table = tmp_path / "s.yaml"
    write_table(table, *(f"box-{n:03}" for n in range(120)))
    async with shown(table) as (_, tab):
        await tab.evaluate("window.same = true; document.getElementById('search-text').focus()")
        for letter in "box-11":
            await tab.press(letter)
        await tab.until(f"{TOTAL} === 'All 10'")
        assert await tab.evaluate(FIRST) == "team-a/box-110"
        assert await tab.evaluate("document.activeElement.id") == "search-text"
        assert await tab.evaluate("location.search") == "?search=box-11"

        await tab.evaluate("document.getElementById('search-text').value = ''")
        await tab.press("Enter")
        await tab.until(f"{TOTAL} === 'All 120'")
        await tab.evaluate("document.querySelector('a[rel=next]').focus()")
        await tab.press("Enter")
        await tab.until(f"{FIRST} === 'team-a/box-050'")
        await tab.until("document.activeElement.id === 'sandboxes'")
        assert await tab.evaluate("window.same") is True

        await tab.call("Page.reload")
        await tab.until(f"{LIVE} && {FIRST} === 'team-a/box-050'")


async def test_everything_has_a_name_and_the_first_tab_leads_to_the_table(tmp_path: Path) -> None:
    table = tmp_path / "s.yaml"
    write_table(table, "box")
    async with shown(table) as (_, tab):
        await tab.press("Tab")
        assert await tab.evaluate("document.activeElement.hash") == "#sandboxes"
        nameless = await tab.evaluate(
            "[...document.querySelectorAll('a,button,input:not([type=hidden]),[role=region],nav')]"
            ".filter(e => !(e.innerText || '').trim() && !e.labels?.length && !e.getAttribute('aria-label'))"
            ".map(e => e.outerHTML)"
        )
        assert nameless == []
        assert await tab.evaluate("document.documentElement.lang") == "en"
        assert await tab.evaluate("document.querySelectorAll('h1').length") == 1


@pytest.mark.parametrize("width", [360, 1280])
async def test_it_fits_narrow_and_wide_windows(tmp_path: Path, width: int) -> None:
    table = tmp_path / "s.yaml"
    write_table(table, "a-sandbox-whose-name-is-as-long-as-names-may-be-in-kubernetes")
    async with shown(table) as (_, tab):
        await tab.resize(width, 700)
        assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_when_the_router_goes_the_page_says_so(tmp_path: Path) -> None:
    table = tmp_path / "s.yaml"
    write_table(table, "box")
    async with (
        router("--discovery=file", f"--sandboxes-file={table}", "--auth=none") as running,
        browser() as tab,
    ):
        await running.until_ready()
        await tab.call("Page.navigate", url=f"http://127.0.0.1:{running.admin_port}/")
        await tab.until(LIVE)
        running.process.kill()
        await tab.until("document.getElementById('live').textContent.includes('not answer')")
        assert await tab.evaluate("document.body.classList.contains('stale')")
