"""Long bodies: what the writer sends is what the reader counts, however it is cut."""

from __future__ import annotations

import pytest

from bench.bodies import PATTERN, PERIOD, BadBodyError, BodyReader, BodyWriter


def written(size: int, *, chunked: bool) -> bytes:
    writer = BodyWriter(size, chunked=chunked)
    return b"".join(iter(writer.next_piece, b""))


def read_in_pieces(reader: BodyReader, data: bytes, piece: int) -> bytes:
    rest = b""
    for at in range(0, len(data), piece):
        rest += reader.feed(data[at : at + piece])
    return rest


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [1, 15, 16, 17, PERIOD, PERIOD + 1, 5 * PERIOD, 600_000])
@pytest.mark.parametrize("piece", [1_000, 4_096, 65_536, 10**6])
def test_a_body_is_whole_however_it_is_cut(size: int, piece: int, chunked: bool) -> None:
    reader = BodyReader(None if chunked else size)

    rest = read_in_pieces(reader, written(size, chunked=chunked), piece)

    assert (reader.finished, reader.received, reader.intact, rest) == (True, size, True, b"")


def test_a_chunked_body_cut_at_every_byte_is_whole() -> None:
    data = written(100, chunked=True)
    reader = BodyReader(None)

    read_in_pieces(reader, data, 1)

    assert (reader.finished, reader.received) == (True, 100)


def test_what_follows_the_body_is_handed_back() -> None:
    assert BodyReader(3).feed(PATTERN[:3] + b"next") == b"next"
    assert BodyReader(None).feed(written(3, chunked=True) + b"next") == b"next"


def test_a_body_cut_short_is_not_finished() -> None:
    reader = BodyReader(1_000)

    reader.feed(PATTERN[:999])

    assert not reader.finished


@pytest.mark.parametrize("lost", [1, 16, 4_096])
def test_lost_bytes_show(lost: int) -> None:
    body = written(200_000, chunked=False)
    reader = BodyReader(len(body) - lost)

    read_in_pieces(reader, body[:70_000] + body[70_000 + lost :], 16_384)

    assert reader.finished
    assert not reader.intact


@pytest.mark.parametrize("data", [b"xyz\r\n", b"3\nabc\r\n", b"3\r\nabcd\r\n", b"\r\n3\r\nabc\r\n"])
def test_a_broken_chunk_is_refused(data: bytes) -> None:
    with pytest.raises(BadBodyError):
        BodyReader(None).feed(data)


def test_extensions_and_trailers_are_passed_over() -> None:
    reader = BodyReader(None)

    rest = reader.feed(b"3;a=b\r\n" + PATTERN[:3] + b"\r\n0\r\nX-Sum: 1\r\n\r\nnext")

    assert (reader.finished, reader.received, rest) == (True, 3, b"next")
