"""Every page of the router's own has one look and one policy, and what came from outside stays text."""

from __future__ import annotations

import base64
import hashlib
import re

from router.proxy.wire.pages import button, headers, page


def made(**more: object) -> str:
    given = {"title": "T", "heading": "H", "paragraphs": ["one", "two"], "quiet": "small"}
    return page(**{**given, **more}).decode()  # type: ignore[arg-type]


def test_a_page_says_what_it_was_given() -> None:
    text = made()
    assert "<title>T</title>" in text
    assert '<h1 role="status">H</h1>\n<p>one</p>\n<p>two</p>\n<p class="quiet">small</p>' in text


def test_text_is_no_markup() -> None:
    text = made(title="<b>&", heading="</h1><script>")
    assert "<title>&lt;b&gt;&amp;</title>" in text
    assert "<script" not in text


def test_the_policy_lets_its_own_style_apply_and_nothing_else() -> None:
    policy = headers()[0].decode()
    [style] = re.findall(r"<style>(.*?)</style>", made(), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (
        f"Content-Security-Policy: default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'\r\n"
    )


def test_a_form_leads_home_alone_and_nobody_frames_it() -> None:
    policy = headers(has_form=True)[0].decode()
    assert "form-action 'self'; frame-ancestors 'none'" in policy
    form = button('/.sandbox-router/logout"><script>', "Sign out")
    assert form.startswith('<form method="post" action="/.sandbox-router/logout&quot;&gt;')
    assert f"\n{form}\n" in made(paragraphs=[form])


def test_it_is_for_everyone() -> None:
    text = made()
    assert '<html lang="en">' in text
    assert "prefers-color-scheme:dark" in text
    assert "prefers-reduced-motion" in text
    assert ":focus-visible" in text
    assert "width=device-width" in text


def test_nothing_runs_and_nothing_is_fetched() -> None:
    text = made(is_under_way=True, reload_s=1)
    assert "<script" not in text
    assert "style=" not in text, "the policy would refuse it"
    assert re.findall(r"(?:src|href)=\"(.*?)\"", text) == ["data:,"]
    assert "url(" not in text


def test_a_page_loads_itself_again_only_where_it_was_told_to() -> None:
    assert '<meta http-equiv="refresh" content="3">' in made(reload_s=3)
    assert "http-equiv" not in made()
    assert 'class="bar"' in made(is_under_way=True)
    assert 'class="bar"' not in made()
