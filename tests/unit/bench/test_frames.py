"""WebSocket frames against RFC 6455's own examples."""

from __future__ import annotations

import pytest

from bench import frames


def test_the_accept_key_is_the_rfcs() -> None:
    assert frames.accept_key(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_a_masked_text_frame_is_the_rfcs() -> None:
    # RFC 6455 section 5.7: a single-frame masked text message, "Hello".
    wire = bytes.fromhex("818537fa213d7f9f4d5158")

    assert frames.encode(b"Hello", opcode=1, mask=bytes.fromhex("37fa213d")) == wire
    assert frames.decode(wire) == frames.Frame(1, b"Hello", len(wire))


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536])
@pytest.mark.parametrize("mask", [b"", b"\x01\x02\x03\x04"])
def test_a_frame_of_any_size_comes_back(size: int, mask: bytes) -> None:
    payload = bytes(index % 251 for index in range(size))
    wire = frames.encode(payload, mask=mask)

    assert frames.decode(wire + b"next") == frames.Frame(frames.BINARY, payload, len(wire))
    assert frames.decode(wire[:-1]) is None


@pytest.mark.parametrize("start", [b"", b"\x82", b"\x82\xfe", b"\x82\xfe\x00", b"\x82\xff\x00\x00"])
def test_the_start_of_a_head_is_no_frame_yet(start: bytes) -> None:
    assert frames.decode(start) is None
