"""The mask of a client's frames comes off in both forms, whatever the length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.proxy.wire.unmasking import unmask, unmask_in_python


def one_by_one(data: bytes, mask: bytes) -> bytes:
    return bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_every_byte_is_xored_with_its_byte_of_the_mask(data: bytes, mask: bytes) -> None:
    assert unmask(data, mask) == one_by_one(data, mask)
    assert unmask_in_python(data, mask) == one_by_one(data, mask)


def test_masking_twice_changes_nothing() -> None:
    data = bytes(range(256)) * 1025
    assert unmask(unmask(data, b"\x01\xfe\x80\x7f"), b"\x01\xfe\x80\x7f") == data
