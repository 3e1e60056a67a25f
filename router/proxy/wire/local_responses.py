"""The bytes of the answers that the router itself gives."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

import orjson

from router.errors import MethodNotAllowed, RouterError, Unauthenticated
from router.proxy.wire import pages


def error_answer(error: RouterError, *, is_head: bool, close: bool) -> bytes:
    """Returns a whole HTTP/1.1 response for the error: JSON, with its length and the error's code as a header."""
    told = {"detail": error.detail, "code": error.code, "retryable": error.retryable}
    body = orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)  # else a shell's prompt follows it
    return _answer(error.status, body, _headers_of(error), is_head=is_head, close=close)


def page_answer(
    error: RouterError, page: bytes, lines: Iterable[bytes], *, is_head: bool, close: bool
) -> bytes:
    """Returns the same with a page in place of the JSON; `lines` are the headers that go with it."""
    extra = [*_headers_of(error), *lines]
    return _answer(error.status, page, extra, is_head=is_head, close=close, kind=pages.TYPE)


def sign_in_answer(error: Unauthenticated, where: bytes, *, is_head: bool, close: bool) -> bytes:
    """Returns the redirect of a navigation to where people sign in."""
    extra = [b"X-Sandbox-Router-Error: %b\r\n" % error.code.encode(), b"Location: %b\r\n" % where]
    if error.set_cookie:
        extra.append(b"Set-Cookie: %b\r\n" % error.set_cookie)
    return _answer(303, b"", extra, is_head=is_head, close=close, kind=pages.TYPE)


def _headers_of(error: RouterError) -> list[bytes]:
    extra = [b"X-Sandbox-Router-Error: %b\r\n" % error.code.encode()]
    if error.retry_after_s is not None:
        extra.append(b"Retry-After: %d\r\n" % error.retry_after_s)
    if isinstance(error, MethodNotAllowed):
        extra.append(b"Allow: %b\r\n" % error.allow.encode())
    if isinstance(error, Unauthenticated):
        extra.append(b"WWW-Authenticate: %b\r\n" % error.challenge.encode())
        if error.basic_challenge:
            extra.append(b"WWW-Authenticate: %b\r\n" % error.basic_challenge.encode())
        if error.set_cookie:
            extra.append(b"Set-Cookie: %b\r\n" % error.set_cookie)
    return extra


def health_answer(*, is_head: bool, close: bool) -> bytes:
    """Returns the answer that load balancers look for on `GET /healthz`."""
    return _answer(200, b'{"status":"ok"}', [], is_head=is_head, close=close)


def redirect_answer(location: bytes, *, is_head: bool, close: bool) -> bytes:
    """Returns a permanent redirect, which keeps the method (RFC 9110 §15.4.9)."""
    return b"".join(
        (
            b"HTTP/1.1 308 Permanent Redirect\r\n",
            b"Location: %b\r\nCache-Control: no-store\r\nContent-Length: 0\r\n" % location,
            b"Connection: close\r\n\r\n" if close else b"\r\n",
        )
    )


def session_answer(location: bytes, set_cookie: bytes, *, is_head: bool, close: bool) -> bytes:
    """Returns the redirect to the sandbox's own page by which a session begins. Nobody keeps it, or tells where it came from."""
    return b"".join(
        (
            b"HTTP/1.1 303 See Other\r\n",
            b"Location: %b\r\nSet-Cookie: %b\r\n" % (location, set_cookie),
            b"Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nContent-Length: 0\r\n",
            b"Connection: close\r\n\r\n" if close else b"\r\n",
        )
    )


def signed_out_answer(
    set_cookie: bytes, page: bytes | None, *, is_head: bool, close: bool
) -> bytes:
    """Returns the answer to who ends a session: a page for people, else JSON. What the browser kept of pages goes with the cookie."""
    extra = [b"Set-Cookie: %b\r\n" % set_cookie, b'Clear-Site-Data: "cache"\r\n']
    if page is None:
        return _answer(200, b'{"signed_out":true}\n', extra, is_head=is_head, close=close)
    extra += pages.headers()
    return _answer(200, page, extra, is_head=is_head, close=close, kind=pages.TYPE)


def home_answer(
    status: int, kind: bytes, lines: Iterable[bytes], body: bytes, *, is_head: bool, close: bool
) -> bytes:
    """Returns a response of the home page; `lines` are header lines with their ends."""
    return _answer(status, body, list(lines), is_head=is_head, close=close, kind=kind)


def _answer(
    status: int,
    body: bytes,
    extra: list[bytes],
    *,
    is_head: bool,
    close: bool,
    kind: bytes = b"application/json",
) -> bytes:
    return b"".join(
        (
            b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode()),
            b"Content-Type: %b\r\nCache-Control: no-store\r\n" % kind,
            b"Content-Length: %d\r\n" % len(body),
            *extra,
            b"Connection: close\r\n" if close else b"",
            b"\r\n",
            b"" if is_head else body,
        )
    )
