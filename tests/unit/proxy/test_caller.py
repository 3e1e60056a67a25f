"""What a connection remembers of its last request."""

from __future__ import annotations

import pytest

from router.auth.anonymous import PREFLIGHT
from router.auth.authenticator import Authenticated
from router.auth.authorizer import Permit
from router.proxy.caller import Caller, Remembered
from router.proxy.wire.peer import Peer
from router.proxy.wire.request_head import RequestHead, parse_request
from router.routing.target import Target
from tests.unit.proxy.stage import BOX

CREDENTIAL = {
    "Authorization": "Bearer a",
    "X-Sandbox-Token": "b",
    "X-Forwarded-Client-Cert": "Hash=c",
}


def head(**more: str) -> RequestHead:
    lines = CREDENTIAL | {name.replace("_", "-"): value for name, value in more.items()}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return parse_request(f"GET / HTTP/1.1\r\nHost: h\r\n{text}\r\n".encode())


def remembered(*, counts_cookie: bool = False) -> Remembered:
    return Remembered(
        head(Cookie="c=1"),
        Target(BOX.ref, 8888),
        Authenticated(PREFLIGHT, consumed_authorization=True),
        Permit(PREFLIGHT, BOX, 8888),
        (1, 2, 3),
        float("inf"),
        counts_cookie=counts_cookie,
        is_ambient=counts_cookie,
    )


def test_a_new_caller_remembers_nothing() -> None:
    assert Caller(Peer("192.0.2.1", is_tls=False, trusted=())).remembered is None


def test_it_keeps_no_head() -> None:
    kept = remembered()
    assert not any(isinstance(getattr(kept, name), RequestHead) for name in Remembered.__slots__)


def test_a_cookie_is_kept_only_where_it_could_make_another_caller() -> None:
    assert remembered().cookie is None
    assert remembered(counts_cookie=True).cookie == b"c=1"


def test_the_same_credential_is_known_again() -> None:
    assert remembered().has_credential_of(head())
    assert remembered().has_credential_of(head(Cookie="c=2"))


@pytest.mark.parametrize(
    "other",
    [
        {"Authorization": "Bearer A"},
        {"X_Sandbox_Token": "B"},
        {"X_Forwarded_Client_Cert": "Hash=d"},
        {"Sec_WebSocket_Protocol": "sandbox.token.a"},
    ],
    ids=str,
)
def test_any_other_credential_is_not(other: dict[str, str]) -> None:
    assert not remembered().has_credential_of(head(**other))


def test_another_cookie_is_not_where_it_counts() -> None:
    assert remembered(counts_cookie=True).has_credential_of(head(Cookie="c=1"))
    assert not remembered(counts_cookie=True).has_credential_of(head(Cookie="c=2"))
