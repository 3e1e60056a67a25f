"""Who has signed in, read from headers: one header, one name, or nobody."""

from __future__ import annotations

import pytest

from router.auth.authenticator import ForwardedIdentity
from router.proxy.wire.forwarded_identity import NOBODY, IdentityHeaders
from router.proxy.wire.request_head import parse_request

NAMES = IdentityHeaders(b"x-auth-request-email", b"x-auth-request-groups")
ADA = "X-Auth-Request-Email: ada@example.com"


def read(*lines: str, names: IdentityHeaders = NAMES) -> ForwardedIdentity | None:
    block = "\r\n".join(["GET / HTTP/1.1", "Host: box", *lines, "", ""])
    return names.read(parse_request(block.encode("latin-1")))


def test_one_header_names_one_person() -> None:
    assert read(ADA) == ForwardedIdentity("ada@example.com")
    assert read("x-AUTH-request-EMAIL:  ada@example.com \t") == ForwardedIdentity("ada@example.com")


def test_groups_are_a_list_with_commas() -> None:
    groups = "X-Auth-Request-Groups: users, admins ,, a b"
    assert read(ADA, groups) == ForwardedIdentity("ada@example.com", ("users", "admins", "a b"))
    assert read(ADA, groups, names=IdentityHeaders(b"x-auth-request-email")) == ForwardedIdentity(
        "ada@example.com"
    )
    assert read(ADA, "X-Auth-Request-Groups:") == ForwardedIdentity("ada@example.com")


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("X-Auth-Request-Groups: admins",),
        ("X_Auth_Request_Email: ada@example.com",),
        ("X-Auth-Request-Email2: ada@example.com",),
        ("X-Auth-Request-Emai: l",),
    ],
)
def test_no_other_header_names_anybody(lines: tuple[str, ...]) -> None:
    assert read(*lines) is None


@pytest.mark.parametrize(
    "lines",
    [
        (ADA, ADA),
        (ADA, "x-auth-request-email: root@example.com"),
        ("X-Auth-Request-Email: root@example.com, ada@example.com",),
        ("X-Auth-Request-Email:",),
        ("X-Auth-Request-Email: \xe4\xff",),
        ("X-Auth-Request-Email: a\xc2\x85b",),
        ("X-Auth-Request-Email: " + "a" * 5000,),
        (ADA, "X-Auth-Request-Groups: a", "X-Auth-Request-Groups: admins"),
        (ADA, "X-Auth-Request-Groups: \xff"),
        (ADA, "X-Auth-Request-Groups: " + "a," * 300),
    ],
)
def test_what_is_not_clear_names_nobody(lines: tuple[str, ...]) -> None:
    assert read(*lines) == NOBODY


def test_a_name_beyond_ascii_is_read_as_utf_8() -> None:
    assert read("X-Auth-Request-Email: \xc3\xa4da") == ForwardedIdentity("äda")


def test_a_list_of_lonely_commas_is_no_group() -> None:
    assert read(ADA, "X-Auth-Request-Groups: ,,") == ForwardedIdentity("ada@example.com")
