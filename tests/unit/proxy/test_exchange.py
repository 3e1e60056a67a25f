"""One request and its response: what goes where, when it ends, and what is told about it."""

from __future__ import annotations

import pytest

from router.errors import SandboxUnreachable
from router.proxy.closing_connection import State as State
from router.proxy.options import ProxyOptions
from router.proxy.racing import ConnectFailed
from tests.unit.proxy.stage import BOX, GET, TO_BOX, Client, Sandbox, Stage, later

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def head(method: str = "GET", *lines: bytes, version: str = "1.1", target: str = "/") -> bytes:
    first = f"{method} {target} HTTP/{version}\r\n".encode()
    return first + TO_BOX + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def body_of(data: bytes) -> bytes:
    return data.partition(b"\r\n\r\n")[2]


def code_of(answer: bytes) -> bytes:
    """Returns the router's error code in an answer."""
    return answer.partition(b"X-Sandbox-Router-Error: ")[2].partition(b"\r\n")[0]


# --- the request ----------------------------------------------------------------------------


def test_a_request_is_sent_to_the_sandbox_at_once() -> None:
    _, sandbox = Stage().talk()
    assert sandbox.received() == (
        b"GET / HTTP/1.1\r\nHost: 10.0.0.5:8888\r\n"
        b"X-Forwarded-For: 198.51.100.9\r\nX-Forwarded-Proto: http\r\n"
        b"X-Forwarded-Host: router\r\nVia: 1.1 sandbox-router\r\n\r\n"
    )


@pytest.mark.parametrize(("preserve", "host"), [(True, b"router"), (False, b"10.0.0.5:8888")])
def test_the_host_is_the_pods_or_kept(preserve: bool, host: bytes) -> None:
    _, sandbox = Stage(preserve_host=preserve).talk()
    assert b"\r\nHost: " + host + b"\r\n" in sandbox.received()


def test_in_path_mode_the_sandbox_sees_the_rest_of_the_path() -> None:
    stage = Stage(path_prefix="/s")
    client = stage.client()
    client.send(b"GET /s/default/box/8888/a//b?c HTTP/1.1\r\nHost: r\r\n\r\n")
    assert stage.sandbox().received().startswith(b"GET /a//b?c HTTP/1.1\r\n")
    stage.sandbox().send(b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n")
    assert b"\r\nLocation: /s/default/box/8888/x\r\n" in client.received()


def test_what_has_come_of_a_body_goes_out_with_the_head() -> None:
    client, sandbox = Stage().talk(head("POST", b"Content-Length: 5") + b"he")
    assert sandbox.wire.sent.endswith(b"\r\n\r\nhe")
    client.send(b"llo")
    assert body_of(sandbox.received()) == b"hello"


def test_a_head_whose_body_has_not_come_goes_out_alone() -> None:
    _, sandbox = Stage().talk(head("POST", b"Content-Length: 5", b"Expect: 100-continue"))
    taken = sandbox.received()
    assert taken.endswith(b"\r\n\r\n")
    assert b"\r\nExpect: 100-continue\r\n" in taken


def test_an_empty_chunked_body_is_sent_with_its_end_and_trailers() -> None:
    _, sandbox = Stage().talk(
        head("POST", b"Transfer-Encoding: chunked") + b"0\r\nX-Sum: 0\r\nHost: evil\r\n\r\n"
    )
    assert body_of(sandbox.received()) == b"0\r\nX-Sum: 0\r\n\r\n"


@pytest.mark.parametrize(
    "pieces", [[b"3\r\nabc\r\n0\r\n\r\n"], [b"3\r\nab", b"c\r\n0\r\n", b"\r\n"]]
)
def test_chunks_cross_as_they_came(pieces: list[bytes]) -> None:
    client, sandbox = Stage().talk(head("POST", b"Transfer-Encoding: chunked"))
    for piece in pieces:
        client.send(piece)
    assert body_of(sandbox.received()) == b"3\r\nabc\r\n0\r\n\r\n"


def test_a_body_over_the_limit_is_refused_when_it_goes_over() -> None:
    stage = Stage(limits=ProxyOptions(max_body_bytes=10))
    client, sandbox = stage.talk(head("POST", b"Transfer-Encoding: chunked") + b"5\r\nhello\r\n")
    assert not client.received()
    client.send(b"6\r\n world\r\n")
    answer = client.received()
    assert (answer[:13], code_of(answer)) == (b"HTTP/1.1 413 ", b"body_too_large")
    assert sandbox.wire.is_aborted
    assert b"world" not in sandbox.received()


# --- the answer -----------------------------------------------------------------------------


def test_an_answer_crosses_as_it_is_and_both_connections_are_kept() -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(ANSWER)
    assert client.received() == ANSWER
    assert client.connection.state is State.IDLE
    assert stage.shelf.released == [sandbox.upstream]
    outcome = stage.records.outcome
    assert (outcome.status, outcome.code, outcome.bytes_to_client) == (200, "", 2)
    assert outcome.first_byte_s is not None
    assert outcome.total_s >= outcome.first_byte_s


def test_the_first_byte_is_out_as_soon_as_it_is_in() -> None:
    client, sandbox = Stage().talk()
    sandbox.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
    assert client.received().endswith(b"\r\n\r\n")
    for piece in (b"a", b"bc"):
        sandbox.send(piece)
        assert client.received() == piece


def test_chunks_of_an_answer_cross_as_they_came_with_their_trailers() -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(CHUNKED + b"3;x=1\r\nabc\r\n")
    sandbox.send(b"0\r\nX-Sum: 1\r\nSet-Cookie: evil\r\n\r\n")
    assert client.received() == CHUNKED + b"3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n"
    assert stage.records.outcome.bytes_to_client == 3
    assert stage.shelf.released


def test_a_body_until_close_becomes_chunks() -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(UNTIL_CLOSE + b"abc")
    sandbox.send(b"de")
    sandbox.end()
    assert client.received() == (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    assert not client.is_closed
    assert stage.shelf.released == []


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (CHUNKED + b"3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n", b"abc"),
        (UNTIL_CLOSE + b"abc", b"abc"),
    ],
)
def test_an_old_client_gets_a_body_without_length_until_the_close(
    answer: bytes, body: bytes
) -> None:
    client, sandbox = Stage().talk(head("GET", b"Connection: keep-alive", version="1.0"))
    sandbox.send(answer)
    if not client.is_closed:
        sandbox.end()
    assert client.received() == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body
    assert client.is_closed


def test_an_old_client_that_asked_for_it_is_kept_where_the_length_is_known() -> None:
    client, sandbox = Stage().talk(head("GET", b"Connection: keep-alive", version="1.0"))
    sandbox.send(ANSWER)
    assert b"\r\nConnection: keep-alive\r\n" in client.received()
    assert not client.is_closed


def test_interim_answers_are_passed_on_but_not_to_old_clients() -> None:
    for version, expected in (("1.1", CONTINUE), ("1.0", b"")):
        client, sandbox = Stage().talk(head(version=version))
        sandbox.send(CONTINUE)
        assert client.received() == expected
        sandbox.send(ANSWER)
        assert body_of(client.received()) == b"ok"


def test_interim_answers_that_come_together_are_written_together() -> None:
    client, sandbox = Stage().talk()
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    written: list[bytes] = []
    client.wire.write = written.append  # type: ignore[method-assign]
    sandbox.send(CONTINUE + hints + CONTINUE + ANSWER[:20])
    assert written == [CONTINUE + hints + CONTINUE]


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
        ("HEAD", CHUNKED),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ],
)
def test_an_answer_without_body_is_whole_at_its_head(method: str, answer: bytes) -> None:
    stage = Stage()
    client, sandbox = stage.talk(head(method))
    sandbox.send(answer)
    assert client.received() == answer
    assert client.connection.state is State.IDLE
    assert stage.shelf.released == [sandbox.upstream]


def test_a_sandbox_that_says_close_is_not_used_again() -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
    assert client.received() == ANSWER, "its hop is not the client's"
    assert stage.shelf.released == []
    assert sandbox.wire.is_aborted


def test_bytes_behind_an_answer_are_nobodys_and_end_the_connection() -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(ANSWER + ANSWER)
    assert client.received() == ANSWER
    assert stage.shelf.released == []
    assert sandbox.wire.is_aborted


def test_a_retired_connection_finishes_and_is_not_used_again() -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.upstream.is_retired = True
    sandbox.send(ANSWER)
    assert client.received() == ANSWER
    assert stage.shelf.released == []


def test_an_answer_before_the_requests_end_ends_both_connections() -> None:
    stage = Stage()
    client, sandbox = stage.talk(head("POST", b"Content-Length: 1000000") + b"abc")
    sandbox.send(ANSWER)
    assert client.received() == ANSWER
    assert client.is_closed
    assert sandbox.wire.is_aborted
    assert stage.shelf.released == []


def test_after_an_early_answer_a_short_rest_of_the_request_is_thrown_away() -> None:
    stage = Stage()
    client, sandbox = stage.talk(head("POST", b"Content-Length: 5") + b"abc")
    sandbox.send(ANSWER)
    assert client.connection.state is State.DISCARDING
    client.send(b"de" + GET)
    stage.sandbox().send(ANSWER)
    assert client.received() == ANSWER * 2


def test_after_a_refused_expectation_nothing_can_be_framed() -> None:
    client, sandbox = Stage().talk(head("POST", b"Content-Length: 5", b"Expect: 100-continue"))
    sandbox.send(b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
    assert b"\r\nConnection: close\r\n" in client.received()
    assert client.is_closed


# --- failures of the sandbox ----------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        CHUNKED + b"zz\r\n",
    ],
)
def test_no_answer_at_all_is_a_bad_response_and_the_client_goes_on(answer: bytes) -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(answer)
    received = client.received()
    assert (received[:13], code_of(received)) == (b"HTTP/1.1 502 ", b"bad_response")
    assert not client.is_closed
    assert sandbox.wire.is_aborted
    assert stage.records.outcome.upstream_error == "bad_response"


@pytest.mark.parametrize(
    ("answer", "more"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", None),
        (CHUNKED + b"3\r\nabc\r\n", None),
        (CHUNKED + b"3\r\nabc\r\n", b"zz\r\n"),
    ],
)
def test_an_answer_cut_short_never_looks_whole(answer: bytes, more: bytes | None) -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(answer)
    sandbox.end() if more is None else sandbox.send(more)
    assert client.received() == answer
    assert client.wire.has_ended
    assert not client.wire.is_aborted, "a reset destroys what the client has yet to read"
    outcome = stage.records.outcome
    assert (outcome.status, outcome.code) == (200, "response_cut")
    assert outcome.upstream_error == "response_cut"


def test_a_broken_body_until_close_is_cut_although_an_end_would_have_been_whole() -> None:
    client, sandbox = Stage().talk()
    sandbox.send(UNTIL_CLOSE + b"abc")
    sandbox.break_off()
    assert not client.received().endswith(b"0\r\n\r\n")
    assert client.wire.has_ended, "the last chunk is missing"


def test_only_a_body_that_the_end_would_complete_is_cut_by_a_reset() -> None:
    client, sandbox = Stage().talk(GET.replace(b"HTTP/1.1", b"HTTP/1.0"))
    sandbox.send(UNTIL_CLOSE + b"abc")
    sandbox.break_off()
    assert client.received().endswith(b"abc")
    assert client.wire.is_aborted


def old_stream(stage: Stage) -> tuple[Client, Sandbox]:
    """Returns both ends of a response that only its end delimits, of which 1000 bytes have come."""
    client, sandbox = stage.talk(GET.replace(b"HTTP/1.1", b"HTTP/1.0"))
    sandbox.send(UNTIL_CLOSE + b"x" * 1000)
    return client, sandbox


def test_the_reset_waits_for_a_slow_client_and_then_the_request_is_told_of() -> None:
    stage = Stage()
    client, sandbox = old_stream(stage)
    client.wire.unsent_bytes = 400
    sandbox.break_off()
    assert not client.is_closed
    client.connection.on_deadline(later(20))
    assert not client.is_closed
    assert stage.records.outcomes == []
    client.wire.unsent_bytes = 0
    client.connection.on_deadline(later(40))
    assert client.wire.is_aborted
    client.leave()
    outcome = stage.records.outcome
    assert (outcome.code, outcome.bytes_to_client) == ("response_cut", 1000)


def test_where_no_reset_is_needed_the_end_is_said_and_the_request_told_of_when_all_is_sent() -> (
    None
):
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(CHUNKED + b"3\r\nabc\r\n")
    client.wire.unsent_bytes = 400
    sandbox.break_off()
    assert client.wire.has_ended, "behind what waits"
    client.connection.on_deadline(later(20))
    assert stage.records.outcomes == []
    client.wire.unsent_bytes = 0
    client.connection.on_deadline(later(40))
    assert stage.records.outcome.bytes_to_client == 3
    assert not client.wire.is_aborted, "the client may still be reading"
    client.connection.on_deadline(later(50))
    assert client.wire.is_aborted


def test_a_client_that_takes_nothing_more_is_reset_in_time_and_what_it_was_not_sent_is_not_counted() -> (
    None
):
    stage = Stage()
    client, sandbox = old_stream(stage)
    client.wire.unsent_bytes = 400
    sandbox.break_off()
    client.connection.on_deadline(later(29))
    assert not client.is_closed
    client.connection.on_deadline(later(31))
    assert client.wire.is_aborted
    assert stage.records.outcome.bytes_to_client == 600


def test_a_client_that_says_no_more_is_given_what_had_come_and_the_sandbox_is_cancelled_at_once() -> (
    None
):
    stage = Stage()
    client, sandbox = old_stream(stage)
    client.wire.unsent_bytes = 400
    assert client.connection.eof_received(), "the connection stays open for the rest"
    assert sandbox.wire.is_aborted
    assert not client.is_closed
    client.wire.unsent_bytes = 0
    client.connection.on_deadline(later(1))
    assert client.wire.is_aborted
    client.leave()
    assert (stage.records.outcome.code, stage.records.outcome.status) == ("client_closed", 200)


def test_with_tls_a_client_that_ends_is_reset_at_once_as_no_half_is_left() -> None:
    stage = Stage()
    client = stage.client(is_tls=True)
    client.send(GET.replace(b"HTTP/1.1", b"HTTP/1.0"))
    sandbox = stage.sandbox()
    sandbox.send(UNTIL_CLOSE + b"abc")
    client.wire.unsent_bytes = 400
    assert not client.connection.eof_received()
    assert client.wire.is_aborted
    assert sandbox.wire.is_aborted


def test_of_a_client_that_leaves_while_its_buffer_is_full_what_lay_in_it_is_not_counted() -> None:
    stage = Stage()
    client, sandbox = old_stream(stage)
    client.wire.unsent_bytes = 300
    client.connection.pause_writing()
    client.leave()
    assert sandbox.wire.is_aborted
    assert (stage.records.outcome.code, stage.records.outcome.bytes_to_client) == (
        "client_closed",
        700,
    )


def test_of_a_client_that_has_room_everything_is_counted() -> None:
    stage = Stage()
    client, _ = old_stream(stage)
    client.wire.unsent_bytes = 300
    client.connection.pause_writing()
    client.connection.resume_writing()
    client.leave()
    assert stage.records.outcome.bytes_to_client == 1000


def test_what_a_client_still_says_during_a_delivery_is_ignored() -> None:
    stage = Stage()
    client, sandbox = old_stream(stage)
    client.wire.unsent_bytes = 400
    sandbox.break_off()
    client.send(GET)
    assert len(stage.shelf.opened) == 1
    stage.clients.end_now()
    assert client.wire.is_aborted, "unless the router itself ends"
    client.leave()
    assert stage.records.outcome.bytes_to_client == 600


@pytest.mark.parametrize("how", ["end", "break_off"])
@pytest.mark.parametrize(("came", "code"), [(b"", "closed_early"), (CONTINUE, "bad_response")])
def test_a_sandbox_that_leaves_before_its_answer_is_a_bad_response(
    how: str, came: bytes, code: str
) -> None:
    stage = Stage()
    client, sandbox = stage.talk(head("POST", b"Content-Length: 0"))
    if came:
        sandbox.send(came)
    getattr(sandbox, how)()
    received = client.received().removeprefix(came)
    assert (received[:13], code_of(received)) == (b"HTTP/1.1 502 ", b"bad_response")
    assert stage.records.outcome.upstream_error == code
    assert stage.shelf.dialled == []


# --- the one repetition ---------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("how", ["end", "break_off"])
async def test_a_reused_connection_that_was_just_closing_is_replaced_once(
    method: str, how: str
) -> None:
    stage = Stage()
    client, stale = stage.talk(head(method))
    getattr(stale, how)()
    await stage.until(lambda: len(stage.shelf.opened) == 2)
    fresh = stage.sandbox()
    assert fresh.received().startswith(method.encode())
    getattr(fresh, how)()
    assert client.received().startswith(b"HTTP/1.1 502 "), "nothing is sent a third time"
    outcome = stage.records.outcome
    assert (outcome.retries, outcome.upstream_error) == (1, "closed_early")
    assert stage.records.events.count("upstream_retried") == 1


@pytest.mark.parametrize(
    "request_",
    [
        head("POST", b"Content-Length: 0"),
        head("PUT"),
        head("DELETE"),
        head("PATCH"),
        head("PROPFIND"),
        head("GET", b"Content-Length: 3") + b"abc",
        head("GET", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    ],
)
def test_nothing_else_is_ever_sent_twice(request_: bytes) -> None:
    stage = Stage()
    client, stale = stage.talk(request_)
    stale.end()
    assert client.received().startswith(b"HTTP/1.1 502 ")
    assert len(stage.shelf.opened) == 1
    assert stage.records.outcome.retries == 0


def test_after_the_first_byte_of_an_answer_nothing_is_repeated() -> None:
    stage = Stage()
    client, stale = stage.talk()
    stale.send(b"HTTP")
    stale.end()
    assert client.received().startswith(b"HTTP/1.1 502 ")
    assert len(stage.shelf.opened) == 1


async def test_a_fresh_connection_is_not_replaced() -> None:
    stage = Stage()
    stage.shelf.has_idle = False
    client = stage.client()
    client.send(GET)
    await stage.until(lambda: stage.shelf.opened)
    stage.sandbox().end()
    assert client.received().startswith(b"HTTP/1.1 502 ")


async def test_a_client_that_leaves_while_it_is_dialled_for_cancels_the_dialling() -> None:
    stage = Stage()
    stage.shelf.has_idle = False
    client = stage.client()
    client.send(GET)
    assert client.exchange.task is not None
    client.leave()
    await stage.until(lambda: not len(stage.tasks))
    assert stage.shelf.opened == []
    assert stage.records.outcome.code == "client_closed"


async def test_what_cannot_be_dialled_becomes_the_answer() -> None:
    stage = Stage(limits=ProxyOptions(connect_budget_s=0.01))
    stage.shelf.has_idle = False
    stage.shelf.connects = [ConnectFailed("connect_error", "no")] * 10
    client = stage.client()
    client.send(GET)
    await stage.until(lambda: stage.records.outcomes)
    assert code_of(client.received()) == SandboxUnreachable.code.encode()
    assert not client.is_closed


# --- deadlines ------------------------------------------------------------------------------

LIMITS = ProxyOptions(proxy_timeout_s=180.0, stream_idle_timeout_s=30.0, keepalive_timeout_s=600.0)


def deadline_in(client: Client) -> float:
    """Returns in how many seconds the connection's deadline is, to the nearest ten."""
    return round((client.connection.deadline_at - later(0)) / 10) * 10


def test_each_part_of_an_exchange_has_its_own_deadline() -> None:
    stage = Stage(limits=LIMITS)
    client = stage.client()
    client.send(head("POST", b"Content-Length: 4") + b"ab")
    assert deadline_in(client) == 30, "the body must move"
    client.send(b"cd")
    assert deadline_in(client) == 180, "the answer must begin"
    stage.sandbox().send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
    assert deadline_in(client) == 30, "the answer must move"
    stage.sandbox().send(b"k")
    assert deadline_in(client) == 600, "the next request must come"


def test_a_client_may_ask_for_less_time() -> None:
    client, _ = Stage(limits=LIMITS).talk(head("GET", b"X-Sandbox-Timeout: 20"))
    assert deadline_in(client) == 20


def test_a_sandbox_that_does_not_answer_in_time_is_told_as_that() -> None:
    stage = Stage(limits=LIMITS)
    client, sandbox = stage.talk()
    client.connection.on_deadline(later(0))
    answer = client.received()
    assert (answer[:13], code_of(answer)) == (b"HTTP/1.1 504 ", b"sandbox_timeout")
    assert b"Timed out waiting for the backend sandbox: box" in answer
    assert stage.records.outcome.upstream_error == "response_timeout"
    assert sandbox.wire.is_aborted
    assert not client.is_closed


def test_a_body_that_stops_coming_is_the_clients_fault() -> None:
    stage = Stage(limits=LIMITS)
    client, sandbox = stage.talk(head("POST", b"Content-Length: 4") + b"ab")
    client.connection.on_deadline(later(0))
    assert code_of(client.received()) == b"request_timeout"
    assert stage.records.outcome.upstream_error == ""
    assert sandbox.wire.is_aborted
    assert client.is_closed


def test_an_answer_that_stops_moving_is_cut() -> None:
    stage = Stage(limits=LIMITS)
    client, sandbox = stage.talk()
    sandbox.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
    client.received()
    client.connection.on_deadline(later(0))
    assert client.received() == b""
    assert client.wire.has_ended
    assert stage.records.outcome.code == "response_cut"


# --- what is told ---------------------------------------------------------------------------


def test_an_exchange_ends_once_whatever_comes_after() -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    exchange = client.exchange
    sandbox.send(ANSWER)
    exchange.client_left()
    exchange.fail(SandboxUnreachable())
    client.leave()
    assert stage.records.outcome.code == ""
    assert client.received() == ANSWER


def test_the_outcome_counts_bodies_without_their_framing() -> None:
    stage = Stage()
    _, sandbox = stage.talk(head("POST", b"Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n")
    sandbox.send(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")
    outcome = stage.records.outcome
    assert (outcome.bytes_from_client, outcome.bytes_to_client) == (3, 5)
    assert (outcome.sandbox, outcome.namespace, outcome.pod_uid) == ("box", "default", BOX.uid)
    assert (outcome.port, outcome.principal, outcome.authz) == (8888, "anonymous", "allowed")


def test_places_are_given_back_at_the_end() -> None:
    stage = Stage(limits=ProxyOptions(max_requests_per_sandbox=1))
    _, sandbox = stage.talk()
    second = stage.client()
    second.send(GET)
    assert code_of(second.received()) == b"too_many_requests"
    sandbox.send(ANSWER)
    second.send(GET)
    assert second.received() == b""
    Sandbox(stage.shelf.opened[-1]).send(ANSWER)
    assert second.received() == ANSWER


def test_its_repr_says_how_far_it_is() -> None:
    client, sandbox = Stage().talk(head("POST", b"Content-Length: 5"))
    assert repr(client.exchange) == "<Exchange b'POST' BODY AWAITED>"
    sandbox.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
    assert "BODY BODY" in repr(client.exchange)


# --- whose activity it was ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "is_used"), [(200, True), (204, True), (404, True), (500, False), (503, False)]
)
def test_an_answer_below_500_is_activity_of_the_sandbox(status: int, is_used: bool) -> None:
    stage = Stage()
    _, sandbox = stage.talk()
    sandbox.send(b"HTTP/1.1 %d Whatever\r\nContent-Length: 0\r\n\r\n" % status)
    assert (stage.records.outcome.used is BOX) == is_used
    assert stage.records.outcome.used_at == pytest.approx(later(0), abs=5)


def test_a_client_that_leaves_while_the_sandbox_works_has_used_it() -> None:
    stage = Stage()
    client, _ = stage.talk()
    client.leave()
    assert (stage.records.outcome.status, stage.records.outcome.used) == (499, BOX)


def test_a_client_that_leaves_before_there_is_a_connection_has_not() -> None:
    stage = Stage()
    client = stage.client()
    client.send(GET.replace(b"box", b"starting"))
    client.leave()
    assert stage.records.outcome.used is None


def test_a_stream_that_its_client_leaves_was_used_until_then() -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(CHUNKED)
    client.leave()
    assert (stage.records.outcome.code, stage.records.outcome.used) == ("client_closed", BOX)


def test_what_failed_or_was_refused_under_way_is_no_activity() -> None:
    failed, refused = Stage(), Stage(limits=ProxyOptions(max_body_bytes=3))
    _, sandbox = failed.talk()
    sandbox.send(b"no answer at all\r\n\r\n")
    assert (failed.records.outcome.status, failed.records.outcome.used) == (502, None)
    client, _ = refused.talk(head("POST", b"Transfer-Encoding: chunked") + b"2\r\nhe\r\n")
    client.send(b"3\r\nllo\r\n")
    assert (refused.records.outcome.status, refused.records.outcome.used) == (413, None)


def test_a_redirect_of_the_routers_own_is_no_activity() -> None:
    stage = Stage(path_prefix="/s")
    client = stage.client()
    client.send(b"GET /s/default/box/8888 HTTP/1.1\r\nHost: r\r\nSec-Fetch-Mode: navigate\r\n\r\n")
    assert client.received().startswith(b"HTTP/1.1 308 ")
    assert stage.records.outcome.used is None
