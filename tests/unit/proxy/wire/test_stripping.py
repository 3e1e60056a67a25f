"""What of a front is kept from sandboxes."""

from __future__ import annotations

import pytest

from router.proxy.wire.stripping import Names, Stripped


@pytest.mark.parametrize(
    ("name", "held"),
    [
        (b"sid", True),
        (b"SID", False),
        (b"sid2", False),
        (b"_o_1", True),
        (b"_o", False),
        (b"", False),
    ],
)
def test_a_name_is_held_whole_or_by_its_beginning(name: bytes, held: bool) -> None:
    assert Names.of([b"sid", b"_o_*"]).hold(name) is held


def test_nothing_named_is_nothing_to_strip() -> None:
    assert Stripped.of([], []) is None


def test_header_names_are_compared_as_a_server_would() -> None:
    stripped = Stripped.of(["X-User"], [])
    assert stripped is not None
    lines = [b"GET / HTTP/1.1", b"x_USER: a", b"X-User: b", b"X-User-2: c", b"X-User:d", b"", b""]
    assert stripped.places(lines) == [1, 2, 4]


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (b"a=1; sid=2; b=3", b"a=1; b=3"),
        (b"sid=2; b=3", b"b=3"),
        (b"b=3;sid=2", b"b=3"),
        (b"sid", b""),
        (b" sid =2;b", b"b"),
        (b"sid=2; sid=3", b""),
        (b"xsid=2;  a", b"xsid=2;  a"),
    ],
)
def test_a_cookie_is_taken_out_of_its_header(value: bytes, left: bytes) -> None:
    stripped = Stripped.of([], ["sid"])
    assert stripped is not None
    assert stripped.without_cookies(value) == left


def test_what_is_remembered_of_cookies_is_bounded_and_never_shown() -> None:
    stripped = Stripped.of([], ["sid"])
    assert stripped is not None
    for number in range(1000):
        assert stripped.without_cookies(b"sid=secret; n=%d" % number) == b"n=%d" % number
        assert stripped.without_cookies(b"sid=secret; n=%d" % number) == b"n=%d" % number
    long = b"sid=secret; a=" + b"x" * 4000
    assert stripped.without_cookies(long) == long[12:]
    assert len(stripped._kept) <= 256
    assert long not in stripped._kept
    assert "secret" not in repr(stripped)
