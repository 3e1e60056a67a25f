"""The page that a person sees while a sandbox wakes up: it says what happens, and loads itself again until the app is there."""

from __future__ import annotations

import base64
import hashlib
import html
from typing import Final

TYPE: Final = b"text/html; charset=utf-8"
RELOAD_S: Final = 1
"""How long the page rests between two requests, each of which waits for the sandbox itself."""

_STYLE: Final = """\
:root{color-scheme:light dark;--ink:#1f2328;--quiet:#57606a;--ground:#f6f8fa;--card:#fff;--line:#d0d7de;--mark:#0969da}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--quiet:#9aa4af;--ground:#0d1117;--card:#161b22;--line:#30363d;--mark:#58a6ff}}
*{box-sizing:border-box}
body{margin:0;min-height:100vh;display:grid;place-items:center;padding:1.5rem;background:var(--ground);color:var(--ink);font:1rem/1.55 system-ui,sans-serif}
main{width:min(34rem,100%);padding:2rem;background:var(--card);border:1px solid var(--line);border-radius:.75rem}
h1{margin:0 0 .75rem;font-size:1.35rem;line-height:1.3}
p{margin:0 0 .75rem}
.bar{height:.25rem;margin:0 0 1.5rem;border-radius:1rem;background:var(--line);overflow:hidden}
.bar i{display:block;width:35%;height:100%;border-radius:1rem;background:var(--mark);animation:move 1.6s ease-in-out infinite alternate}
@keyframes move{from{margin-left:0}to{margin-left:65%}}
@media (prefers-reduced-motion:reduce){.bar i{animation:none;width:100%}}
.name{overflow-wrap:anywhere;font-weight:600}
.quiet{margin:0;color:var(--quiet);font-size:.9rem}
a{color:var(--mark)}
"""

# The name can't be HTML by the rules for names; it is escaped all the same. An empty icon: a browser asks for no other.
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="robots" content="noindex">
<meta http-equiv="refresh" content="%d">
<title>Waking up…</title>
<link rel="icon" href="data:,">
<style>%s</style>
</head>
<body>
<main>
<div class="bar" aria-hidden="true"><i></i></div>
<h1 role="status">This sandbox is waking up</h1>
<p><span class="name">%s</span> was asleep, to save resources. Your visit is starting it again; its files are as they were.</p>
<p>This usually takes less than a minute. The page opens by itself as soon as the app answers.</p>
<p class="quiet">Nothing happens for several minutes? <a href="">Try again now</a>, or tell whoever runs this sandbox.</p>
</main>
</body>
</html>
"""

_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS: Final = (
    b"Content-Security-Policy: default-src 'none'; style-src 'sha256-%b'; img-src data:; base-uri 'none'; form-action 'none'\r\n"
    % _STYLE_HASH.encode(),
    b"X-Content-Type-Options: nosniff\r\n",
    b"Referrer-Policy: no-referrer\r\n",
    b"X-Robots-Tag: noindex\r\n",
)
"""What goes with the page: nothing is loaded, nothing runs, and only its own style applies."""


def page_about(sandbox: str) -> bytes:
    """Returns the page about the sandbox of that name."""
    return (_PAGE % (RELOAD_S, _STYLE, html.escape(sandbox))).encode()
