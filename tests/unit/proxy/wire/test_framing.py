"""Where a body ends, however its bytes are cut; and that what crosses says the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.wire import framing
from router.proxy.wire.framing import (
    LAST_CHUNK,
    BodyReader,
    ChunkedReader,
    ChunkRelay,
    FramingError,
    LengthReader,
    UntilCloseReader,
    chunk,
    last_chunk,
    untaken,
)
from router.proxy.wire.header_rules import may_be_trailer
from tests.unit.proxy.messages import cut, cuts, field_names, field_values, white_space


def read(reader: BodyReader, pieces_of_stream: list[bytes]) -> tuple[bytes, int]:
    """Returns what crossed, and the offset of the first byte behind the body (-1: it goes on)."""
    crossed: list[bytes] = []
    at = 0
    for piece in pieces_of_stream:
        rest: bytes | None = piece
        while rest is not None:
            end = reader.feed(rest, crossed)
            if end >= 0:
                return b"".join(crossed), at + end
            left = untaken(reader, rest)
            at += len(rest) - len(left)
            rest = left or None
    return b"".join(crossed), -1


def body_of(stream: bytes) -> bytes:
    return read(ChunkedReader(), [stream])[0]


# --- lengths and ends -----------------------------------------------------------------------


@given(st.binary(max_size=50), st.binary(max_size=50), cuts)
def test_a_length_ends_at_its_byte_under_any_cut(body: bytes, behind: bytes, at: list[int]) -> None:
    reader = LengthReader(len(body))
    crossed, end = read(reader, cut(body + behind, at) or [b""])
    assert (crossed, end) == (body, len(body))
    assert (reader.remaining, reader.body_bytes) == (0, len(body))


@given(st.binary(min_size=1, max_size=50), st.integers(1, 1000), cuts)
def test_a_length_that_is_not_reached_goes_on(body: bytes, more: int, at: list[int]) -> None:
    reader = LengthReader(len(body) + more)
    assert read(reader, cut(body, at)) == (body, -1)
    assert (reader.remaining, reader.body_bytes) == (more, len(body))


def test_a_piece_that_is_all_body_crosses_without_a_copy() -> None:
    data = bytes(1000)
    for reader in (LengthReader(1000), LengthReader(2000), UntilCloseReader()):
        pieces: list[bytes] = []
        reader.feed(data, pieces)
        assert pieces[0] is data


@given(st.lists(st.binary(min_size=1, max_size=20)))
def test_only_the_connection_ends_a_body_without_length(pieces: list[bytes]) -> None:
    reader = UntilCloseReader()
    assert read(reader, pieces) == (b"".join(pieces), -1)
    assert reader.body_bytes == sum(map(len, pieces))


# --- chunks, any way they may be written ----------------------------------------------------


def size_line(size: int, style: str, extension: bytes) -> bytes:
    return format(size, style).encode() + extension + b"\r\n"


extensions = st.one_of(
    st.just(b""),
    st.just(b""),
    st.sampled_from([b";a", b";a=b", b' ; a="b;c"', b"\t;", b";\xff=1", b";a=" + b"x" * 900]),
)
written_chunks = st.tuples(
    st.binary(min_size=1, max_size=40), st.sampled_from(["x", "X", "05x", "012X"]), extensions
)
trailer_lines = st.lists(st.tuples(field_names, white_space, field_values, white_space), max_size=3)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, bytes, list[tuple[bytes, bytes]]]:
    """A chunked body as it may come: its bytes, the body, and the trailers that may cross."""
    chunks = draw(st.lists(written_chunks, max_size=5))
    trailers = draw(trailer_lines)
    stream = b"".join(
        size_line(len(data), style, extension) + data + b"\r\n" for data, style, extension in chunks
    )
    stream += size_line(0, draw(st.sampled_from(["x", "03x"])), draw(extensions))
    stream += b"".join(name + b":" + b"".join(parts) + b"\r\n" for name, *parts in trailers)
    return (
        stream + b"\r\n",
        b"".join(data for data, _, _ in chunks),
        [(name, value) for name, _, value, _ in trailers if may_be_trailer(name)],
    )


Stream = tuple[bytes, bytes, list[tuple[bytes, bytes]]]


@given(streams(), st.binary(max_size=20), cuts)
def test_chunks_give_the_same_body_and_end_under_any_cut(
    written: Stream, behind: bytes, at: list[int]
) -> None:
    stream, body, trailers = written
    reader = ChunkedReader()
    assert read(reader, cut(stream + behind, at)) == (body, len(stream))
    assert (reader.body_bytes, reader.trailers) == (len(body), trailers)


@given(streams(), st.binary(max_size=20), cuts)
def test_relayed_chunks_are_the_same_body_and_end_under_any_cut(
    written: Stream, behind: bytes, at: list[int]
) -> None:
    stream, body, trailers = written
    relay = ChunkRelay()
    crossed, end = read(relay, cut(stream + behind, at))
    assert (end, relay.body_bytes, relay.trailers) == (len(stream), len(body), trailers)
    crossed += last_chunk(relay.trailers)
    again = ChunkedReader()
    assert read(again, [crossed]) == (body, len(crossed))
    assert again.trailers == trailers


@pytest.mark.parametrize("extension", [b";a", b";a=b", b' ; a="b;c"', b";" + b"x" * 900])
@pytest.mark.parametrize("step", [1, 3, 2000])
def test_extensions_are_dropped_from_the_chunk_and_the_end(extension: bytes, step: int) -> None:
    stream = b"3%b\r\nabc\r\n3\r\nabc\r\n0%b\r\n\r\n" % (extension, extension)
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    crossed, end = read(ChunkRelay(), pieces)
    assert (crossed, end) == (b"3\r\nabc\r\n" * 2, len(stream))


@given(streams(), st.data())
def test_a_stream_cut_short_never_ends(written: Stream, data: st.DataObject) -> None:
    stream, body, _ = written
    short = stream[: data.draw(st.integers(0, len(stream) - 1))]
    for reader in (ChunkedReader(), ChunkRelay()):
        crossed, end = read(reader, [short])
        assert end == -1
        assert reader.body_bytes <= len(body)
        if type(reader) is ChunkedReader:
            assert body.startswith(crossed)


def test_byte_by_byte_is_as_good_as_at_once() -> None:
    stream = b"5;x\r\nhello\r\n0a\r\n0123456789\r\n0;y\r\nX-Sum: 1\r\n\r\n"
    one_by_one = [stream[at : at + 1] for at in range(len(stream))]
    for reader in (ChunkedReader(), ChunkRelay()):
        crossed, end = read(reader, one_by_one)
        assert end == len(stream)
        whole = crossed if type(reader) is ChunkedReader else body_of(crossed + LAST_CHUNK)
        assert whole == b"hello0123456789"


def test_whole_chunks_are_relayed_as_they_came_without_a_copy() -> None:
    stream = b"005\r\nhello\r\n3\r\nabc\r\n"
    pieces: list[bytes] = []
    assert ChunkRelay().feed(stream, pieces) == -1
    assert len(pieces) == 1
    assert pieces[0] is stream


def test_the_last_chunk_and_the_trailers_do_not_cross_by_themselves() -> None:
    relay = ChunkRelay()
    crossed, _ = read(relay, [b"3\r\nabc\r\n0\r\nX-Sum: 7\r\nContent-Length: 9\r\n\r\n"])
    assert crossed == b"3\r\nabc\r\n"
    assert relay.trailers == [(b"X-Sum", b"7")]


# --- what is no chunked body ----------------------------------------------------------------

MALFORMED = [
    b"\r\n",
    b"\n",
    b"x\r\n",
    b"0x5\r\nhello\r\n",
    b"+5\r\nhello\r\n",
    b"-5\r\nhello\r\n",
    b" 5\r\nhello\r\n",
    b"5 \r\nhello\r\n",
    b"5\t\r\nhello\r\n",
    b"5_0\r\nhello\r\n",
    b"5,5\r\nhello\r\n",
    "\u0665\r\nhello\r\n".encode(),
    b"5\nhello\r\n",
    b"5\rhello\r\n",
    b"5\r\nhello\n",
    b"5\r\nhelloX\r\n",
    b"5\r\nhello5\r\nhello\r\n",
    b"5\r\nhello\r0\r\n\r\n",
    b"5\r\nhello\r\r\n0\r\n\r\n",
    b"5;a\x00b\r\nhello\r\n",
    b"5;a\nhello\r\n",
    b"5;a\rb\r\nhello\r\n",
    b"1000000000000000\r\n",
    b"fffffffffffffffff\r\n",
    b"0\r\n\n",
    b"0\n\r\n",
    b"0\r\nX : y\r\n\r\n",
    b"0\r\n X: y\r\n\r\n",
    b"0\r\nX: y\r\n z\r\n\r\n",
    b"0\r\nX\r\n\r\n",
    b"0\r\n: y\r\n\r\n",
    b"0\r\nX: y\n\r\n",
    b"0\r\nX: a\rb\r\n\r\n",
    b"0\r\nX: a\x00b\r\n\r\n",
]


@pytest.mark.parametrize("stream", MALFORMED)
@pytest.mark.parametrize("kind", [ChunkedReader, ChunkRelay])
@pytest.mark.parametrize("step", [1, 2, 1000])
def test_malformed_chunks_are_refused_however_they_come(
    stream: bytes, kind: type[ChunkedReader], step: int
) -> None:
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    with pytest.raises(FramingError):
        read(kind(), pieces)


@pytest.mark.parametrize("kind", [ChunkedReader, ChunkRelay])
@pytest.mark.parametrize("step", [7, 100_000])
@pytest.mark.parametrize(
    ("start", "endless"),
    [
        (b"", b"0"),
        (b"5;", b"a"),
        (b"5;", b"a" * 2000 + b"\r\n"),
        (b"0\r\nX: ", b"y"),
        (b"0\r\n", b"X: y\r\n"),
        (b"0\r\n", b"Content-Length: 1\r\n"),
    ],
)
def test_what_carries_no_body_is_bounded(
    kind: type[ChunkedReader], step: int, start: bytes, endless: bytes
) -> None:
    stream = start + endless * (40_000 // len(endless))
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    with pytest.raises(FramingError):
        read(kind(), pieces)


@given(
    st.one_of(
        st.binary(max_size=60),
        st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"0", b"2", b"ab", b";", b":"])).map(
            b"".join
        ),
    ),
    cuts,
)
def test_any_bytes_are_read_or_refused_the_same_by_both_readers_under_any_cut(
    stream: bytes, at: list[int]
) -> None:
    def outcome(reader: ChunkedReader, pieces: list[bytes]) -> object:
        try:
            _, end = read(reader, pieces)
        except FramingError:
            return "refused"
        return end, reader.body_bytes, reader.trailers

    for prefix in (b"", b"2\r\nab\r\n", b"2\r\nab", b"0\r\n", b"0\r\nX: y\r\n"):
        whole = outcome(ChunkedReader(), [prefix + stream])
        assert outcome(ChunkRelay(), [prefix + stream]) == whole
        pieces = cut(prefix + stream, at)
        assert outcome(ChunkedReader(), pieces) == whole
        assert outcome(ChunkRelay(), pieces) == whole


# --- what the router frames itself ----------------------------------------------------------


@given(st.lists(st.lists(st.binary(max_size=20), max_size=4), max_size=4))
def test_framed_pieces_are_the_same_body(bursts: list[list[bytes]]) -> None:
    stream = b"".join(b"".join(chunk(pieces)) for pieces in bursts) + last_chunk([])
    reader = ChunkedReader()
    assert read(reader, [stream]) == (b"".join(map(b"".join, bursts)), len(stream))


@pytest.mark.parametrize("pieces", [[], [b""], [b"", b""]])
def test_nothing_is_no_chunk_for_that_would_end_the_body(pieces: list[bytes]) -> None:
    assert chunk(pieces) == []


def test_the_last_chunk_carries_the_trailers() -> None:
    assert last_chunk([]) == b"0\r\n\r\n"
    assert last_chunk([(b"A", b"b"), (b"c", b"")]) == b"0\r\nA: b\r\nc: \r\n\r\n"


@given(
    st.lists(st.tuples(st.integers(1, 11), st.integers(1, 40)), min_size=1, max_size=6),
    st.lists(st.integers(0, 4000), max_size=6),
)
def test_runs_of_tiny_chunks_cross_as_they_are(
    runs: list[tuple[int, int]], cuts: list[int]
) -> None:
    chunks = b"".join((b"%x\r\n" % size + b"\r" * size + b"\r\n") * count for size, count in runs)
    stream = chunks + b"0\r\n\r\n"
    relay, pieces = ChunkRelay(), []
    at = 0
    for place in [*sorted(each % len(stream) for each in cuts), len(stream)]:
        end = relay.feed(stream[at:place], pieces)
        at = place
    assert end >= 0
    assert b"".join(pieces) == chunks
    assert relay.body_bytes == sum(size * count for size, count in runs)


# --- chunks that are nothing but work ---------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 3), st.booleans()), max_size=60), cuts)
def test_tiny_chunks_of_any_sizes_are_counted_as_they_would_be_one_by_one(
    chunks: list[tuple[int, int, bool]], places: list[int]
) -> None:
    data = b"".join(
        b"0" * zeros + (b"%X" if upper else b"%x") % size + b"\r\n" + b"\r" * size + b"\r\n"
        for size, zeros, upper in chunks
    )
    whole, pieces = ChunkRelay(), []
    assert whole.feed(data + b"0\r\n\r\n", pieces) == len(data) + 5
    assert b"".join(pieces) == data
    assert whole.body_bytes == sum(size for size, _, _ in chunks)
    in_parts, parts = ChunkRelay(), []
    for piece in cut(data, places):
        in_parts.feed(piece, parts)
    assert (b"".join(parts), in_parts.body_bytes) == (data, whole.body_bytes)


@pytest.mark.parametrize("reader", [ChunkedReader, ChunkRelay])
def test_extensions_that_outweigh_the_body_are_refused(reader: type[ChunkedReader]) -> None:
    with pytest.raises(FramingError, match="extensions are larger"):
        read(reader(), [b"1;a=b\r\nx\r\n" * 10_000])


@pytest.mark.parametrize("reader", [ChunkedReader, ChunkRelay])
def test_a_signature_for_each_chunk_passes(reader: type[ChunkedReader]) -> None:
    chunk_of_8_kib = b"2000;chunk-signature=" + b"a" * 64 + b"\r\n" + b"x" * 8192 + b"\r\n"
    body = reader()
    read(body, [chunk_of_8_kib * 500])
    assert body.body_bytes == 8192 * 500


class Stepping(ChunkRelay):
    """Counts the chunks that are taken one by one."""

    steps = 0

    def _step(self, most: int) -> int:
        self.steps += 1
        return super()._step(most)


@pytest.mark.parametrize("chunk", [b"1\r\nx\r\n", b"9\r\n123456789\r\n", b"01\r\nx\r\n"])
def test_a_run_of_tiny_chunks_is_taken_at_once_wherever_a_read_begins(chunk: bytes) -> None:
    run = chunk * 100
    for at in range(1, len(chunk) + 1):
        reader, pieces = Stepping(), list[bytes]()
        reader.feed(chunk, pieces)  # its size is known from here on
        reader.feed(run[:at], pieces)
        assert reader.feed(run[at:], pieces) == -1
        assert reader.steps <= 4
        assert b"".join(pieces) == chunk + run


# --- turns ------------------------------------------------------------------------------------

ONE = b"1\r\nx\r\n"
MIXTURES = [
    ONE,
    b"01\r\nx\r\n",
    b"01\r\nx\r\n0000a\r\n0123456789\r\n11\r\n01234567890123456\r\n",
    ONE + b"11\r\n01234567890123456\r\n",
    b"400;a=b\r\n" + b"x" * 1024 + b"\r\n" + b"1;a=b\r\nx\r\n" * 100,
]


@pytest.mark.parametrize("kind", [ChunkedReader, ChunkRelay])
@pytest.mark.parametrize("mixture", MIXTURES)
def test_a_read_full_of_small_chunks_is_the_work_of_several_turns(
    kind: type[ChunkedReader], mixture: bytes
) -> None:
    data = mixture * (262_144 // len(mixture))
    reader, crossed, turns, rest = kind(), list[bytes](), 0, data
    while rest:
        turns += 1
        assert reader.feed(rest, crossed) == -1
        left = untaken(reader, rest)
        assert len(rest) - len(left) <= framing._A_TURN * framing._TINY_STEP + framing._TINY_RUN
        rest = left
    assert turns > 1
    at_once = ChunkedReader()
    body, _ = read(at_once, [data])
    assert reader.body_bytes == at_once.body_bytes == len(body)
    whole = b"".join(crossed)
    assert (whole if kind is ChunkedReader else body_of(whole)) == body


@pytest.mark.parametrize("size", [1024, 16_384, 262_144])
def test_usual_chunks_are_taken_in_one_turn(size: int) -> None:
    data = (b"%x\r\n" % size + b"x" * size + b"\r\n") * (262_144 // size)
    relay, crossed = ChunkRelay(), list[bytes]()
    assert relay.feed(data, crossed) == -1
    assert untaken(relay, data) == b""
    assert crossed[-1] is data or b"".join(crossed) == data


@given(streams(), st.binary(max_size=20), cuts, st.integers(1, 4))
def test_chunks_are_the_same_however_short_a_turn_is(
    written: Stream, behind: bytes, at: list[int], steps: int
) -> None:
    stream, body, trailers = written
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "_A_TURN", steps)
        for reader in (ChunkedReader(), ChunkRelay()):
            crossed, end = read(reader, cut(stream + behind, at))
            assert (end, reader.body_bytes, reader.trailers) == (len(stream), len(body), trailers)
            if type(reader) is ChunkRelay:
                crossed = body_of(crossed + LAST_CHUNK)
            assert crossed == body


@given(st.sampled_from([LengthReader(10), UntilCloseReader()]), st.binary(max_size=9))
def test_other_bodies_leave_nothing_for_another_turn(reader: BodyReader, data: bytes) -> None:
    reader.feed(data, [])
    assert untaken(reader, data) == b""
