"""What a person's browser gets from a sandbox that wakes: the page after two seconds, then the app; by sockets, without a browser."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.integration.waking.door import door

NAVIGATES = {"Sec_Fetch_Mode": "navigate", "Accept": "text/html"}


async def test_a_browser_gets_the_page_after_two_seconds_and_then_the_app(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all", pace={"starts_s": 3.0}) as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")
        began = time.monotonic()

        page = await the.ask("box", **NAVIGATES)

        assert 1.9 < time.monotonic() - began < 3.0
        assert (page.status, page.code) == (503, "sandbox_waking")
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert page.headers["Retry-After"] == "2"
        assert "default/box" in page.text
        # It loads itself again: the wake has gone on meanwhile, and the next request lands on the app.
        app = await the.ask("box", **NAVIGATES)
        assert app.status == 200
        assert app.headers["Content-Type"] == "text/html"
        assert the.patches == 1


async def test_a_sandbox_that_is_quick_needs_no_page(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all") as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")
        assert (await the.ask("box", **NAVIGATES)).status == 200


async def test_the_page_is_shown_too_while_the_app_does_not_listen_yet(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all", pace={"listens_s": 4.0}) as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")

        pages = [await the.ask("box", **NAVIGATES)]
        while pages[-1].status != 200:
            pages.append(await the.ask("box", **NAVIGATES))

        assert {page.code for page in pages[:-1]} == {"sandbox_waking"}
        assert len(pages) in (2, 3)


async def test_a_form_that_is_sent_waits_and_stays_a_post(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all", pace={"starts_s": 2.5}) as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")

        told = await the.ask("box", method="POST", body=b"a=1", **NAVIGATES)

        assert told.status == 200
        assert told.text.endswith("POST 3")
        assert [method for method, _, _ in the.cluster.apps["box"].requests] == ["POST"]


async def test_a_program_just_waits(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all", pace={"starts_s": 2.5}) as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")
        assert (await the.ask("box")).status == 200


async def test_what_the_page_would_load_wakes_nothing(tmp_path: Path) -> None:
    async with door(tmp_path, wake="all") as the:
        the.cluster.add("box")
        await the.until_seen("box", "suspended")

        favicon = await the.ask("box", "/favicon.ico", Sec_Fetch_Mode="no-cors")
        script = await the.ask("box", "/api", Sec_Fetch_Mode="cors")
        prefetch = await the.ask("box", Sec_Purpose="prefetch", **NAVIGATES)
        socket = await the.ask("box", Connection="Upgrade", Upgrade="websocket")
        preflight = await the.ask(
            "box",
            method="OPTIONS",
            Origin="https://a.example",
            Access_Control_Request_Method="PUT",
        )

        told = (favicon, script, prefetch, socket, preflight)
        assert {each.code for each in told} == {"sandbox_suspended"}
        await asyncio.sleep(0.2)
        assert the.patches == 0
        reasons = [line["error_reason"] for line in await the.access_log(5)]
        assert all("wake" in reason for reason in reasons)
