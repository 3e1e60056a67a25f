"""A real browser opens a suspended sandbox: it sees the page, which loads itself again, and lands on the app."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.browser import WHY_NOT, browser, provided
from tests.integration.waking.door import door

pytestmark = pytest.mark.skipif(provided() is None, reason=WHY_NOT)

HEADING = "document.querySelector('h1')?.textContent"


async def test_a_person_sees_the_page_and_lands_on_the_app(tmp_path: Path) -> None:
    flags = {"wake": "all", "base_domain": "sandbox.localhost"}
    async with (
        door(tmp_path, pace={"starts_s": 6.0}, **flags) as the,
        browser() as tab,
    ):
        the.cluster.add("box")
        await the.until_seen("box", "suspended")
        url = f"http://8888-box.sandbox.localhost:{the.address[1]}/lab?tab=1"
        await tab.call("Page.navigate", url=url)

        await tab.until(f"{HEADING} === 'This sandbox is waking up'")
        # The browser took the style: the policy's hash is that of the style.
        assert await tab.evaluate("getComputedStyle(document.body).display") == "grid"
        assert await tab.evaluate("document.body.innerText.includes('default/box')")
        await tab.until("document.body?.innerText.endsWith(' GET 0')")

        assert await tab.evaluate("location.href") == url
        app = the.cluster.apps["box"]
        assert ("GET", "/lab?tab=1", 0) in app.requests
        assert {method for method, _, _ in app.requests} == {"GET"}
        assert the.patches == 1
        pages = [line for line in await the.access_log(2) if line["code"] == "sandbox_waking"]
        assert pages
        assert {line["path"] for line in pages} == {"/lab"}, "the page asks for nothing else"


async def test_the_page_follows_the_browsers_light_or_dark_scheme(tmp_path: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    found = {}
    flags = {"wake": "all", "base_domain": "sandbox.localhost"}
    async with door(tmp_path, pace={"starts_s": 20.0}, **flags) as the, browser() as tab:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")
        for scheme in ("light", "dark"):
            scheme_wish = [{"name": "prefers-color-scheme", "value": scheme}]
            await tab.call("Emulation.setEmulatedMedia", features=scheme_wish)
            url = f"http://8888-box.sandbox.localhost:{the.address[1]}/"
            await tab.call("Page.navigate", url=url)
            await tab.until(f"{HEADING} === 'This sandbox is waking up'")
            found[scheme] = await tab.evaluate(ground)
    assert found["light"] != found["dark"]


async def test_a_form_that_is_sent_waits_and_is_never_turned_into_a_get(tmp_path: Path) -> None:
    flags = {"wake": "all", "base_domain": "sandbox.localhost"}
    async with (
        door(tmp_path, pace={"starts_s": 4.0}, **flags) as the,
        browser() as tab,
    ):
        the.cluster.add("box")
        await the.until_seen("box", "suspended")
        address = f"http://8888-box.sandbox.localhost:{the.address[1]}"
        form = f"<form method=post action='{address}/save'><input name=a value=1></form>"
        await tab.page.set_content(form)
        async with tab.page.expect_navigation(url=f"{address}/save") as arrived:
            await tab.evaluate("document.forms[0].submit()")
        answer = await arrived.value
        assert answer is not None
        assert answer.status == 200, "it waited for longer than the page is shown after"
        sent = [asked for asked in the.cluster.apps["box"].requests if asked[1] == "/save"]
        assert sent == [("POST", "/save", 3)]
