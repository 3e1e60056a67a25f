"""HTTP Basic: the token in a password, and who is offered to send one."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.auth.basic import basic_token, helps, looks_like_a_gateway_token


def _basic(pair: bytes) -> bytes:
    return b"Basic " + base64.b64encode(pair)


@pytest.mark.parametrize(
    ("pair", "token"),
    [
        (b"git:s3cret", b"s3cret"),
        (b":s3cret", b"s3cret"),
        (b"user:with:colons", b"with:colons"),
        (b"us\xc3\xa9r:caf\xc3\xa9", b"caf\xc3\xa9"),
        (b"s3cret:", None),
        (b"s3cret", None),
        (b"", None),
    ],
)
def test_the_token_is_what_follows_the_first_colon(pair: bytes, token: bytes | None) -> None:
    assert basic_token(_basic(pair)) == token


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Basic",
        b"Basic ",
        b"Basic dTpw dTpw",
        b"Basic dTp!",
        b"Basic dTpwYQ",
        b"Basic dT\xff",
        b"Bearer dTpw",
    ],
)
def test_what_is_malformed_or_something_else_holds_no_token(value: bytes) -> None:
    assert basic_token(value) is None


@pytest.mark.parametrize("scheme", [b"basic", b"BASIC", b"Basic", b"  basic"])
def test_the_scheme_may_be_in_any_case(scheme: bytes) -> None:
    assert basic_token(scheme + b" dTpw") == b"p"


@given(st.binary(max_size=40))
def test_whatever_the_bytes_are_there_is_a_token_or_none(value: bytes) -> None:
    token = basic_token(b"Basic " + value)

    assert token is None or token


@pytest.mark.parametrize(
    ("password", "expected"),
    [(b"aa.bb.cc", True), (b"correct horse", False), (b"a.b", False), (b"aa.bb.cc\n", False)],
)
def test_a_gateway_token_is_known_by_its_form(password: bytes, expected: bool) -> None:
    assert looks_like_a_gateway_token(password) is expected


@pytest.mark.parametrize(
    ("fetch_mode", "expected"),
    [
        (None, True),
        (b"navigate", True),
        (b"cors", False),
        (b"no-cors", False),
        (b"same-origin", False),
        (b"websocket", False),
        (b"", False),
    ],
)
def test_a_browser_is_offered_a_dialog_for_pages_alone(
    fetch_mode: bytes | None, expected: bool
) -> None:
    assert helps(fetch_mode) is expected
