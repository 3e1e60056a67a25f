"""Frames are read as they come, and what breaks the protocol is told with its close code."""

from __future__ import annotations

import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.wire.frame_reader import NO_CODE, FrameError, FrameReader
from router.proxy.wire.unmasking import unmask_in_python

MASK = b"\x11\xf2\x83\x04"


def frame(payload: bytes = b"", first: int = 0x82, *, mask: bytes | None = MASK) -> bytes:
    size = len(payload)
    bit = 0 if mask is None else 0x80
    if size < 126:
        header = bytes((first, bit | size))
    elif size < 65_536:
        header = bytes((first, bit | 126)) + size.to_bytes(2, "big")
    else:
        header = bytes((first, bit | 127)) + size.to_bytes(8, "big")
    return header + (payload if mask is None else mask + unmask_in_python(payload, mask, 0, size))


def read(data: bytes, *, is_masked: bool = True) -> tuple[bytes, FrameReader]:
    reader, pieces = FrameReader(is_masked=is_masked), list[bytes]()
    assert reader.feed(data, pieces) == len(data)
    return b"".join(pieces), reader


def code_of(data: bytes, *, is_masked: bool = True) -> int:
    with pytest.raises(FrameError) as caught:
        read(data, is_masked=is_masked)
    assert caught.value.reason
    return caught.value.code


# --- what is right --------------------------------------------------------------------------

STREAM = (
    frame(b"one")
    + frame(b"two", 0x02)
    + frame(b"!", 0x89)
    + frame(b"", 0x00)
    + frame(b"x" * 200, 0x80)
    + frame(b"ignored", 0x8A)
    + frame(b"y" * 70_000, mask=b"\0\0\0\0")
)
PAYLOAD = b"onetwo" + b"x" * 200 + b"y" * 70_000


def test_the_payload_of_every_form_of_frame_is_passed_on() -> None:
    payload, reader = read(STREAM)
    assert payload == PAYLOAD
    assert reader.ping == b"!"
    assert reader.close_code == 0


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 64, 4097])
def test_frames_may_be_cut_anywhere(step: int) -> None:
    reader, pieces = FrameReader(is_masked=True), list[bytes]()
    stream = STREAM[:700]
    for at in range(0, len(stream), step):
        cut = stream[at : at + step]
        assert reader.feed(cut, pieces) == len(cut)
    assert b"".join(pieces) == PAYLOAD[: len(b"".join(pieces))]
    assert reader.ping == b"!"


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.binary(min_size=4, max_size=4)), max_size=8),
    st.data(),
)
def test_any_frames_in_any_pieces_give_the_same_bytes(
    frames: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(frame(payload, mask=mask) for payload, mask in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader, pieces = FrameReader(is_masked=True), list[bytes]()
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[begin:end], pieces)
    assert b"".join(pieces) == b"".join(payload for payload, _ in frames)


def test_a_servers_frames_come_without_a_mask() -> None:
    payload, reader = read(
        frame(b"bytes", mask=None) + frame(b"p", 0x89, mask=None), is_masked=False
    )
    assert payload == b"bytes"
    assert reader.ping == b"p"


def test_many_frames_are_taken_in_turns() -> None:
    stream = frame() * 2000
    reader, pieces, taken, turns = FrameReader(is_masked=True), list[bytes](), 0, 0
    while taken < len(stream):
        turn = reader.feed(stream[taken:], pieces)
        assert 0 < turn <= 512 * 6
        taken += turn
        turns += 1
    assert turns == 4
    assert pieces == []


def test_a_frame_of_any_length_is_never_collected() -> None:
    reader = FrameReader(is_masked=True)
    piece = os.urandom(65_536)
    reader.feed(b"\x82\xff" + (2**62).to_bytes(8, "big") + MASK, [])
    tracemalloc.start()
    for _ in range(256):
        reader.feed(piece, [])
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2**16
    assert peak < 2**20


# --- the end --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", NO_CODE),
        (b"\x03\xe8", 1000),
        (b"\x03\xe9gone", 1001),
        (b"\x0f\xa0", 4000),
        (b"\x03\xe8" + "é".encode(), 1000),
    ],
)
def test_a_close_frame_ends_the_stream(payload: bytes, code: int) -> None:
    reader, pieces = FrameReader(is_masked=True), list[bytes]()
    close = frame(payload, 0x88)
    assert reader.feed(frame(b"last") + close + frame(b"late"), pieces) == len(
        frame(b"last") + close
    )
    assert pieces == [b"last"]
    assert reader.close_code == code
    assert reader.close_reason == payload[2:].decode()


# --- what is wrong --------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0xC2, 0xA2, 0x92, 0xF2, 0xC9])
def test_a_reserved_bit_is_refused(first: int) -> None:
    assert code_of(frame(b"x", first)) == 1002


@pytest.mark.parametrize("opcode", [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
def test_an_unknown_opcode_is_refused(opcode: int) -> None:
    assert code_of(frame(b"x", 0x80 | opcode)) == 1002


@pytest.mark.parametrize("first", [0x81, 0x01])
def test_text_is_refused_with_its_own_code(first: int) -> None:
    assert code_of(frame(b"text", first)) == 1003


def test_text_is_refused_by_its_first_byte_alone() -> None:
    assert code_of(b"\x81") == 1003


def test_a_client_must_mask_and_a_server_must_not() -> None:
    assert code_of(frame(b"x", mask=None)) == 1002
    assert code_of(frame(b"x"), is_masked=False) == 1002


@pytest.mark.parametrize("first", [0x09, 0x0A, 0x08])
def test_a_control_frame_in_fragments_is_refused(first: int) -> None:
    assert code_of(frame(b"x", first)) == 1002


@pytest.mark.parametrize("first", [0x89, 0x8A, 0x88])
def test_a_control_frame_of_more_than_125_bytes_is_refused_by_its_header(first: int) -> None:
    assert code_of(frame(b"x" * 126, first)[:2]) == 1002


def test_a_length_of_2_to_the_63_is_refused() -> None:
    assert code_of(b"\x82\xff\x80" + bytes(7) + MASK) == 1002


def test_messages_must_begin_before_they_go_on_and_end_before_the_next() -> None:
    assert code_of(frame(b"x", 0x80)) == 1002
    assert code_of(frame(b"x", 0x00)) == 1002
    assert code_of(frame(b"x", 0x02) + frame(b"y", 0x82)) == 1002
    assert code_of(frame(b"x", 0x02) + frame(b"y", 0x80) + frame(b"z", 0x80)) == 1002


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535])
def test_a_close_code_that_nobody_may_send_is_refused(code: int) -> None:
    assert code_of(frame(code.to_bytes(2, "big"), 0x88)) == 1002


def test_half_a_close_code_is_refused() -> None:
    assert code_of(frame(b"\x03", 0x88)) == 1002


def test_a_close_reason_that_is_no_text_is_refused() -> None:
    assert code_of(frame(b"\x03\xe8\xff", 0x88)) == 1007


def test_it_tells_what_it_waits_for() -> None:
    _, reader = read(frame(b"12345")[:-3])
    assert repr(reader) == "<FrameReader left=3 close_code=0>"
