"""Hosts and ports in a form that can be compared."""

from __future__ import annotations

import pytest

from router.routing.authority import canonical_authority


@pytest.mark.parametrize(
    ("authority", "scheme", "canonical"),
    [
        (b"Box.Example", b"http", b"box.example"),
        (b"box:80", b"http", b"box"),
        (b"box:080", b"http", b"box"),
        (b"box:80", b"https", b"box:80"),
        (b"box:443", b"https", b"box"),
        (b"box:", b"http", b"box"),
        (b"box:08080", b"http", b"box:8080"),
        (b"box:80", b"", b"box:80"),
        (b"[::1]", b"http", b"[::1]"),
        (b"[::1]:443", b"https", b"[::1]"),
        (b"box:123456", b"http", b"box:123456"),
        (b"box:x", b"http", b"box:x"),
        (b"", b"http", b""),
    ],
)
def test_two_spellings_of_one_authority_are_one(
    authority: bytes, scheme: bytes, canonical: bytes
) -> None:
    assert canonical_authority(authority, scheme) == canonical


def test_what_is_too_long_to_be_one_is_left_alone() -> None:
    long = b"A" * 400 + b":80"
    assert canonical_authority(long, b"http") is long
