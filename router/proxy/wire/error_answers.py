"""The answer to a request that failed, as whoever sent it can use it: JSON for programs, a page or the way to sign in for people."""

from __future__ import annotations

from urllib.parse import quote_from_bytes

from router.errors import RouterError, SandboxWaking, Unauthenticated
from router.proxy.wire import error_pages, waiting_page
from router.proxy.wire.forwarding import front_prefix
from router.proxy.wire.local_responses import error_answer, page_answer, sign_in_answer
from router.proxy.wire.navigation import is_navigation, is_shown_to_a_person
from router.proxy.wire.peer import Peer, called_host, called_scheme
from router.proxy.wire.request_head import RequestHead
from router.proxy.wire.router_paths import LOGOUT, PREFIX, SESSION
from router.proxy.wire.session_cookie import is_loopback


def answer_for(
    error: RouterError, head: RequestHead, peer: Peer, *, close: bool, login_url: str = ""
) -> bytes:
    """Returns the whole response to a request that failed. `login_url` is where people sign in, "" for nowhere."""
    is_head = head.method == b"HEAD"
    if isinstance(error, SandboxWaking) and error.page_about:
        page, lines = waiting_page.page_about(error.page_about), waiting_page.HEADERS
        return page_answer(error, page, lines, is_head=is_head, close=close)
    if not is_shown_to_a_person(head):
        return error_answer(error, is_head=is_head, close=close)
    at = head.target.partition(b"?")[0].find(PREFIX)
    root = head.target[:at] if at > 0 and not head.target.startswith(b"//") else b""
    is_link = at >= 0 and head.target.startswith(SESSION, at + len(PREFIX))
    sign_in = b""
    if login_url and isinstance(error, Unauthenticated):
        # Back at a link that is over, people would be sent to sign in again.
        is_sent = is_navigation(head) and not is_link
        sign_in = sign_in_url(login_url, _url(head, peer, head.target if is_sent else root + b"/"))
        if is_sent:
            return sign_in_answer(error, sign_in, is_head=is_head, close=close)
    sign_out = front_prefix(head, peer) + root + PREFIX + LOGOUT if is_link else b""
    page, lines = error_pages.error_page(
        error,
        is_link=is_link,
        sign_in=sign_in.decode("ascii"),
        sign_out=sign_out.decode("latin-1"),
    )
    return page_answer(error, page, lines, is_head=is_head, close=close)


def sign_in_url(login_url: str, back_to: bytes) -> bytes:
    """Returns where a person is sent to sign in, to come back to that URL (`rd`, as oauth2-proxy and its like read it)."""
    separator = "&" if "?" in login_url else "?"
    return f"{login_url}{separator}rd={quote_from_bytes(back_to, safe='')}".encode("ascii")


def _url(head: RequestHead, peer: Peer, target: bytes) -> bytes:
    """Returns the URL that the browser has asked for, as far as that can be known: without any word of it, it came by https."""
    host = called_host(head, peer)
    scheme = called_scheme(head, peer) or (b"http" if is_loopback(host) else b"https")
    return b"%b://%b%b%b" % (scheme, host, front_prefix(head, peer), target)
