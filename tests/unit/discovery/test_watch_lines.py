from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.discovery.watch_lines import BrokenWatchError, LineSplitter


@given(
    lines=st.lists(st.binary(min_size=1, max_size=30).filter(lambda line: b"\n" not in line)),
    cuts=st.lists(st.integers(0, 400)),
)
def test_lines_come_out_whole_however_they_arrive(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    splitter = LineSplitter()

    found: list[bytes] = []
    for start, end in pairwise(edges):
        found += splitter.feed(stream[start:end])

    assert found == lines
    assert splitter.pending_bytes == 0


def test_a_line_cut_short_is_pending() -> None:
    splitter = LineSplitter()

    assert splitter.feed(b'{"a":1}\n{"b"') == [b'{"a":1}']
    assert splitter.pending_bytes == 4


def test_empty_lines_are_left_out() -> None:
    assert LineSplitter().feed(b"\n\na\n\n") == [b"a"]


@pytest.mark.parametrize("before", [b"", b"x" * 6, b"a\n"])
def test_a_line_beyond_the_limit_breaks_the_watch(before: bytes) -> None:
    splitter = LineSplitter(limit_bytes=10)
    splitter.feed(before)

    with pytest.raises(BrokenWatchError):
        splitter.feed(b"x" * 11)


def test_many_lines_that_are_long_together_are_fine() -> None:
    splitter = LineSplitter(limit_bytes=10)

    assert splitter.feed(b"123456789\n" * 50) == [b"123456789"] * 50
