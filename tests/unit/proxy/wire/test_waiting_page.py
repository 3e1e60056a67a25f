"""The page says what happens, loads itself again, and neither runs nor fetches anything."""

from __future__ import annotations

import base64
import hashlib
import re

from router.errors import SandboxWaking
from router.proxy.wire.error_answers import answer_for
from router.proxy.wire.local_responses import error_answer
from router.proxy.wire.waiting_page import HEADERS, RELOAD_S, page_about
from tests.unit.proxy.wire.test_forwarding import STRANGER, head_of


def response(*, is_head: bool = False) -> tuple[str, dict[str, str], str]:
    error = SandboxWaking()
    error.page_about = "team-a/box"
    method = "HEAD" if is_head else "GET"
    head = head_of(line=f"{method} / HTTP/1.1")
    raw = answer_for(error, head, STRANGER, close=False).decode()
    head, _, body = raw.partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    return status, dict(line.split(": ", 1) for line in lines), body


def test_its_head_says_that_it_is_no_app_and_when_to_come_back() -> None:
    status, headers, body = response()
    assert status == "HTTP/1.1 503 Service Unavailable"
    assert headers["X-Sandbox-Router-Error"] == "sandbox_waking"
    assert headers["Retry-After"] == "2"
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Cache-Control"] == "no-store"
    assert int(headers["Content-Length"]) == len(body.encode())


def test_a_program_gets_json_without_any_of_it() -> None:
    raw = error_answer(SandboxWaking(), is_head=False, close=False)
    assert b"application/json" in raw
    assert b"Content-Security-Policy" not in raw


def test_nothing_runs_and_only_its_own_style_applies() -> None:
    _, headers, body = response()
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    [style] = re.findall(r"<style>(.*?)</style>", body, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert "<script" not in body
    assert "style=" not in body, "the policy would refuse it"


def test_nothing_is_fetched_from_anywhere() -> None:
    body = page_about("box").decode()
    assert re.findall(r"(?:src|href)=\"(.*?)\"", body) == ["data:,", ""]
    assert "url(" not in body
    assert "http" not in body.replace("http-equiv", "")


def test_it_loads_the_same_address_again_by_itself() -> None:
    body = page_about("box").decode()
    assert f'<meta http-equiv="refresh" content="{RELOAD_S}">' in body
    assert "<form" not in body


def test_it_is_for_everyone() -> None:
    body = page_about("box").decode()
    assert '<html lang="en">' in body
    assert 'role="status"' in body
    assert "prefers-color-scheme:dark" in body
    assert "prefers-reduced-motion" in body
    assert "width=device-width" in body


def test_a_name_is_no_markup() -> None:
    assert b"<b>" not in page_about("<b>x</b>")


def test_every_header_is_a_line() -> None:
    assert all(line.endswith(b"\r\n") and line.count(b"\r\n") == 1 for line in HEADERS)
