"""The pages that the router itself shows to people: one look, one policy. They run nothing and fetch nothing.

Whoever writes one gives text; what came from outside is escaped here.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from typing import Final

TYPE: Final = b"text/html; charset=utf-8"

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
.quiet{margin:0;color:var(--quiet);font-size:.9rem;overflow-wrap:anywhere}
code{font:.9em ui-monospace,monospace}
a{color:var(--mark)}
button{font:inherit;margin:0 0 .75rem;padding:.4rem 1rem;color:var(--card);background:var(--mark);border:0;border-radius:.4rem;cursor:pointer}
:focus-visible{outline:2px solid var(--mark);outline-offset:2px}
"""

# An empty icon: a browser asks for no other.
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="robots" content="noindex">
{refresh}<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main>
{bar}<h1 role="status">{heading}</h1>
{body}
</main>
</body>
</html>
"""
_BAR: Final = '<div class="bar" aria-hidden="true"><i></i></div>\n'

_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


def headers(*, has_form: bool = False) -> tuple[bytes, ...]:
    """Returns the lines that go with a page: nothing is loaded, nothing runs, only its own style applies; a form leads home."""
    policy = (
        b"Content-Security-Policy: default-src 'none'; style-src 'sha256-%b'; img-src data:; base-uri 'none'; "
        b"form-action %b%b\r\n"
        % (
            _STYLE_HASH.encode(),
            b"'self'" if has_form else b"'none'",
            # Nobody lays another page over a button.
            b"; frame-ancestors 'none'" if has_form else b"",
        )
    )
    return (
        policy,
        b"X-Content-Type-Options: nosniff\r\n",
        b"Referrer-Policy: no-referrer\r\n",
        b"X-Robots-Tag: noindex\r\n",
    )


def page(
    *,
    title: str,
    heading: str,
    paragraphs: Sequence[str],
    quiet: str,
    is_under_way: bool = False,
    reload_s: int | None = None,
) -> bytes:
    """Returns a page. `paragraphs` and `quiet`, the small print, are markup; everything else is text.

    `is_under_way` shows that something is being waited for; after `reload_s` the page is asked for again.
    """
    refresh = "" if reload_s is None else f'<meta http-equiv="refresh" content="{reload_s}">\n'
    body = "\n".join(
        [
            *(p if p.startswith("<form") else f"<p>{p}</p>" for p in paragraphs),
            f'<p class="quiet">{quiet}</p>',
        ]
    )
    return _PAGE.format(
        refresh=refresh,
        title=html.escape(title),
        style=_STYLE,
        bar=_BAR if is_under_way else "",
        heading=html.escape(heading),
        body=body,
    ).encode("utf-8", "replace")


def button(action: str, label: str) -> str:
    """Returns a form that is one button: a POST to `action`, without a body."""
    return (
        f'<form method="post" action="{html.escape(action)}">'
        f"<button>{html.escape(label)}</button></form>"
    )
