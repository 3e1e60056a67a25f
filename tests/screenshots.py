"""Takes the pictures of the router's pages that the documents show: `make screenshots`.

Real pages of the demo in a real Chromium, written to docs/images. What changes from run to run (ports, numbers) shows.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.fakes.browser import WHY_NOT, Tab, browser, provided
from tests.integration.demo_process import running

FOLDER = Path(__file__).parent.parent / "docs" / "images"
LINK = r"^  (http://sandbox\.localhost:\S+)"
ADMIN = r"its admin port   (http://\S+)"


async def shoot(tab: Tab, name: str, url: str, shown: str, *, size: tuple[int, int]) -> None:
    """Opens the page ("" for the one that is shown), and keeps its picture once the expression is true."""
    width, height = size
    await tab.resize(width, height)
    if url:
        await tab.call("Page.navigate", url=url)
    await tab.until(shown)
    (FOLDER / f"{name}.png").write_bytes(await tab.screenshot())
    print(f"docs/images/{name}.png")


async def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    async with running() as demo, browser() as tab:
        link, admin = (await demo.until(LINK))[1], (await demo.until(ADMIN))[1]
        home = "document.querySelectorAll('.cards li').length === 3"
        await shoot(tab, "home", link, home, size=(900, 330))
        await shoot(
            tab,
            "console",
            f"{admin}/",
            "document.getElementById('live')?.textContent === 'Live.'",
            size=(1100, 860),
        )
        unsigned = link.partition("/.sandbox-router")[0].replace("//", "//8888-hello.")
        page = "document.querySelector('h1')?.textContent === 'This sandbox needs a link'"
        await tab.call("Network.clearBrowserCookies")
        await shoot(tab, "sign-in", f"{unsigned}/", page, size=(700, 360))
    async with running("--sleep") as demo, browser() as tab:
        link = (await demo.until(LINK))[1]
        await tab.call("Page.navigate", url=link)
        await tab.until("!!document.querySelector('.cards')")
        await tab.evaluate("document.querySelector('form[action*=echo] button').click()")
        waking = "document.querySelector('h1')?.textContent.includes('waking')"
        await shoot(tab, "waking", "", waking, size=(700, 360))


if __name__ == "__main__":
    if provided() is None:
        sys.exit(WHY_NOT)
    asyncio.run(main())
