"""Where frames end, however the stream is cut; and which of its bytes are more than pings and pongs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.proxy.wire.websocket import CloseCode, FrameFollower, close_frame

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


def ends_seen(stream: bytes, cuts: list[int]) -> tuple[FrameFollower, list[tuple[int, int, int]]]:
    """Feeds the stream cut at `cuts`. Returns (start, end, last frame end within, 0 for none) of each piece."""
    boundary = FrameFollower(is_masked=False)
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
    boundary = FrameFollower(is_masked=False)
    assert boundary.is_between_frames
    assert repr(boundary) == "<FrameFollower left=0 broken=False>"
    assert boundary.feed(part[:at]) == 0
    assert not boundary.is_between_frames
    assert boundary.feed(part[at:]) == len(part) - at
    assert boundary.is_between_frames


def test_byte_by_byte_is_as_good_as_at_once() -> None:
    stream = frame(5, masked=False) + frame(200, masked=True) + frame(0, masked=False)
    boundary = FrameFollower(is_masked=False)
    found = [at + 1 for at, byte in enumerate(stream) if boundary.feed(bytes((byte,)))]
    assert found == [7, 7 + 208, 7 + 208 + 2]


def test_a_length_of_63_bits_costs_nothing() -> None:
    boundary = FrameFollower(is_masked=False)
    assert boundary.feed(b"\x82\x7f" + (2**63 - 1).to_bytes(8, "big") + b"p" * 1000) == 0
    assert not boundary.is_between_frames


# --- the router's own Close -----------------------------------------------------------------


@pytest.mark.parametrize("code", list(CloseCode))
def test_a_close_frame_is_unmasked_and_says_code_and_reason(code: CloseCode) -> None:
    assert close_frame(code, "bye") == b"\x88\x05" + int(code).to_bytes(2, "big") + b"bye"


@given(st.text(max_size=200))
def test_a_close_frame_fits_a_control_frame_and_stays_utf8(reason: str) -> None:
    made = close_frame(CloseCode.GOING_AWAY, reason)
    assert FrameFollower(is_masked=False).feed(made) == len(made)
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
    boundary = FrameFollower(is_masked=False)
    at = 0
    for cut in [*sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]:
        last = boundary.feed(stream[at:cut])
        assert boundary.is_between_frames == (cut in ends)
        assert at + last == max((end for end in ends if at < end <= cut), default=at)
        at = cut


# --- pings and pongs, and everything else ---------------------------------------------------

PING = 0x89
PONG = 0x8A


def moves(stream: bytes, *, is_masked: bool) -> list[bool]:
    """Says of each byte whether it is more than a ping or pong: the rules of RFC 6455 §5.2 once more, a byte at a time."""
    said: list[bool] = []
    is_broken = False
    at = 0
    while at < len(stream):
        first = stream[at]
        is_data = (first & 0x0F) in (0, 1, 2) and not first & 0x30
        is_pulse = first in (PING, PONG)
        is_broken = is_broken or not (is_data or is_pulse or first == 0x88)
        said.append(is_broken or not is_pulse)
        at += 1
        if at == len(stream):
            break
        second = stream[at]
        length = second & 0x7F
        is_broken = is_broken or bool(second & 0x80) != is_masked
        is_broken = is_broken or (length > 125 and not is_data)
        said.append(is_broken or not is_pulse)
        at += 1
        extended = {126: 2, 127: 8}.get(length, 0)
        number = stream[at : at + extended]
        is_broken = is_broken or (extended == 8 and bool(number) and number[0] >= 0x80)
        rest = len(number)
        if rest == extended:
            rest += (4 if second & 0x80 else 0) + (
                int.from_bytes(number, "big") if extended else length
            )
        rest = min(rest, len(stream) - at)
        said += [is_broken or not is_pulse] * rest
        at += rest
    return said


FIRSTS = st.one_of(
    st.sampled_from([PING, PONG]),
    st.sampled_from([0x01, 0x81, 0x82, 0x02, 0x00, 0x80, 0xC1, 0x41, 0x88]),
    st.integers(0, 255),
)


@st.composite
def sides(draw: st.DrawFn) -> tuple[bool, bytes]:
    """Returns which side it is, and what it sent: mostly right frames, mostly pings, sometimes many tiny ones."""
    is_masked = draw(st.booleans())
    parts = []
    for _ in range(draw(st.integers(1, 6))):
        first, length = draw(FIRSTS), draw(st.one_of(st.integers(0, 9), LENGTHS))
        is_right = draw(st.integers(0, 9)) > 0
        made = frame(
            length,
            masked=is_masked if is_right else not is_masked,
            first=first,
            form=draw(st.sampled_from([0, 0, 0, 16, 64])),
        )
        parts.append(made * (draw(st.integers(1, 40)) if length < 10 else 1))
    return is_masked, b"".join(parts)


@settings(max_examples=400)
@given(sides(), st.lists(st.integers(0, 2000), max_size=12))
@example((True, frame(5, masked=True, first=PING) * 30 + frame(1, masked=True)), [])
@example((False, frame(0, masked=False, first=PONG) * 90 + b"\xf0\x00" + b"\x89\x00"), [7])
@example((False, b"\x89\x7e\x00\x7e" + b"p" * 126 + b"\x8a\x00"), [1, 2])
def test_a_read_moves_exactly_if_a_byte_of_it_does_under_any_cut(
    side: tuple[bool, bytes], cuts: list[int]
) -> None:
    is_masked, stream = side
    said = moves(stream, is_masked=is_masked)
    follower = FrameFollower(is_masked=is_masked)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut <= len(stream))})
    for start, end in itertools.pairwise(edges):
        follower.feed(stream[start:end])
        assert follower.has_moved == any(said[start:end]), (start, end)


@given(st.binary(min_size=1, max_size=400), st.booleans(), st.lists(st.integers(0, 400)))
def test_bytes_that_are_no_frames_move_as_the_rules_say(
    stream: bytes, is_masked: bool, cuts: list[int]
) -> None:
    said = moves(stream, is_masked=is_masked)
    follower = FrameFollower(is_masked=is_masked)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut <= len(stream))})
    for start, end in itertools.pairwise(edges):
        follower.feed(stream[start:end])
        assert follower.has_moved == any(said[start:end])


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("first", [PING, PONG])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 125])
def test_pings_and_pongs_move_nothing_byte_by_byte_or_many_at_once(
    first: int, size: int, is_masked: bool
) -> None:
    stream = frame(size, masked=is_masked, first=first) * 50
    follower = FrameFollower(is_masked=is_masked)
    for byte in stream:
        follower.feed(bytes((byte,)))
        assert not follower.has_moved
    follower.feed(stream)
    assert not follower.has_moved
    assert follower.is_between_frames


@pytest.mark.parametrize(
    ("name", "stream"),
    [
        ("text", frame(5, masked=True, first=0x81)),
        ("empty binary", frame(0, masked=True, first=0x82)),
        ("compressed", frame(5, masked=True, first=0xC1)),
        ("the middle of a fragmented message", frame(300, masked=True, first=0x00)),
        ("64 bits of length", frame(70_000, masked=True, first=0x82)),
        ("Close", frame(2, masked=True, first=0x88)),
    ],
)
def test_data_and_close_move(name: str, stream: bytes) -> None:
    follower = FrameFollower(is_masked=True)
    follower.feed(frame(4, masked=True, first=PING))
    assert not follower.has_moved
    follower.feed(stream)
    assert follower.has_moved
    follower.feed(frame(4, masked=True, first=PONG))
    assert not follower.has_moved, "a ping behind it is a ping again"


def test_a_ping_between_the_fragments_of_a_message_is_a_ping() -> None:
    follower = FrameFollower(is_masked=False)
    seen = []
    for first in (0x01, PING, 0x00, PONG, 0x80):
        follower.feed(frame(9, masked=False, first=first))
        seen.append(follower.has_moved)
    assert seen == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("name", "stream"),
    [
        ("a client's ping without a mask", frame(4, masked=False, first=PING)),
        ("a ping in fragments", frame(4, masked=True, first=0x09)),
        ("a ping with a reserved bit", frame(4, masked=True, first=0xC9)),
        ("a ping that is too long", frame(126, masked=True, first=PING)),
        ("a reserved opcode", frame(4, masked=True, first=0x83)),
        ("a length of 64 bits", frame(0, masked=True, first=0x82)[:1] + b"\xff" + b"\xff" * 8),
        ("no frame at all", b"SSH-2.0-OpenSSH_9.9\r\n"),
    ],
)
def test_after_broken_frames_every_byte_moves(name: str, stream: bytes) -> None:
    follower = FrameFollower(is_masked=True)
    follower.feed(stream)
    assert follower.has_moved
    for _ in range(3):
        follower.feed(frame(4, masked=True, first=PING))
        assert follower.has_moved, "it is not believed to be a mere ping"
    follower.feed(frame(0, masked=True, first=PING) * 100)
    assert follower.has_moved
