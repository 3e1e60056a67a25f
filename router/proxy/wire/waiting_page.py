"""The page that a person sees while a sandbox wakes up: it says what happens, and loads itself again until the app is there."""

from __future__ import annotations

import html
from typing import Final

from router.proxy.wire import pages

RELOAD_S: Final = 1
"""How long the page rests between two requests, each of which waits for the sandbox itself."""

HEADERS: Final = pages.headers()


def page_about(sandbox: str) -> bytes:
    """Returns the page about the sandbox of that name."""
    # The name can't be HTML by the rules for names; it is escaped all the same.
    return pages.page(
        title="Waking up…",
        heading="This sandbox is waking up",
        paragraphs=[
            f'<span class="name">{html.escape(sandbox)}</span> was asleep, to save resources. Your visit is starting it again;'
            " its files are as they were.",
            "This usually takes less than a minute. The page opens by itself as soon as the app answers.",
        ],
        quiet='Nothing happens for several minutes? <a href="">Try again now</a>, or tell whoever runs this sandbox.',
        is_under_way=True,
        reload_s=RELOAD_S,
    )
