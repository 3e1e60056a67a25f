"""Where frames end, however the stream is cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.proxy.wire.websocket import CloseCode, FrameBoundary, close_frame

# Just around where the length takes another form (RFC 6455 §5.2).
LENGTHS = st.one_of(
    st.integers(0, 300), st.sampled_from([0, 1, 125, 126, 127, 65_535, 65_536, 70_000])
)


def frame(length: int, *, masked: bool, first: int = 0x82, form: int = 0) -> bytes:
    """Returns a frame of so long a payload; `form` forces the 16 or 64 bit length form."""
    mask = 0x80 if masked else 0
    if form == 64 or length > 65_535:
        head = bytes((first, mask | 127)) + length.to_bytes(8, "big")
    elif form == 16 or length > 125:
        head = bytes((first, mask | 126)) + length.to_bytes(2, "big")
    else:
        head = bytes((first, mask | length))
    return head + (b"MASK" if masked else b"") + b"p" * length


frames = st.builds(
    frame,
    LENGTHS,
    masked=st.booleans(),
    first=st.integers(0, 255),
    form=st.sampled_from([0, 0, 16, 64]),
)


def ends_seen(stream: bytes, cuts: list[int]) -> tuple[FrameBoundary, list[tuple[int, int, int]]]:
    """Feeds the stream cut at `cuts`. Returns (start, end, last frame end within, 0 for none) of each piece."""
    boundary = FrameBoundary()
    seen = []
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut <= len(stream))})
    for start, end in itertools.pairwise(edges):
        seen.append((start, end, boundary.feed(stream[start:end])))
    return boundary, seen


@given(st.lists(frames, min_size=1, max_size=6), st.lists(st.integers(0, 2000), max_size=12))
@example([frame(0, masked=False)] * 3, [1, 2, 3])
@example([frame(126, masked=True)], [1, 2, 3, 4, 5, 6, 7, 8])
def test_the_last_frame_end_is_found_under_any_cut(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    ends = [sum(map(len, parts[: n + 1])) for n in range(len(parts))]
    boundary, seen = ends_seen(stream, cuts)
    for start, end, found in seen:
        within = [e for e in ends if start < e <= end]
        assert found == (within[-1] - start if within else 0)
    assert boundary.is_between_frames


@given(frames, st.data())
def test_inside_a_frame_it_never_says_between(part: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(part) - 1))
    boundary = FrameBoundary()
    assert boundary.is_between_frames
    assert boundary.feed(part[:at]) == 0
    assert not boundary.is_between_frames
    assert boundary.feed(part[at:]) == len(part) - at
    assert boundary.is_between_frames


def test_byte_by_byte_is_as_good_as_at_once() -> None:
    stream = frame(5, masked=False) + frame(200, masked=True) + frame(0, masked=False)
    boundary = FrameBoundary()
    found = [at + 1 for at, byte in enumerate(stream) if boundary.feed(bytes((byte,)))]
    assert found == [7, 7 + 208, 7 + 208 + 2]


def test_a_length_of_63_bits_costs_nothing() -> None:
    boundary = FrameBoundary()
    assert boundary.feed(b"\x82\x7f" + (2**63 - 1).to_bytes(8, "big") + b"p" * 1000) == 0
    assert not boundary.is_between_frames


# --- the router's own Close -----------------------------------------------------------------


@pytest.mark.parametrize("code", list(CloseCode))
def test_a_close_frame_is_unmasked_and_says_code_and_reason(code: CloseCode) -> None:
    assert close_frame(code, "bye") == b"\x88\x05" + int(code).to_bytes(2, "big") + b"bye"


@given(st.text(max_size=200))
def test_a_close_frame_fits_a_control_frame_and_stays_utf8(reason: str) -> None:
    made = close_frame(CloseCode.GOING_AWAY, reason)
    assert FrameBoundary().feed(made) == len(made)
    assert made[1] <= 125
    text = made[4:].decode()
    assert reason.startswith(text)
    assert text == reason or len(made) > 2 + 120, "nothing is cut that would fit"


def test_the_codes_are_those_of_rfc_6455() -> None:
    assert (CloseCode.GOING_AWAY, CloseCode.POLICY_VIOLATION) == (1001, 1008)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 60)), min_size=1, max_size=6),
    st.lists(st.integers(0, 4000), max_size=6),
)
def test_runs_of_tiny_frames_end_where_they_end(
    runs: list[tuple[int, int]], cuts: list[int]
) -> None:
    stream = b"".join((b"\x82%c" % size + b"\x01" * size) * count for size, count in runs)
    ends = {0}
    for size, count in runs:
        for _ in range(count):
            ends.add(max(ends) + 2 + size)
    boundary = FrameBoundary()
    at = 0
    for cut in [*sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]:
        last = boundary.feed(stream[at:cut])
        assert boundary.is_between_frames == (cut in ends)
        assert at + last == max((end for end in ends if at < end <= cut), default=at)
        at = cut
