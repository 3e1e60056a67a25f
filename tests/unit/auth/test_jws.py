"""The compact form: one spelling for one token, and nothing believed too early."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.auth.jws import NotJwsError, header_fault, parse_jws
from tests.unit.auth.tokens import sign


def _part(value: Any) -> bytes:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def _token(header: Any, claims: Any, signature: bytes = b"sig") -> bytes:
    return b".".join((_part(header), _part(claims), _part(signature)))


def test_a_signed_token_is_taken_apart() -> None:
    token = sign({"sub": "alice"}, headers={"kid": "k1"})

    jws = parse_jws(token)

    assert jws.header["kid"] == "k1"
    assert jws.claims["sub"] == "alice"
    assert token.startswith(jws.signed + b".")


GOOD = _token({"alg": "HS256"}, {"sub": "a"}, b"s")


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b".",
        b"..",
        b"a.b",
        GOOD + b"=",
        GOOD + b"==",
        GOOD + b"\n",
        b" " + GOOD,
        GOOD + b".",
        GOOD + b".x",
        GOOD.replace(b".", b"..", 1),
        GOOD[:-1] + b"!",
        GOOD[:-1] + b"\xff",
        GOOD[:-1] + chr(GOOD[-1] + 1).encode(),
        _token(b"not json", {}),
        _token({}, b"not json"),
        _token([], {}),
        _token({}, []),
        _token({}, "text"),
        _token({}, b"\xff\xfe"),
        _token(b'{"a": NaN}', {}),
        _token({}, b'{"exp": Infinity}'),
        _token(b"[" * 5000, {}),
        _token({}, b'{"a":' * 2000),
        _token({}, b'"\\ud800"'),
        b"a.b.c",
    ],
)
def test_other_spellings_and_other_content_are_refused(token: bytes) -> None:
    with pytest.raises(NotJwsError):
        parse_jws(token)


def test_an_unsecured_token_has_no_signature_and_so_no_form() -> None:
    with pytest.raises(NotJwsError):
        parse_jws(jwt.encode({"sub": "a"}, None, algorithm="none").encode())


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "HS256"},
        {"alg": "HS256", "typ": "JWT", "kid": "a"},
        {"alg": "HS256", "typ": "jwt"},
        {"alg": "HS256", "typ": "at+jwt", "jku": "https://evil.example", "x5c": ["x"]},
    ],
)
def test_ordinary_headers_have_no_fault(header: dict[str, Any]) -> None:
    assert header_fault(header) == ""


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"alg": None},
        {"alg": 5},
        {"alg": ["HS256"]},
        {"alg": "HS256", "kid": 5},
        {"alg": "HS256", "kid": None},
        {"alg": "HS256", "typ": "dpop+jwt"},
        {"alg": "HS256", "typ": "logout+jwt"},
        {"alg": "HS256", "typ": 5},
        {"alg": "HS256", "crit": ["b64"], "b64": False},
        {"alg": "HS256", "crit": []},
        {"alg": "HS256", "crit": ["exp"]},
    ],
)
def test_headers_that_ask_for_more_or_for_another_kind_have_one(header: dict[str, Any]) -> None:
    assert header_fault(header)


@given(st.binary(max_size=200) | st.from_regex(rb"[A-Za-z0-9_.-]{0,200}", fullmatch=True))
def test_whatever_the_bytes_are_they_are_a_token_or_an_error(token: bytes) -> None:
    try:
        jws = parse_jws(token)
    except NotJwsError:
        return

    assert isinstance(jws.header, dict)


@given(
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(-(2**53), 2**53), max_size=3),
    st.binary(min_size=1, max_size=80),
)
def test_what_is_put_together_is_taken_apart_the_same(
    header: dict[str, Any], claims: dict[str, Any], signature: bytes
) -> None:
    jws = parse_jws(_token(header, claims, signature))

    assert jws.claims == claims
    assert jws.signature == signature
