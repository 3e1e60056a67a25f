"""Every client's connection: who may come, and how they all end."""

from __future__ import annotations

import time

import pytest

from router.proxy.client_connection import ClientConnection
from router.proxy.closing_connection import State as State
from router.proxy.wire.websocket import CloseCode, close_frame
from tests.unit.proxy.stage import BOX, GET, Sandbox, Stage, later

WHOLE_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nha"


# --- who may come ---------------------------------------------------------------------------


def test_connections_are_counted_in_and_out() -> None:
    stage = Stage()
    one, two = stage.client(), stage.client()
    assert len(stage.clients) == 2
    one.leave()
    two.leave()
    assert len(stage.clients) == 0
    assert repr(stage.deadlines) == "<Deadlines watched=0>"
    assert stage.records.events == ["connection_opened"] * 2 + ["connection_closed"] * 2


# --- draining -------------------------------------------------------------------------------


def test_draining_closes_what_is_idle_and_counts_the_rest() -> None:
    stage = Stage()
    idle = stage.client()
    busy, sandbox = stage.talk()
    reading_a_head = stage.client()
    reading_a_head.send(b"GET / HT")
    assert stage.clients.drain() == 2
    assert (idle.is_closed, busy.is_closed, reading_a_head.is_closed) == (True, False, False)
    sandbox.send(WHOLE_ANSWER)
    assert b"Connection: close\r\n" in busy.received()
    assert busy.is_closed


def test_a_stream_that_ends_while_draining_leaves_its_client_a_moment_for_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(STREAM)
    stage.clients.drain()
    sandbox.send(b"haha!!!")
    assert stage.clients.drain() == 1
    assert not client.is_closed
    in_a_moment = later(1)
    monkeypatch.setattr(time, "monotonic", lambda: in_a_moment)
    stage.clients.drain()
    assert client.is_closed


def test_while_draining_every_answer_says_close() -> None:
    stage = Stage()
    stage.clients.is_draining = True
    client, sandbox = stage.talk()
    sandbox.send(WHOLE_ANSWER)
    assert client.received() == (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    )
    assert client.is_closed


def test_tunnels_are_told_that_the_router_goes_away() -> None:
    stage = Stage()
    web, _ = stage.tunnel()
    raw, _ = stage.tunnel(b"other/1")
    idle = stage.client()
    stage.clients.end_tunnels("bye")
    assert web.received() == close_frame(CloseCode.GOING_AWAY, "bye")
    assert raw.received() == b""
    assert web.is_closed
    assert raw.is_closed
    assert not idle.is_closed
    assert {outcome.code for outcome in stage.records.outcomes} == {"tunnel_drained"}


def test_the_end_ends_everything() -> None:
    stage = Stage()
    idle = stage.client()
    waiting, _ = stage.talk()
    streaming, sandbox = stage.talk()
    sandbox.send(STREAM)
    tunnel, _ = stage.tunnel()
    stage.clients.end_now()
    for client in (idle, tunnel):
        assert client.wire.is_aborted
    assert streaming.wire.has_ended
    assert not streaming.wire.is_aborted, "it may still be reading what had come"
    assert b"HTTP/1.1 503 " in waiting.received()
    for client in (idle, waiting, streaming, tunnel):
        client.leave()
    assert len(stage.clients) == 0
    assert len(stage.records.outcomes) == stage.records.started == 3
    codes = sorted(outcome.code for outcome in stage.records.outcomes)
    assert codes == ["client_closed", "draining", "stream_drained"]


# --- clients that left unnoticed --------------------------------------------------------------


def test_what_clients_left_behind_is_ended_about_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    gone, _ = stage.talk()
    here, _ = stage.talk()
    monkeypatch.setattr(ClientConnection, "has_left", lambda self: self is gone.connection)
    stage.clients.notice_who_left(100.0)
    assert gone.is_closed
    assert not here.is_closed
    gone.leave()
    assert Sandbox(stage.shelf.opened[0]).wire.is_aborted
    assert [outcome.code for outcome in stage.records.outcomes] == ["client_closed"]
    monkeypatch.setattr(ClientConnection, "has_left", lambda self: True)
    stage.clients.notice_who_left(100.5)
    assert not here.is_closed
    stage.clients.notice_who_left(101.0)
    assert here.wire.is_aborted


# --- rights that end ------------------------------------------------------------------------


def rights_end(stage: Stage) -> None:
    stage.rights.ends_at = time.time() - 1


def rights_are_revoked(stage: Stage) -> None:
    stage.rights.revoked = True


@pytest.mark.parametrize("end", [rights_end, rights_are_revoked])
def test_a_stream_ends_with_its_callers_right(end) -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(STREAM)
    stage.clients.end_streams_without_right(0.0)
    assert not client.is_closed
    end(stage)
    stage.clients.end_streams_without_right(10.0)
    assert client.wire.has_ended, "nine bytes were promised and two came"
    assert sandbox.wire.is_aborted
    assert stage.records.outcome.code == "response_cut"
    assert "right" in stage.records.outcome.error_reason


def test_a_request_without_an_answer_yet_is_forbidden_when_the_right_ends() -> None:
    stage = Stage()
    client, _ = stage.talk()
    rights_end(stage)
    stage.clients.end_streams_without_right(0.0)
    assert client.received().startswith(b"HTTP/1.1 403 ")
    assert stage.records.outcome.code == "forbidden"


def test_a_websocket_is_told_that_its_right_has_ended() -> None:
    stage = Stage()
    client, _ = stage.tunnel()
    rights_are_revoked(stage)
    stage.clients.end_streams_without_right(0.0)
    assert client.received() == close_frame(CloseCode.POLICY_VIOLATION, "the right has ended")
    assert client.is_closed
    assert stage.records.outcome.code == "tunnel_right_ended"


def test_a_sandbox_that_never_ends_its_frame_cannot_keep_a_tunnel_whose_right_has_ended() -> None:
    stage = Stage()
    client, sandbox = stage.tunnel()
    endless = b"\x82\x7f" + (2**62).to_bytes(8, "big")
    sandbox.send(endless)
    rights_are_revoked(stage)
    stage.clients.end_streams_without_right(0.0)
    assert not client.is_closed, "it gets a moment to end the frame"
    sandbox.send(b"more")
    stage.clients.end_streams_without_right(2.0)
    assert client.is_closed
    assert stage.records.outcome.code == "tunnel_right_ended"


def test_rights_are_looked_at_about_once_a_second() -> None:
    stage = Stage()
    client, sandbox = stage.talk()
    sandbox.send(STREAM)
    stage.clients.end_streams_without_right(100.0)
    rights_end(stage)
    stage.clients.end_streams_without_right(100.5)
    assert not client.is_closed
    stage.clients.end_streams_without_right(101.0)
    assert client.is_closed


def test_a_right_that_ends_later_and_a_connection_without_request_are_left_alone() -> None:
    stage = Stage()
    idle = stage.client()
    client, sandbox = stage.talk()
    sandbox.send(STREAM)
    stage.rights.ends_at = time.time() + 100
    stage.clients.end_streams_without_right(0.0)
    assert not client.is_closed
    assert not idle.is_closed


def test_the_clock_of_deadlines_looks_at_rights_by_itself() -> None:
    stage = Stage()
    client, _ = stage.tunnel()
    rights_are_revoked(stage)
    stage.deadlines.check()
    assert client.is_closed


def test_its_repr_says_how_many_and_whether_it_drains() -> None:
    stage = Stage()
    client = stage.client()
    assert repr(stage.clients) == "<Connections open=1 draining=False>"
    client.send(GET)
    assert client.connection.state is State.RELAYING
    assert Sandbox(stage.shelf.opened[0]).received().startswith(b"GET / ")


# --- what is under way ----------------------------------------------------------------------


def test_what_was_sent_to_a_sandbox_is_under_way_until_it_ends() -> None:
    stage = Stage()
    client, sandbox = stage.talk(GET)
    assert stage.clients.under_way() == [(BOX, None)]
    sandbox.send(STREAM)
    assert stage.clients.under_way() == [(BOX, None)], "a response that goes on too"
    sandbox.send(b"haha ha")
    assert stage.clients.under_way() == []
    assert not client.is_closed


def test_a_tunnel_is_under_way_with_when_it_moved_last() -> None:
    stage = Stage()
    client, _ = stage.tunnel()
    tunnel = client.connection.tunnel
    assert tunnel is not None
    assert stage.clients.under_way() == [(BOX, tunnel.moved_at)]
    client.leave()
    assert stage.clients.under_way() == []


def test_who_asks_nothing_and_who_was_refused_has_nothing_under_way() -> None:
    stage = Stage()
    stage.client()
    stage.client().send(GET.replace(b"box", b"no-such-box"))
    assert stage.clients.under_way() == []
