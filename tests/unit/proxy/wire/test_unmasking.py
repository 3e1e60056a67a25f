"""The mask of a client's frames comes off in both forms, wherever it stands and whatever the length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.wire.unmasking import unmask, unmask_in_python


def one_by_one(data: bytes, mask: bytes) -> bytes:
    return bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


@given(
    st.binary(max_size=40), st.binary(max_size=300), st.binary(min_size=4, max_size=4), st.binary()
)
def test_every_byte_is_xored_with_its_byte_of_the_mask(
    before: bytes, data: bytes, mask: bytes, behind: bytes
) -> None:
    whole, begin = before + data + behind, len(before)
    for form in (unmask, unmask_in_python):
        assert form(whole, mask, begin, begin + len(data)) == one_by_one(data, mask)


def test_masking_twice_changes_nothing() -> None:
    data, mask = bytes(range(256)) * 1025, b"\x01\xfe\x80\x7f"
    assert unmask(unmask(data, mask, 0, len(data)), mask, 0, len(data)) == data


@pytest.mark.skipif(unmask is unmask_in_python, reason="the compiled form checks its bounds")
@pytest.mark.parametrize(
    ("mask", "begin", "end"),
    [(b"abc", 0, 1), (b"abcde", 0, 1), (b"abcd", 0, 4), (b"abcd", -1, 2), (b"abcd", 3, 2)],
)
def test_the_compiled_form_reads_nothing_outside(mask: bytes, begin: int, end: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        unmask(b"xyz", mask, begin, end)
