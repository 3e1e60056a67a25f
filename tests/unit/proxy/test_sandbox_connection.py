"""A sandbox's connection: answers are cut out of its bytes, however they come."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import BadResponse
from router.proxy import sandbox_connection
from router.proxy.sandbox_connection import SandboxConnection
from router.proxy.sandbox_states import State
from router.proxy.wire.framing import ChunkedReader, ChunkRelay, LengthReader, UntilCloseReader
from router.proxy.wire.request_head import parse_request
from tests.unit.proxy.messages import cut, cuts
from tests.unit.proxy.stage import Shelf, Stage, Wire

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
WITH_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
)
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nhello"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"


class Watched:
    """In an Exchange's place: notes what the connection tells it."""

    def __init__(self, method: str = "GET", version: str = "1.1") -> None:
        self.head = parse_request(f"{method} / HTTP/{version}\r\nHost: a\r\n\r\n".encode())
        self.client: Any = Wire()
        self.client.is_writable = True
        self.told: list[tuple[Any, ...]] = []
        self.body = b""
        self.reader: Any = None

    def response_interim(self, heads: list[Any]) -> None:
        self.told += [("interim", head.status) for head in heads]

    def attach(self, sandbox: SandboxConnection, *, is_reused: bool) -> None:
        pass

    def response_whole(self, head: Any, reader: Any, pieces: list[bytes], *, clean: bool) -> None:
        self.told.append(("begins", head.status))
        self.reader = reader
        self.body += b"".join(pieces)
        self.told.append(("ends", clean))

    def response_begins(self, head: Any, reader: Any, pieces: list[bytes]) -> None:
        self.told.append(("begins", head.status))
        self.reader = reader
        self.body += b"".join(pieces)

    def response_data(self, reader: Any, pieces: list[bytes]) -> None:
        assert reader is self.reader
        self.body += b"".join(pieces)

    def response_ends(self, reader: Any, pieces: list[bytes], *, clean: bool) -> None:
        self.body += b"".join(pieces)
        self.told.append(("ends", clean))

    def response_upgraded(self, head: Any, data: bytes) -> None:
        self.told.append(("upgraded", head.upgrade, data))

    def response_broken(self, error: BadResponse) -> None:
        assert isinstance(error, BadResponse)
        self.told.append(("broken", error.reason))

    def sandbox_left(self, reason: str) -> None:
        self.told.append(("left", reason))


class ForgetfulShelf(Shelf):
    def __init__(self) -> None:
        super().__init__()
        self.forgotten: list[SandboxConnection] = []

    def forget(self, upstream: SandboxConnection) -> None:
        self.forgotten.append(upstream)


def opened(exchange: Watched | None = None) -> tuple[SandboxConnection, Wire, ForgetfulShelf]:
    shelf, wire = ForgetfulShelf(), Wire()
    upstream = SandboxConnection(
        shelf, ("pod", ("10.0.0.5",), 80), "10.0.0.5", b"10.0.0.5:80", shelf.budget
    )  # type: ignore[arg-type]
    upstream.connection_made(wire)
    if exchange is not None:
        upstream.carry(exchange, is_reused=False)  # type: ignore[arg-type]
    return upstream, wire, shelf


def answered(pieces: list[bytes], *, method: str = "GET", version: str = "1.1") -> Watched:
    """Returns what was told about an answer that came in these pieces."""
    exchange = Watched(method, version)
    upstream, _, _ = opened(exchange)
    for piece in pieces:
        upstream.data_received(piece)
    return exchange


# --- any cut --------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([CONTINUE, HINTS]), max_size=3),
    st.sampled_from(
        [
            (WITH_LENGTH, b"hello", [("ends", True)]),
            (CHUNKED, b"5\r\nhello\r\n", [("ends", True)]),
            (UNTIL_CLOSE, b"hello", []),
            (EMPTY, b"", [("ends", True)]),
        ]
    ),
    cuts,
)
def test_an_answer_is_the_same_however_its_bytes_are_cut(
    interim: list[bytes], final: tuple[bytes, bytes, list[Any]], at: list[int]
) -> None:
    answer, body, end = final
    exchange = answered(cut(b"".join([*interim, answer]), at))
    told = [("interim", 100 if data is CONTINUE else 103) for data in interim]
    assert exchange.told == [*told, ("begins", 204 if answer is EMPTY else 200), *end]
    assert exchange.body == body


@given(st.sampled_from([WITH_LENGTH, CHUNKED, EMPTY]), st.integers(1, 300))
def test_what_comes_behind_an_answer_is_never_clean_nor_its_body(answer: bytes, at: int) -> None:
    stream = answer + b"HTTP/1.1 200 OK\r\n"
    at = min(at, len(answer) - 1)
    exchange = answered([stream[:at], stream[at:]])
    assert exchange.told[-1] == ("ends", False)
    assert b"HTTP" not in exchange.body


@given(cuts)
def test_the_bytes_behind_a_switch_of_protocols_belong_to_the_tunnel(at: list[int]) -> None:
    exchange = Watched()
    upstream, _, _ = opened(exchange)
    tunnel_bytes = b""
    for piece in cut(HINTS + SWITCH + b"frames", at):
        if exchange.told and exchange.told[-1][0] == "upgraded":
            tunnel_bytes += piece
        else:
            upstream.data_received(piece)
    told, protocol, first = exchange.told[-1]
    assert (told, protocol) == ("upgraded", b"x")
    assert first + tunnel_bytes == b"frames"


@given(
    st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=30),
            st.sampled_from([CONTINUE, WITH_LENGTH, CHUNKED, UNTIL_CLOSE, EMPTY, SWITCH]),
            st.sampled_from([b"HTTP/1.1 200 OK\r\n", b"\r\n", b"X: y\r\n", b"5\r\n"]),
        ),
        max_size=6,
    )
)
def test_any_bytes_are_an_answer_or_a_bad_response(pieces: list[bytes]) -> None:
    exchange = Watched()
    upstream, _, _ = opened(exchange)
    final = 0
    for piece in pieces:
        upstream.data_received(piece)
        final = sum(told[0] in ("ends", "broken", "upgraded") for told in exchange.told)
        if final:
            break
    assert final <= 1


# --- which body an answer has ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "version", "kind"),
    [
        (WITH_LENGTH, "1.1", LengthReader),
        (WITH_LENGTH, "1.0", LengthReader),
        (CHUNKED, "1.1", ChunkRelay),
        (CHUNKED, "1.0", ChunkedReader),
        (UNTIL_CLOSE, "1.1", UntilCloseReader),
        (WITH_LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"), "1.1", LengthReader),
    ],
)
def test_the_head_decides_how_the_body_is_read(answer: bytes, version: str, kind: type) -> None:
    piece = answer.partition(b"hello")[0] + b"he"
    assert type(answered([piece], version=version).reader) is kind


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ],
)
def test_some_answers_have_no_body_whatever_they_say(method: str, answer: bytes) -> None:
    exchange = answered([answer], method=method)
    assert exchange.told[-1] == ("ends", True)
    assert exchange.reader is None


def test_chunks_in_an_old_answer_are_no_framing() -> None:
    exchange = answered([CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0")])
    assert exchange.told == [("broken", "Transfer-Encoding in an HTTP/1.0 answer")]


# --- what is no answer ----------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"SSH-2.0", b"\r\nHTTP/1.1 200 OK\r\n", b"<", b"HTTP/2"])
def test_what_cannot_become_an_answer_is_refused_at_its_first_bytes(data: bytes) -> None:
    exchange = answered([data])
    assert [told[0] for told in exchange.told] == ["broken"]


@pytest.mark.parametrize("data", [b"H", b"HTTP/1.", b"HTTP/1.1 200 OK\r\nA: b\r\n"])
def test_the_beginning_of_an_answer_is_waited_on(data: bytes) -> None:
    assert answered([data]).told == []


@pytest.mark.parametrize("step", [100, 5000])
@pytest.mark.parametrize("before", [b"", CONTINUE])
def test_a_head_over_the_limit_is_refused(step: int, before: bytes) -> None:
    data = before + b"HTTP/1.1 200 OK\r\nA: " + b"x" * 2000 + b"\r\n\r\n"
    exchange = Watched()
    upstream, _, _ = opened(exchange)
    for at in range(0, len(data), step):
        upstream.data_received(data[at : at + step])
        if exchange.told and exchange.told[-1][0] == "broken":
            break
    assert exchange.told[-1] == ("broken", "the answer's head is too large")


def test_interim_answers_pass_without_a_count_until_their_bytes_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [told[0] for told in answered([CONTINUE * 150]).told] == ["interim"] * 150
    monkeypatch.setattr(sandbox_connection, "_MAX_INTERIM_BYTES", 32 * len(CONTINUE))
    exchange = answered([CONTINUE * 100])
    assert [told[0] for told in exchange.told] == ["interim"] * 32 + ["broken"]


class Counted(bytes):
    """Bytes that count what is copied out of them, and out of the copies."""

    copied = 0

    def __getitem__(self, where: Any) -> Any:
        found = super().__getitem__(where)
        if isinstance(found, int):
            return found
        Counted.copied += len(found)
        return Counted(found)


def test_a_flood_of_interim_answers_costs_its_length() -> None:
    flood = Counted(CONTINUE * 150)
    assert [told[0] for told in answered([flood]).told] == ["interim"] * 150
    assert Counted.copied < 3 * len(flood)


def test_each_answer_may_have_its_interim_answers() -> None:
    exchange = Watched()
    upstream, _, _ = opened(exchange)
    for _ in range(3):
        upstream.data_received(CONTINUE * 30 + WITH_LENGTH)
        if upstream.state is not State.IDLE:
            upstream.release()
        upstream.carry(exchange, is_reused=True)  # type: ignore[arg-type]
    assert not [told for told in exchange.told if told[0] == "broken"]


# --- ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("came", "told"),
    [
        (b"", "left"),
        (b"HTTP/1.1 2", "broken"),
        (CONTINUE, "broken"),
        (WITH_LENGTH[:-1], "broken"),
        (CHUNKED[:-2], "broken"),
        (UNTIL_CLOSE, "ends"),
    ],
)
@pytest.mark.parametrize("how", ["end", "loss"])
def test_an_end_is_told_as_what_it_means(came: bytes, told: str, how: str) -> None:
    exchange = Watched()
    upstream, _, shelf = opened(exchange)
    if came:
        upstream.data_received(came)
    if how == "end":
        assert upstream.eof_received() is False
    else:
        upstream.connection_lost(ConnectionResetError("reset"))
        told = "broken" if told == "ends" else told
    assert exchange.told[-1][0] == told
    assert upstream.is_closed
    assert upstream in shelf.forgotten


def test_the_reason_of_a_loss_is_told() -> None:
    exchange = Watched()
    upstream, _, _ = opened(exchange)
    upstream.connection_lost(ConnectionResetError("reset by peer"))
    assert "reset by peer" in exchange.told[-1][1]


@pytest.mark.parametrize("data", [WITH_LENGTH, b"x"])
def test_bytes_that_nobody_asked_for_close_an_idle_connection(data: bytes) -> None:
    upstream, wire, shelf = opened()
    upstream.idle_since = 1.0
    upstream.data_received(data)
    assert upstream.is_closed
    assert wire.is_aborted
    assert shelf.forgotten == [upstream]


async def test_who_speaks_before_the_first_request_is_heard_with_it_alone() -> None:
    exchange = Watched()
    upstream, wire, _ = opened()
    upstream.data_received(b"SSH-2.0-box\r\n\r\n")
    assert wire.is_paused
    upstream.carry(exchange, is_reused=False)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert exchange.told[-1][0] == "broken"


def test_an_idle_connection_ends_quietly() -> None:
    upstream, _, shelf = opened()
    assert upstream.eof_received() is False
    upstream.connection_lost(None)
    assert upstream.is_closed
    assert shelf.forgotten == [upstream]


def test_closing_is_done_once() -> None:
    upstream, wire, shelf = opened()
    upstream.close()
    upstream.close()
    upstream.close_after_flush()
    assert shelf.forgotten == [upstream]
    assert wire.is_aborted


def test_a_tunnel_is_closed_only_when_its_last_bytes_are_out() -> None:
    upstream, wire, _ = opened()
    upstream.close_after_flush()
    assert wire.is_closing()
    assert not wire.is_aborted


# --- is it still open? ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "response", "may_trail"),
    [
        ("GET", b"HTTP/1.1 304 Not Modified\r\n\r\n", True),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", True),
        ("HEAD", WITH_LENGTH.partition(b"\r\n\r\n")[0] + b"\r\n\r\n", True),
        ("GET", WITH_LENGTH, False),
    ],
)
def test_it_knows_that_its_response_had_to_be_without_a_body(
    method: str, response: bytes, may_trail: bool
) -> None:
    upstream, _, _ = opened(Watched(method))
    upstream.data_received(response)
    assert upstream.may_trail is may_trail


@pytest.mark.parametrize(
    ("act", "unread"),
    [
        (lambda far: None, False),
        (lambda far: far.send(b"x"), True),
        (lambda far: far.shutdown(socket.SHUT_WR), True),
        (lambda far: far.close(), True),
    ],
    ids=["nothing", "bytes", "half an end", "an end"],
)
def test_the_kernel_knows_before_the_loop_that_something_has_come(act: Any, unread: bool) -> None:
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        near = stack.enter_context(socket.create_connection(listening.getsockname()))
        far, _ = listening.accept()
        stack.enter_context(far)

        class Real(Wire):
            def get_extra_info(self, name: str, default: Any = None) -> Any:
                return near if name == "socket" else default

        upstream, _, _ = opened()
        upstream.connection_made(Real())
        assert not upstream.unread(0)
        act(far)
        assert bool(upstream.unread(0)) is unread


def test_its_repr_says_what_it_is_used_for() -> None:
    upstream, _, _ = opened()
    assert repr(upstream) == "<SandboxConnection 10.0.0.5 IDLE retired=False>"
    upstream.carry(Watched(), is_reused=False)  # type: ignore[arg-type]
    assert " AWAITING " in repr(upstream)


# --- floods -----------------------------------------------------------------------------------

FLOOD = CONTINUE * 10_000
TINY = b"01\r\nx\r\n11\r\n01234567890123456\r\n" * 8000
HEAD_OF_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def taken(wire: Wire) -> int:
    """Waits until everything that came was taken, so that the transport is read again. Returns the turns that took."""
    turns = 0
    while wire.is_paused:
        assert turns < 1000
        turns += 1
        await asyncio.sleep(0)
    return turns


async def test_a_flood_of_interim_answers_is_taken_a_little_in_each_turn() -> None:
    exchange = Watched()
    upstream, wire, _ = opened(exchange)
    upstream.data_received(FLOOD + WITH_LENGTH)
    most = sandbox_connection._INTERIM_A_TURN // len(CONTINUE) + 1
    seen = len(exchange.told)
    while wire.is_paused:
        assert 0 < seen <= most
        before = len(exchange.told)
        await asyncio.sleep(0)
        seen = len(exchange.told) - before
    assert exchange.told == [("interim", 100)] * 10_000 + [("begins", 200), ("ends", True)]
    assert exchange.body == b"hello"


async def test_nothing_is_read_while_a_flood_is_taken_whoever_asks_for_it() -> None:
    exchange = Watched()
    upstream, wire, _ = opened(exchange)
    upstream.data_received(FLOOD)
    upstream.resume_reading()
    upstream.resume_if_wanted()
    assert wire.is_paused
    exchange.client.is_writable = False
    for _ in range(1000):
        await asyncio.sleep(0)
    assert len(exchange.told) == 10_000
    assert wire.is_paused, "the client has no room"
    exchange.client.is_writable = True
    upstream.resume_if_wanted()
    assert not wire.is_paused


async def test_a_switch_of_protocols_behind_a_flood_takes_all_that_follows() -> None:
    exchange = Watched()
    upstream, wire, _ = opened(exchange)
    upstream.data_received(FLOOD + SWITCH + FLOOD)
    await taken(wire)
    assert exchange.told[-1] == ("upgraded", b"x", FLOOD)


async def test_the_bound_over_all_interim_answers_holds_in_a_flood() -> None:
    exchange = Watched()
    upstream, wire, _ = opened(exchange)
    while exchange.told[-1:] != [("broken", "the 1xx answers are too large together")]:
        assert len(exchange.told) * len(CONTINUE) <= sandbox_connection._MAX_INTERIM_BYTES
        upstream.data_received(FLOOD)
        await taken(wire)


@pytest.mark.parametrize("in_head", [True, False])
async def test_a_body_of_tiny_chunks_is_taken_in_turns(in_head: bool) -> None:
    exchange = Watched()
    upstream, wire, _ = opened(exchange)
    if in_head:
        upstream.data_received(HEAD_OF_CHUNKS + TINY)
    else:
        upstream.data_received(HEAD_OF_CHUNKS)
        upstream.data_received(TINY)
    assert 0 < len(exchange.body) < len(TINY) // 2
    assert await taken(wire) > 2
    upstream.data_received(b"0\r\n\r\n")
    assert exchange.told == [("begins", 200), ("ends", True)]
    assert exchange.body == TINY


async def test_an_answer_that_ends_in_what_was_put_off_is_not_clean_with_bytes_behind_it() -> None:
    for behind, clean in ((b"", True), (b"HTTP", False)):
        exchange = Watched()
        upstream, wire, _ = opened(exchange)
        upstream.data_received(HEAD_OF_CHUNKS + TINY + b"0\r\n\r\n" + behind)
        await taken(wire)
        assert exchange.told[-1] == ("ends", clean)


@pytest.mark.parametrize("came", [FLOOD + WITH_LENGTH, HEAD_OF_CHUNKS + TINY + b"0\r\n\r\n"])
async def test_all_that_came_before_a_connection_was_lost_crosses_and_it_is_not_used_again(
    came: bytes,
) -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(came)
    sandbox.break_off()
    assert not stage.records.outcomes
    for _ in range(1000):
        await asyncio.sleep(0)
    assert client.received() == came
    assert stage.records.outcome.code == ""
    assert stage.shelf.released == []


async def test_a_response_cut_behind_a_flood_is_told_after_all_that_came() -> None:
    exchange = Watched()
    upstream, _, shelf = opened(exchange)
    upstream.data_received(HEAD_OF_CHUNKS + TINY)
    upstream.connection_lost(ConnectionResetError("reset"))
    for _ in range(1000):
        await asyncio.sleep(0)
    assert exchange.body == TINY
    assert exchange.told[-1] == ("broken", "the answer was cut short: reset")
    assert shelf.forgotten == [upstream]


async def test_what_is_put_off_is_dropped_with_its_connection() -> None:
    exchange = Watched()
    upstream, wire, _ = opened(exchange)
    upstream.data_received(FLOOD)
    seen = len(exchange.told)
    upstream.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(exchange.told) == seen
    assert wire.is_aborted
