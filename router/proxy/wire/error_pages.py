"""What a person's browser shows in place of an error's JSON: what happened, what to do, and the code to tell whoever runs it."""

from __future__ import annotations

import html
from typing import Final, NamedTuple

from router.errors import CrossOrigin, RouterError, Unauthenticated
from router.proxy.wire import pages


class Text(NamedTuple):
    """What a page says, in a person's words."""

    heading: str
    happened: str
    to_do: str


_AGAIN: Final = "Try again in a moment."
_ADDRESS: Final = Text(
    "There is no sandbox at this address",
    "The address does not name a sandbox in a way that this router understands.",
    "Check the address, or open the sandbox again from where you found it.",
)
_REQUEST: Final = Text(
    "This request does not work",
    "The router could not accept what your browser sent.",
    "Go back and try again. If it happens again, delete this site's cookies and open the page anew.",
)
_TOO_LONG: Final = Text(
    "The address or the cookies are too long",
    "Your browser sent more than the router accepts.",
    "Delete this site's cookies and open the page anew.",
)
_BUSY: Final = Text(
    "Too much is going on",
    "This sandbox, or the router in front of it, has as much to do as it can take.",
    _AGAIN,
)
_ROUTER: Final = Text(
    "Sandboxes cannot be reached right now",
    "The router in front of the sandboxes is not ready.",
    "Try again in a moment. If it lasts, tell whoever runs it.",
)
_UNREACHABLE: Final = Text(
    "The app in this sandbox does not answer",
    "The sandbox is there, but no app answered at this port.",
    "Check that the app is running and listens on this port on all addresses, then try again.",
)
_NOT_HERE: Final = Text(
    "This is not for browsers",
    "What was asked for is not a page.",
    "Go back, and open the sandbox from where you found it.",
)
_SIGN_IN: Final = Text(
    "This sandbox needs a link",
    "Your browser has not been let in here, or not any more.",
    "Open the sandbox again from the place that gave you its link.",
)

TEXTS: Final[dict[str, Text]] = {
    **dict.fromkeys(
        (
            *("missing_sandbox_id", "invalid_sandbox_id", "invalid_namespace", "invalid_port"),
            *("invalid_pod_ip", "ambiguous_target", "misdirected"),
        ),
        _ADDRESS,
    ),
    **dict.fromkeys(("bad_request", "request_timeout", "version_not_supported"), _REQUEST),
    **dict.fromkeys(("headers_too_large", "uri_too_long"), _TOO_LONG),
    **dict.fromkeys(
        (
            "router_path_not_found",
            "method_not_allowed",
            "method_not_supported",
            "grpc_not_supported",
        ),
        _NOT_HERE,
    ),
    **dict.fromkeys(("too_many_requests", "wake_limited", "overloaded"), _BUSY),
    **dict.fromkeys(("draining", "index_stale", "auth_unavailable"), _ROUTER),
    **dict.fromkeys(("sandbox_unreachable", "bad_response"), _UNREACHABLE),
    "unauthenticated": _SIGN_IN,
    "forbidden": Text(
        "You may not open this sandbox",
        "You are known here, but have no right to this sandbox, or not to this port.",
        "Ask whoever runs it for access, or for a new link.",
    ),
    "cross_origin": Text(
        "This did not come from the sandbox itself",
        "A page of another site asked for this in your name, and that is not allowed here.",
        "If you meant to open the sandbox, do it from where you got its link.",
    ),
    "sandbox_not_found": Text(
        "There is no such sandbox",
        "No sandbox of this name exists, or it exists no longer.",
        "Check the address, or look for the sandbox where you found it.",
    ),
    "sandbox_replaced": Text(
        "This sandbox has been replaced",
        "There is another sandbox of the same name now.",
        "Open the sandbox again from where you found it.",
    ),
    "sandbox_suspended": Text(
        "This sandbox is asleep",
        "It was suspended to save resources, and opening this page does not wake it.",
        "Wake it where you manage your sandboxes, then try again.",
    ),
    "sandbox_finished": Text(
        "This sandbox has ended",
        "It finished its work or its time was over, and it will not come back.",
        "Make a new one.",
    ),
    "body_too_large": Text(
        "This is too large",
        "What you sent is larger than this router accepts.",
        "Go back, and send less.",
    ),
    "sandbox_not_ready": Text(
        "This sandbox is not ready yet",
        "It is still starting, or something keeps it from being ready.",
        "Try again in a moment. If it lasts, tell whoever runs the sandbox.",
    ),
    "sandbox_waking": Text(
        "This sandbox is waking up",
        "It was asleep and is starting again.",
        _AGAIN,
    ),
    "wake_unavailable": Text(
        "This sandbox cannot be woken right now",
        "It is asleep, and waking it did not work.",
        "Try again in a moment. If it lasts, tell whoever runs it.",
    ),
    "sandbox_timeout": Text(
        "The app in this sandbox takes too long",
        "It took the request and did not answer in time.",
        "Look at what the app is doing, then try again.",
    ),
    "internal_error": Text(
        "Something went wrong in the router",
        "This is a mistake in the router, not in the sandbox or in what you did.",
        "Try again. If it happens again, tell whoever runs it.",
    ),
}
"""By code; every code has one."""

_LINK_IS_OVER: Final = Text(
    "This link does not work any more",
    "Links to sandboxes are good for a short time only, or somebody has changed this one.",
    "Get a new link from the place that gave you this one.",
)
_SESSION_IS_OVER: Final = Text(
    "Your session has ended",
    "You were let in here for a time, and that time is over; or somebody has ended it.",
    "Open the sandbox again from the place that gave you its link.",
)
_SOMEBODY_ELSE: Final = Text(
    "You are somebody else here",
    "This browser is signed in to the sandbox as another person than the link is for.",
    "Sign out, then open the link again.",
)
SIGNED_OUT: Final = Text(
    "You have signed out",
    "Your session in this sandbox has ended, and what it had open is closed.",
    "To come back, open the sandbox from the place that gave you its link.",
)


def error_page(
    error: RouterError, *, is_link: bool = False, sign_in: str = "", sign_out: str = ""
) -> tuple[bytes, tuple[bytes, ...]]:
    """Returns the page about an error, and the header lines that go with it.

    `is_link` says that a link was opened; `sign_in` is the URL at which people sign in, `sign_out` the path at which they
    sign out, "" where there is none.
    """
    text = _text_for(error, is_link=is_link)
    paragraphs = [text.happened, text.to_do]
    has_form = text is _SOMEBODY_ELSE and bool(sign_out)
    if has_form:
        paragraphs.append(pages.button(sign_out, "Sign out"))
    if sign_in and isinstance(error, Unauthenticated):
        paragraphs.append(f'<a href="{html.escape(sign_in)}">Sign in</a>')
    if error.retryable:
        paragraphs.append('<a href="">Try again</a>')
    quiet = f"<code>{error.status} {error.code}</code> {html.escape(error.detail)}"
    return _whole(text, paragraphs, quiet), pages.headers(has_form=has_form)


def signed_out_page() -> bytes:
    """Returns the page for who has signed out; it goes with pages.headers()."""
    return _whole(SIGNED_OUT, [SIGNED_OUT.happened, SIGNED_OUT.to_do], "You can close this page.")


def _whole(text: Text, paragraphs: list[str], quiet: str) -> bytes:
    return pages.page(title=text.heading, heading=text.heading, paragraphs=paragraphs, quiet=quiet)


def _text_for(error: RouterError, *, is_link: bool) -> Text:
    if isinstance(error, Unauthenticated):
        if is_link:
            return _LINK_IS_OVER
        return _SESSION_IS_OVER if error.set_cookie else _SIGN_IN
    if isinstance(error, CrossOrigin) and error.is_of_somebody_else:
        return _SOMEBODY_ELSE
    return TEXTS[error.code]
