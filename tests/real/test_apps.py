"""Real apps in a real browser, through a session: a host of their own, or a path where they can; compared with the app run directly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.fakes.browser import WHY_NOT, Tab, provided
from tests.integration.browsers.stage import Stage, stage
from tests.real import apps

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(provided() is None, reason=WHY_NOT),
]

PREFIX = "/sandboxes/team-a/box-a/8888"
BY_PATH = {"base_domain": "", "path_prefix": "/sandboxes", "session_path_mode": "true"}
Visit = Callable[[Page, str, apps.Running], Awaitable[None]]
"""Uses the app whose address is given, and finds that it works."""


@asynccontextmanager
async def opened(
    tmp_path: Path, app: apps.Running, *, mode: str, path: str = "/"
) -> AsyncIterator[tuple[Tab, str, Stage]]:
    """Opens a link to the app, and gives the tab and the app's address as the browser has it."""
    flags: dict[str, Any] = {}
    if mode != "host":
        flags = BY_PATH | {"path_mode": mode}
    async with stage(tmp_path, app_port=app.port, **flags) as the:
        base = the.address
        link = the.link(path=path)
        if mode != "host":
            base = f"{the.origin('router')}{PREFIX}"
            link = link.replace(the.address, base)
        tab = Tab(await the.person.new_page())
        response = await tab.page.goto(link)
        assert response is not None
        assert response.status == 200
        yield tab, base, the


async def compared(tmp_path: Path, app: apps.Running, visit: Visit, *, path: str = "/") -> None:
    """Uses the app directly and through a session on its own host: the console shows no more errors there."""
    async with opened(tmp_path, app, mode="host", path=path) as (tab, base, the):
        direct = Tab(await the.person.new_page())
        await direct.page.goto(app.url + path)
        await visit(direct.page, app.url, app)
        known = [error.replace(app.url, "") for error in direct.errors()]
        await visit(tab.page, base, app)
        assert [e for e in tab.errors() if e.replace(base, "") not in known] == []


async def by_path(
    tmp_path: Path, app: apps.Running, visit: Visit, *, mode: str, path: str = "/"
) -> None:
    """Uses the app through a session under its path, with a console that shows no errors."""
    async with opened(tmp_path, app, mode=mode, path=path) as (tab, base, the):
        await visit(tab.page, base, app)
        # The root of the origin is no sandbox's, and browsers ask there for an icon that a page doesn't name.
        assert [
            e for e in tab.errors() if not e.endswith(f"{the.origin('router')}/favicon.ico")
        ] == []


# --- JupyterLab -----------------------------------------------------------------------------


async def work_in_jupyterlab(page: Page, base: str, app: apps.Running) -> None:
    """Runs a cell in a new notebook, and a command in a terminal."""
    (app.folder / "made").unlink(missing_ok=True)
    await page.goto(f"{base}/lab?reset")
    launcher = page.locator(".jp-Launcher")
    await launcher.locator('.jp-LauncherCard[data-category="Notebook"]').first.click(timeout=60_000)
    cell = page.locator(".jp-Notebook .jp-CodeCell .cm-content").first
    await cell.click(timeout=60_000)
    await page.keyboard.type("print(6 * 7)")
    await page.keyboard.press("Shift+Enter")
    output = page.locator(".jp-OutputArea-output pre").first
    await expect(output).to_have_text("42\n", timeout=60_000)

    await page.keyboard.press("Escape")
    await page.keyboard.press("Control+Shift+l")
    await page.locator('.jp-LauncherCard[title*="terminal" i]:visible').first.click()
    terminal = page.locator(".jp-Terminal .xterm-screen")
    await terminal.click(timeout=60_000)
    async with asyncio.timeout(60):
        while not (app.folder / "made").exists():
            await page.keyboard.type("touch made\n")
            await asyncio.sleep(0.5)


@pytest.mark.parametrize("login", ["token", "password"])
async def test_jupyterlab_runs_a_cell_and_a_terminal(tmp_path: Path, login: str) -> None:
    async def visit(page: Page, base: str, app: apps.Running) -> None:
        await page.goto(f"{base}/lab")
        await page.fill("input[name=password]", apps.SECRET)
        await page.click("#login_submit")
        await page.wait_for_url(f"{base}/lab")
        await work_in_jupyterlab(page, base, app)

    command = apps.jupyterlab(tmp_path, password=login == "password")
    async with apps.running(tmp_path, command) as app:
        await compared(tmp_path, app, visit, path="/login?next=%2Flab")


async def test_jupyterlab_by_path_is_told_its_base_url(tmp_path: Path) -> None:
    async with apps.running(tmp_path, apps.jupyterlab(tmp_path, PREFIX)) as app:
        path = f"/lab?token={apps.SECRET}"
        await by_path(tmp_path, app, work_in_jupyterlab, mode="keep", path=path)


# --- Vite -----------------------------------------------------------------------------------


async def edit_in_vite(page: Page, base: str, app: apps.Running) -> None:
    """Changes a style, which keeps the page, and a script, which loads it again."""
    for name, content in apps.VITE.items():
        (app.folder / name).write_text(content)
    await page.goto(f"{base}/")
    told = page.locator("#told")
    await expect(told).to_have_text("before")
    await expect(told).to_have_css("color", "rgb(1, 2, 3)")
    await page.evaluate("window.same = true")
    (app.folder / "look.css").write_text("p { color: rgb(4, 5, 6) }\n")
    await expect(told).to_have_css("color", "rgb(4, 5, 6)", timeout=30_000)
    assert await page.evaluate("window.same") is True
    (app.folder / "main.js").write_text(apps.VITE["main.js"].replace("before", "after"))
    await expect(told).to_have_text("after", timeout=30_000)


async def test_an_edited_file_changes_vites_page(tmp_path: Path) -> None:
    async with apps.running(tmp_path, apps.vite(tmp_path)) as app:
        await compared(tmp_path, app, edit_in_vite)


async def test_vite_by_path_is_told_its_base(tmp_path: Path) -> None:
    async with apps.running(tmp_path, apps.vite(tmp_path, PREFIX)) as app:
        await by_path(tmp_path, app, edit_in_vite, mode="keep")


# --- Streamlit, Django, websockify ----------------------------------------------------------


async def greet_in_streamlit(page: Page, base: str, app: apps.Running) -> None:
    await page.goto(f"{base}/")
    name = page.get_by_label("Your name")
    await name.fill("Ada", timeout=60_000)
    await name.press("Enter")
    await expect(page.get_by_text("Hello Ada!")).to_be_visible(timeout=30_000)


async def test_streamlit_answers_who_types(tmp_path: Path) -> None:
    async with apps.running(tmp_path, apps.streamlit(tmp_path)) as app:
        await compared(tmp_path, app, greet_in_streamlit)
        await by_path(tmp_path, app, greet_in_streamlit, mode="strip")


async def say_in_django(page: Page, base: str, app: apps.Running) -> None:
    await page.goto(f"{base}/form/")
    await page.fill("input[name=said]", "hello")
    async with page.expect_navigation(url=f"{base}/form/"):
        await page.click("button")
    await expect(page.locator("h1")).to_contain_text("hello")


async def test_a_django_form_with_its_csrf_token_is_taken(tmp_path: Path) -> None:
    async with apps.running(tmp_path, apps.django(tmp_path)) as app:
        await compared(tmp_path, app, say_in_django, path="/form/")
    async with apps.running(tmp_path, apps.django(tmp_path, PREFIX)) as app:
        await by_path(tmp_path, app, say_in_django, mode="strip", path="/form/")


async def send_by_websockify(page: Page, base: str, app: apps.Running) -> None:
    await page.goto(f"{base}/")
    await expect(page.locator("#told")).to_have_text("104,105,0,255", timeout=30_000)


async def test_websockify_brings_bytes_to_a_tcp_port_and_back(tmp_path: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        tcp_port = server.sockets[0].getsockname()[1]
        async with apps.running(tmp_path, apps.websockify(tmp_path, tcp_port)) as app:
            await compared(tmp_path, app, send_by_websockify)
            await by_path(tmp_path, app, send_by_websockify, mode="strip")
