"""A client's connection: heads and bodies are cut out of its bytes, and it goes on only where framing is certain."""

from __future__ import annotations

import asyncio
import re
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.auth.authenticator import CertificateIdentity
from router.proxy.closing_connection import State as State
from router.proxy.options import NEVER, ProxyOptions
from tests.unit.proxy.messages import cut, cuts
from tests.unit.proxy.stage import GET, TO_BOX, Sandbox, Stage, later

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
MALFORMED = b"GET / HTTP/1.1\r\nBad Header\r\n\r\n"


def post(body: bytes, *, length: int | None = None, extra: bytes = b"") -> bytes:
    """Returns a POST with as much of its body as given."""
    size = len(body) if length is None else length
    return b"POST / HTTP/1.1\r\n%b%bContent-Length: %d\r\n\r\n%b" % (TO_BOX, extra, size, body)


def post_chunked(body: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n%b" % (TO_BOX, body)


def to_nobody(request: bytes) -> bytes:
    """The same request to a sandbox whose name is invalid, so that the router refuses it at once."""
    return request.replace(b"X-Sandbox-ID: box", b"X-Sandbox-ID: BOX")


def statuses(received: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]


# --- heads ----------------------------------------------------------------------------------


@given(cuts)
def test_requests_are_the_same_however_their_bytes_are_cut(at: list[int]) -> None:
    stage = Stage()
    client = stage.client()
    body = b"5;x\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
    for piece in cut(b"\r\n" + post(b"abc") + post_chunked(body) + GET, at):
        if client.wire.is_paused:
            client.connection.resume_reading()
        client.send(piece)
    taken = []
    for number in range(3):
        sandbox = Sandbox(stage.shelf.opened[number])
        taken.append(sandbox.received().partition(b"\r\n\r\n"))
        sandbox.send(ANSWER)
    assert [head[:9] for head, _, _ in taken] == [b"POST / HT", b"POST / HT", b"GET / HTT"]
    assert [rest for _, _, rest in taken] == [
        b"abc",
        b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
        b"",
    ]
    assert client.received() == ANSWER * 3
    assert client.connection.state is State.IDLE


def test_a_head_in_pieces_is_waited_for_within_the_header_timeout() -> None:
    stage = Stage(limits=ProxyOptions(header_timeout_s=10.0, keepalive_timeout_s=600.0))
    client = stage.client()
    assert later(5) < client.connection.deadline_at <= later(10), "it has never asked"
    client.send(b"GET / HT")
    deadline = client.connection.deadline_at
    assert later(5) < deadline <= later(10)
    assert client.connection.state is State.HEAD
    client.send(b"TP/1.1\r\n")
    assert client.connection.deadline_at == deadline, "each piece would else buy more time"


def test_a_head_that_does_not_come_in_time_is_told_so() -> None:
    stage = Stage()
    client = stage.client()
    client.send(b"GET / HTTP/1.1\r\n")
    client.connection.on_deadline(0.0)
    answer = client.received()
    assert statuses(answer) == [408]
    assert b"X-Sandbox-Router-Error: request_timeout\r\n" in answer
    assert client.is_closed
    assert stage.records.outcome.code == "request_timeout"


def test_a_connection_that_carries_nothing_ends_without_a_word() -> None:
    client = Stage().client()
    client.connection.on_deadline(0.0)
    assert client.received() == b""
    assert client.wire.is_aborted


@pytest.mark.parametrize("pieces", [[b"\r\n\r\n"], [b"\r", b"\n"]])
def test_empty_lines_between_requests_are_no_request(pieces: list[bytes]) -> None:
    stage = Stage(limits=ProxyOptions(header_timeout_s=10.0, keepalive_timeout_s=600.0))
    client = stage.client()
    for piece in pieces:
        client.send(piece)
    assert client.connection.state is State.IDLE
    assert client.connection.deadline_at <= later(10), "who has never asked gains no time by it"
    client.send(GET)
    sandbox = stage.sandbox()
    assert sandbox.received().startswith(b"GET / ")
    sandbox.send(ANSWER)
    deadline = client.connection.deadline_at
    assert deadline > later(500)
    for piece in pieces:
        client.send(piece)
    assert client.connection.deadline_at == pytest.approx(deadline), "nobody gains time by them"


@pytest.mark.parametrize("has_asked", [False, True])
def test_halves_of_empty_lines_in_turns_buy_no_time(
    has_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(limits=ProxyOptions(header_timeout_s=10.0, keepalive_timeout_s=600.0))
    client = stage.client()
    if has_asked:
        client.send(to_nobody(GET))
    last = client.connection.deadline_at
    for seconds in range(1, 9):
        at = later(1)
        monkeypatch.setattr(time, "monotonic", lambda at=at: at)
        client.send(b"\r")
        assert client.connection.deadline_at <= min(last, at + 10.0)
        client.send(b"\n")
        assert client.connection.deadline_at <= last + 0.001, seconds


# --- bytes that make no request -------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (MALFORMED, 400, b"bad_request"),
        (b"nonsense\r\n", 400, b"bad_request"),
        (b"\x16\x03\x01\x02\x00\x01", 400, b"bad_request"),
        (GET.replace(b"1.1", b"2.0"), 505, b"version_not_supported"),
        (b"GET /" + b"x" * 300 + b" HTTP/1.1\r\n\r\n", 414, b"uri_too_long"),
        (b"GET /" + b"x" * 300, 414, b"uri_too_long"),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 600 + b"\r\n\r\n", 431, b"headers_too_large"),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 600, 431, b"headers_too_large"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX-Sandbox-ID: a\r\nX-Sandbox-ID: b\r\n\r\n", 400, b"amb"),
    ],
)
def test_what_makes_no_request_is_answered_and_the_connection_ends(
    data: bytes, status: int, code: bytes
) -> None:
    stage = Stage(limits=ProxyOptions(max_request_line_bytes=256, max_header_bytes=512))
    client = stage.client()
    client.send(data)
    answer = client.received()
    assert statuses(answer) == [status]
    assert b"X-Sandbox-Router-Error: " + code in answer
    assert b"\r\nConnection: close\r\n" in answer
    assert client.is_closed
    assert stage.shelf.opened == []
    assert stage.records.outcome.status == status


def test_nothing_behind_refused_bytes_is_read_as_a_request() -> None:
    stage = Stage()
    client = stage.client()
    client.send(MALFORMED + GET)
    client.connection.data_received(GET)
    assert statuses(client.received()) == [400]
    assert stage.records.started == 1


def test_a_refused_head_request_gets_no_body() -> None:
    client = Stage().client()
    client.send(MALFORMED.replace(b"GET", b"HEAD"))
    assert client.received().endswith(b"\r\n\r\n")


# --- one request after the other ------------------------------------------------------------


def test_requests_that_come_ahead_wait_for_their_turn() -> None:
    stage = Stage()
    client = stage.client()
    client.send(GET + GET.replace(b"GET / ", b"GET /second "))
    first = stage.sandbox()
    assert first.received().startswith(b"GET / ")
    assert len(stage.shelf.opened) == 1
    first.send(ANSWER)
    assert stage.sandbox().received().startswith(b"GET /second ")
    stage.sandbox().send(ANSWER)
    assert client.received() == ANSWER + ANSWER


async def test_thousands_of_refused_requests_that_came_ahead_are_answered_turn_by_turn() -> None:
    client = Stage().client()
    client.send(to_nobody(GET) * 2000)
    answered = statuses(client.received())
    assert len(answered) < 20, "others have their turn after a few"
    turns = 0
    while len(answered) < 2000:
        turns += 1
        assert turns <= 2000 // 16 + 8
        await asyncio.sleep(0)
        answered += statuses(client.received())
    assert answered == [400] * 2000
    assert client.connection.state is State.IDLE


async def test_too_much_ahead_stops_reading_until_its_turn() -> None:
    stage = Stage()
    client = stage.client()
    client.send(GET)
    client.send(b"POST / HTTP/1.1\r\n")
    assert not client.wire.is_paused
    client.send(b"A: " + b"x" * 70_000)
    assert client.wire.is_paused
    stage.sandbox().send(ANSWER)
    assert not client.wire.is_paused


async def test_a_body_that_nobody_takes_yet_is_held_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No turn ends early, however long the machine pauses.
    monkeypatch.setattr("router.proxy.connection.time", SimpleNamespace(monotonic=lambda: 0.0))
    stage = Stage()
    stage.gateway.begin = lambda client, head: None  # type: ignore[method-assign]
    client = stage.client()
    client.send(post(b"x" * 60_000, length=1_000_000))
    assert not client.wire.is_paused
    client.send(b"x" * 10_000)
    assert client.wire.is_paused


@pytest.mark.parametrize(
    ("request_line", "extra", "kept"),
    [
        (b"GET / HTTP/1.1", b"", True),
        (b"GET / HTTP/1.1", b"Connection: close\r\n", False),
        (b"GET / HTTP/1.0", b"", False),
        (b"GET / HTTP/1.0", b"Connection: keep-alive\r\n", True),
    ],
)
def test_the_connection_is_kept_as_the_client_asked(
    request_line: bytes, extra: bytes, kept: bool
) -> None:
    stage = Stage()
    for request, answers in (
        (b"%b\r\n%b%b\r\n" % (request_line, TO_BOX, extra), True),
        (to_nobody(b"%b\r\n%b%b\r\n" % (request_line, TO_BOX, extra)), False),
    ):
        client = stage.client()
        client.send(request)
        if answers:
            stage.sandbox().send(ANSWER)
        head = client.received().partition(b"\r\n\r\n")[0]
        assert (b"Connection: close" in head) is not kept
        assert client.is_closed is not kept


def test_what_comes_behind_a_refused_upgrade_is_never_read_as_a_request() -> None:
    stage = Stage()
    client = stage.client()
    upgrade = b"GET / HTTP/1.1\r\n%bConnection: upgrade\r\nUpgrade: x\r\n\r\n" % TO_BOX
    client.send(upgrade + GET)
    stage.sandbox().send(ANSWER)
    assert b"Connection: close\r\n" in client.received()
    assert client.is_closed
    assert len(stage.shelf.opened) == 1


@pytest.mark.parametrize("extra", [b"", b"Connection: close\r\n"])
def test_an_answer_that_still_moves_to_a_slow_client_gets_thirty_seconds_more(extra: bytes) -> None:
    stage = Stage(limits=ProxyOptions(keepalive_timeout_s=600.0))
    client = stage.client()
    client.wire.unsent_bytes = 1_000_000
    client.send(b"GET / HTTP/1.1\r\n%b%b\r\n" % (TO_BOX, extra))
    stage.sandbox().send(ANSWER)
    now = later(1000)
    for unsent in (900_000, 600_000, 200_000):
        client.wire.unsent_bytes = unsent
        client.connection.on_deadline(now)
        assert not client.wire.is_aborted
        assert client.connection.deadline_at == now + 30
        now += 30
    client.connection.on_deadline(now)
    assert client.wire.is_aborted, "nothing has moved since"


def test_a_last_answer_of_which_nothing_is_read_is_given_up_after_thirty_seconds() -> None:
    stage = Stage()
    client = stage.client()
    client.wire.unsent_bytes = 1_000_000
    client.send(b"GET / HTTP/1.1\r\nNo Header\r\n\r\n")
    assert later(20) < client.connection.deadline_at <= later(30)
    client.connection.on_deadline(client.connection.deadline_at)
    assert client.wire.is_aborted


def test_answers_of_which_a_waiting_client_reads_nothing_are_given_up_after_thirty_seconds() -> (
    None
):
    stage = Stage(limits=ProxyOptions(keepalive_timeout_s=600.0))
    client = stage.client()
    client.wire.unsent_bytes = 1_000_000
    client.send(to_nobody(GET))
    assert client.connection.state is State.IDLE
    now = later(0)
    stage.clients.notice_who_left(now)
    assert client.connection.deadline_at == now + 30
    stage.clients.notice_who_left(now + 10)
    assert client.connection.deadline_at == now + 30, "looking again gives no more time"
    client.connection.on_deadline(now + 30)
    assert client.wire.is_aborted


def test_a_client_that_has_read_its_answer_late_waits_on_as_any_idle_one() -> None:
    stage = Stage(limits=ProxyOptions(keepalive_timeout_s=600.0))
    client = stage.client()
    client.wire.unsent_bytes = 1_000_000
    client.send(to_nobody(GET))
    idle_until = client.connection.deadline_at
    now = later(0)
    stage.clients.notice_who_left(now)
    client.wire.unsent_bytes = 0
    client.connection.on_deadline(now + 30)
    assert not client.wire.is_aborted
    assert client.connection.deadline_at == idle_until
    client.connection.on_deadline(idle_until)
    assert client.wire.is_aborted


# --- bodies of refused requests -------------------------------------------------------------


@pytest.mark.parametrize("came", [b"", b"abc", b"abcdefghij"])
def test_a_short_body_of_a_refused_request_is_thrown_away_and_the_connection_goes_on(
    came: bytes,
) -> None:
    stage = Stage()
    client = stage.client()
    client.send(to_nobody(post(came, length=10)))
    answer = client.received()
    assert statuses(answer) == [400]
    assert b"Connection: close" not in answer
    client.send(b"abcdefghij"[len(came) :] + GET)
    stage.sandbox().send(ANSWER)
    assert client.received() == ANSWER
    assert not client.is_closed


@pytest.mark.parametrize(
    "request_",
    [
        post(b"abc", length=10_000_000),
        post_chunked(b"3\r\nabc\r\n"),
        post(b"", length=3, extra=b"Expect: 100-continue\r\n"),
    ],
    ids=["long", "chunked", "not asked for yet"],
)
def test_a_refused_request_whose_end_is_far_or_uncertain_ends_the_connection(
    request_: bytes,
) -> None:
    client = Stage().client()
    client.send(to_nobody(request_))
    assert b"Connection: close\r\n" in client.received()
    assert client.is_closed


def test_a_body_that_is_thrown_away_has_a_deadline() -> None:
    stage = Stage(limits=ProxyOptions(header_timeout_s=10.0, keepalive_timeout_s=600.0))
    client = stage.client()
    client.send(to_nobody(post(b"", length=10)))
    assert client.connection.state is State.DISCARDING
    assert later(5) < client.connection.deadline_at <= later(10)
    client.connection.on_deadline(0.0)
    assert client.wire.is_aborted


def test_a_malformed_body_is_refused_and_the_sandbox_cut_off() -> None:
    stage = Stage()
    client, sandbox = stage.talk(post_chunked(b"3\r\nabc\r\n"))
    client.send(b"zzz\r\n")
    answer = client.received()
    assert statuses(answer) == [400]
    assert client.is_closed
    assert sandbox.wire.is_aborted
    assert b"0\r\n\r\n" not in sandbox.received(), "a body cut short never looks complete"


# --- back-pressure --------------------------------------------------------------------------


def test_a_sandbox_that_takes_no_more_stops_the_client() -> None:
    stage = Stage()
    client, sandbox = stage.talk(post(b"x", length=100))
    sandbox.upstream.pause_writing()
    assert client.wire.is_paused
    sandbox.upstream.resume_writing()
    assert not client.wire.is_paused


def test_a_client_that_takes_no_more_stops_the_sandbox() -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    client.connection.pause_writing()
    assert sandbox.wire.is_paused
    client.connection.resume_writing()
    assert not sandbox.wire.is_paused


async def test_a_client_that_got_full_while_it_was_dialled_for_stops_the_sandbox_at_once() -> None:
    stage = Stage()
    stage.shelf.has_idle = False
    client = stage.client()
    client.send(GET)
    client.connection.pause_writing()
    await stage.until(lambda: stage.shelf.opened)
    assert stage.sandbox().wire.is_paused


def test_a_client_that_does_not_read_its_answers_gets_no_more_of_them() -> None:
    stage = Stage()
    client = stage.client()
    client.connection.pause_writing()
    client.send(to_nobody(GET) * 3)
    assert client.received() == b""
    assert client.wire.is_paused
    client.connection.resume_writing()
    assert statuses(client.received()) == [400] * 3
    assert not client.wire.is_paused


# --- ends -----------------------------------------------------------------------------------


def test_a_client_that_leaves_cancels_the_sandboxs_request() -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    client.leave()
    assert sandbox.wire.is_aborted
    assert (stage.records.outcome.status, stage.records.outcome.code) == (499, "client_closed")


def test_a_client_that_says_it_sends_no_more_has_left() -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    assert client.connection.eof_received() is False
    assert sandbox.wire.is_aborted
    client.leave()
    assert len(stage.records.outcomes) == 1


@pytest.mark.parametrize("sent", [b"", b"GET / HT"])
def test_the_end_of_a_connection_without_request_is_no_request(sent: bytes) -> None:
    stage = Stage()
    client = stage.client()
    client.connection.data_received(sent) if sent else None
    assert client.connection.eof_received() is False
    client.leave()
    assert stage.records.started == 0


def test_after_its_end_nothing_is_read() -> None:
    stage = Stage()
    client = stage.client()
    client.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    stage.sandbox().send(ANSWER)
    client.received()
    client.connection.data_received(GET)
    assert client.received() == b""
    assert stage.records.started == 1


def test_a_busy_connection_has_the_exchanges_deadline() -> None:
    stage = Stage()
    client, _ = stage.talk()
    assert client.connection.deadline_at == NEVER, "proxy-timeout is off here"
    client.connection.on_deadline(0.0)
    assert statuses(client.received()) == [504]


# --- who connects ---------------------------------------------------------------------------


def test_the_certificate_is_asked_for_on_tls_connections_alone() -> None:
    identity = CertificateIdentity("spiffe://team/bot", "uri")
    stage = Stage(identity_of=lambda ssl_object: identity)
    assert stage.client(is_tls=True).connection.caller.certificate is identity
    assert stage.client(is_tls=False).connection.caller.certificate is None


def test_the_peer_is_the_address_that_connected() -> None:
    client = Stage().client(peer="2001:db8::7")
    assert (client.connection.peer.address, client.connection.peer.is_tls) == ("2001:db8::7", False)


def test_its_repr_says_what_it_does() -> None:
    client = Stage().client()
    assert repr(client.connection) == "<ClientConnection IDLE reading=True>"


@given(
    st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=40),
            st.sampled_from(
                [GET, to_nobody(GET), post(b"ab"), post_chunked(b"1\r\na\r\n"), b"0\r\n\r\n"]
            ),
            st.sampled_from([b"\r\n", b"\n", b"GET / HTTP/1.1\r\n", b"Host: a\r\n", ANSWER]),
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_whatever_a_client_sends_ends_in_answers_or_in_waiting(
    pieces: list[bytes], sandboxes_answer: bool
) -> None:
    stage = Stage()
    client = stage.client()
    for piece in pieces:
        client.connection.data_received(piece)
        if sandboxes_answer and stage.shelf.opened and client.connection.exchange is not None:
            stage.sandbox().send(ANSWER)
    outcomes = stage.records.outcomes
    assert all(outcome.status != 500 for outcome in outcomes)
    assert statuses(client.received()) == [outcome.status for outcome in outcomes]
    assert stage.records.started - len(outcomes) == (client.connection.exchange is not None)


# --- bodies that are nothing but work -----------------------------------------------------------

TINY = b"01\r\nx\r\n11\r\n01234567890123456\r\n" * 8000


async def turns(count: int = 1000) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("with_head", [True, False])
async def test_a_body_of_tiny_chunks_is_taken_in_turns_and_the_next_request_after_it(
    with_head: bool,
) -> None:
    stage = Stage()
    client = stage.client()
    pieces = [post_chunked(b""), TINY + b"0\r\n\r\n" + GET]
    for piece in [b"".join(pieces)] if with_head else pieces:
        client.send(piece)
    sandbox = stage.sandbox()
    first = sandbox.received()
    assert len(first) < len(TINY) // 2
    assert client.wire.is_paused
    client.connection.resume_reading()
    assert client.wire.is_paused, "nothing overtakes what came before it"
    await turns()
    assert (first + sandbox.received()).partition(b"\r\n\r\n")[2] == TINY + b"0\r\n\r\n"
    assert not client.wire.is_paused
    sandbox.send(ANSWER)
    stage.sandbox().send(ANSWER)
    assert statuses(client.received()) == [200, 200]


async def test_a_sandbox_without_room_stops_the_reading_behind_what_was_put_off() -> None:
    stage = Stage()
    client, sandbox = stage.talk(post_chunked(b""))
    sandbox.upstream.pause_writing()
    client.connection.resume_reading()
    client.send(TINY)
    await turns()
    assert client.wire.is_paused
    sandbox.upstream.resume_writing()
    assert not client.wire.is_paused


async def test_a_malformed_chunk_in_what_was_put_off_is_refused() -> None:
    client, _ = Stage().talk(post_chunked(b""))
    client.send(TINY + b"x\r\n")
    await turns()
    assert statuses(client.received()) == [400]
    assert client.is_closed


async def test_what_was_put_off_goes_nowhere_once_the_client_or_the_exchange_has_gone() -> None:
    for leave in (True, False):
        stage = Stage()
        client, sandbox = stage.talk(post_chunked(b""))
        client.send(TINY)
        sandbox.received()
        if leave:
            client.leave()
        else:
            sandbox.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await turns()
        assert sandbox.received() == b""
        assert len(stage.records.outcomes) == 1
        assert leave or statuses(client.received()) == [413]
        assert leave or not client.wire.is_paused, "it is read to its end"
