"""Two connections whose bytes cross untouched, and how that ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.closing_connection import State as State
from router.proxy.options import NEVER, ProxyOptions
from router.proxy.wire.websocket import CloseCode, close_frame
from tests.unit.proxy.stage import TO_BOX, Client, Sandbox, Stage, later

UPGRADE = b"GET / HTTP/1.1\r\n%bConnection: upgrade\r\nUpgrade: websocket\r\n\r\n" % TO_BOX
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
FRAME = b"\x81\x05hello"


def close_codes(stage: Stage) -> list[str]:
    return [outcome.code for outcome in stage.records.outcomes]


# --- how it begins --------------------------------------------------------------------------


def test_a_switch_of_protocols_crosses_and_becomes_a_tunnel() -> None:
    stage = Stage()
    client, sandbox = stage.talk(UPGRADE)
    sandbox.send(SWITCH)
    assert client.received() == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nConnection: Upgrade\r\n\r\n"
    )
    assert client.connection.state is State.TUNNEL
    assert stage.records.events[-1] == "tunnel_opened"
    assert stage.records.outcomes == []


def test_what_came_with_the_switch_and_with_the_request_crosses() -> None:
    stage = Stage()
    client, sandbox = stage.talk(UPGRADE + b"early client bytes")
    sandbox.received()
    sandbox.send(SWITCH + FRAME)
    assert client.received().endswith(b"\r\n\r\n" + FRAME)
    assert sandbox.received() == b"early client bytes"


@pytest.mark.parametrize("protocol", [b"other", b"", b"h2c", b"websocket, other"])
def test_a_switch_to_what_was_not_offered_is_a_bad_response(protocol: bytes) -> None:
    stage = Stage()
    client, sandbox = stage.talk(UPGRADE)
    sandbox.send(SWITCH.replace(b"WebSocket\r\n", protocol + b"\r\n", 1))
    assert client.received().startswith(b"HTTP/1.1 502 ")
    assert stage.records.outcome.is_tunnel is False


def test_any_of_the_offered_protocols_may_be_chosen() -> None:
    stage = Stage()
    client, sandbox = stage.talk(UPGRADE.replace(b"websocket", b"a/1, B"))
    sandbox.send(SWITCH.replace(b"WebSocket", b"b"))
    assert client.received().startswith(b"HTTP/1.1 101 ")


def test_a_refused_upgrade_passes_with_status_and_body() -> None:
    stage = Stage()
    client, sandbox = stage.talk(UPGRADE)
    answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"
    sandbox.send(answer)
    assert client.received() == answer
    assert not client.is_closed


def test_an_upgrade_whose_body_has_not_come_is_not_answered_by_a_tunnel() -> None:
    stage = Stage()
    client, sandbox = stage.talk(UPGRADE.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n"))
    sandbox.send(SWITCH)
    assert client.received().startswith(b"HTTP/1.1 502 ")


# --- bytes ----------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=40))))
def test_bytes_cross_untouched_and_at_once(steps: list[tuple[bool, bytes]]) -> None:
    stage = Stage()
    client, sandbox = stage.tunnel()
    sent = {True: 0, False: 0}
    for from_client, data in steps:
        (client if from_client else sandbox).send(data)
        assert (sandbox if from_client else client).received() == data
        sent[from_client] += len(data)
    client.leave()
    outcome = stage.records.outcome
    assert (outcome.bytes_from_client, outcome.bytes_to_client) == (sent[True], sent[False])


def test_whoever_takes_no_more_stops_the_other() -> None:
    client, sandbox = Stage().tunnel()
    sandbox.upstream.pause_writing()
    assert client.wire.is_paused
    sandbox.upstream.resume_writing()
    assert not client.wire.is_paused
    client.connection.pause_writing()
    assert sandbox.wire.is_paused
    client.connection.resume_writing()
    assert not sandbox.wire.is_paused


# --- ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["client", "sandbox"])
def test_either_side_may_stop_talking_and_still_listen(first: str) -> None:
    stage = Stage()
    client, sandbox = stage.tunnel(b"raw")
    if first == "client":
        assert client.connection.eof_received() is True
        assert sandbox.wire.has_ended
        sandbox.send(b"still")
        assert client.received() == b"still"
        assert sandbox.upstream.eof_received() is False
    else:
        assert sandbox.upstream.eof_received() is True
        assert client.wire.has_ended
        client.send(b"still")
        assert sandbox.received() == b"still"
        assert client.connection.eof_received() is False
    assert close_codes(stage) == [""]
    assert (client.is_closed, client.wire.is_aborted) == (True, False)
    assert (sandbox.wire.is_closing(), sandbox.wire.is_aborted) == (True, False)


@pytest.mark.parametrize("first", ["client", "sandbox"])
def test_over_tls_an_end_is_the_end_of_both(first: str) -> None:
    stage = Stage()
    client = stage.client(is_tls=True)
    client.send(UPGRADE)
    stage.sandbox().send(SWITCH)
    side = client.connection if first == "client" else stage.sandbox().upstream
    assert side.eof_received() is False
    assert close_codes(stage) == [""]
    assert stage.sandbox().wire.is_closing()


def lose_client(client: Client, sandbox: Sandbox) -> None:
    client.leave()


def lose_sandbox(client: Client, sandbox: Sandbox) -> None:
    sandbox.break_off()


@pytest.mark.parametrize(
    ("lose", "code"), [(lose_client, "client_closed"), (lose_sandbox, "tunnel_cut")]
)
def test_a_lost_side_ends_the_other(lose, code: str) -> None:
    stage = Stage()
    client, sandbox = stage.tunnel()
    lose(client, sandbox)
    assert close_codes(stage) == [code]
    assert sandbox.wire.is_closing() if lose is lose_client else client.is_closed
    (lose_sandbox if lose is lose_client else lose_client)(client, sandbox)
    assert len(stage.records.outcomes) == 1, "it ends once"


def test_a_side_lost_after_the_other_had_ended_is_a_clean_end() -> None:
    for first, lose in (("client", lose_sandbox), ("sandbox", lose_client)):
        stage = Stage()
        client, sandbox = stage.tunnel()
        (client.connection if first == "client" else sandbox.upstream).eof_received()
        lose(client, sandbox)
        assert close_codes(stage) == [""]


# --- goodbyes -------------------------------------------------------------------------------

GOODBYE = close_frame(CloseCode.GOING_AWAY, "bye")


def end(client: Client) -> None:
    tunnel = client.connection.tunnel
    assert tunnel is not None
    tunnel.close(CloseCode.GOING_AWAY, "bye", "tunnel_drained")


def test_between_two_frames_a_websocket_is_told_why_at_once() -> None:
    stage = Stage()
    client, sandbox = stage.tunnel()
    sandbox.send(FRAME)
    end(client)
    assert client.received() == FRAME + GOODBYE
    assert close_codes(stage) == ["tunnel_drained"]
    assert (client.is_closed, client.wire.is_aborted) == (True, False)


@given(st.integers(1, len(FRAME) - 1), st.sampled_from([b"", b"\x81", b"\x81\x05", FRAME[:-1]]))
def test_within_a_frame_the_goodbye_waits_for_its_end(at: int, behind: bytes) -> None:
    stage = Stage()
    client, sandbox = stage.tunnel()
    sandbox.send(FRAME[:at])
    end(client)
    assert client.received() == FRAME[:at]
    assert not client.is_closed
    sandbox.send(FRAME[at:] + behind)
    assert client.received() == FRAME[at:] + GOODBYE
    sandbox.send(b"more")
    assert client.received() == b""
    assert close_codes(stage) == ["tunnel_drained"]
    assert stage.records.outcome.bytes_to_client == len(FRAME) + len(GOODBYE)


def test_a_second_goodbye_does_not_wait() -> None:
    stage = Stage()
    client, sandbox = stage.tunnel()
    sandbox.send(FRAME[:3])
    end(client)
    end(client)
    assert client.received() == FRAME[:3], "a Close frame within a frame would be read as payload"
    assert client.is_closed
    assert close_codes(stage) == ["tunnel_drained"]


def test_any_other_protocol_just_ends() -> None:
    stage = Stage()
    client, sandbox = stage.tunnel(b"raw")
    sandbox.send(b"\x81")
    client.received()
    end(client)
    assert client.received() == b""
    assert client.is_closed
    assert sandbox.wire.is_closing()


# --- time -----------------------------------------------------------------------------------


def limits(idle_s: float, lifetime_s: float) -> ProxyOptions:
    return ProxyOptions(
        tunnel_idle_timeout_s=idle_s, tunnel_max_lifetime_s=lifetime_s, proxy_timeout_s=1.0
    )


@pytest.mark.parametrize(
    ("idle_s", "lifetime_s", "expected_s"),
    [(60, 1000, 60), (1000, 60, 60), (NEVER, 60, 60), (60, NEVER, 60), (NEVER, NEVER, NEVER)],
)
def test_the_nearer_limit_is_the_deadline_and_proxy_timeout_is_none(
    idle_s: float, lifetime_s: float, expected_s: float
) -> None:
    client, _ = Stage(limits=limits(idle_s, lifetime_s)).tunnel()
    assert client.connection.deadline_at == pytest.approx(later(expected_s), abs=5)


@pytest.mark.parametrize("speaker", ["client", "sandbox"])
def test_whoever_speaks_puts_idleness_off(speaker: str) -> None:
    stage = Stage(limits=limits(60, 1000))
    client, sandbox = stage.tunnel()
    tunnel = client.connection.tunnel
    assert tunnel is not None
    tunnel._last_at -= 50  # it was silent for fifty seconds
    client.send(FRAME) if speaker == "client" else sandbox.send(FRAME)
    client.connection.on_deadline(later(15))
    assert close_codes(stage) == []
    assert client.connection.deadline_at == pytest.approx(later(60), abs=5)


@pytest.mark.parametrize(
    ("idle_s", "lifetime_s", "code"),
    [(60, 1000, "tunnel_idle"), (1000, 60, "tunnel_lifetime"), (60, 60, "tunnel_lifetime")],
)
def test_a_websocket_whose_time_is_over_is_told_so(
    idle_s: float, lifetime_s: float, code: str
) -> None:
    stage = Stage(limits=limits(idle_s, lifetime_s))
    client, sandbox = stage.tunnel()
    client.connection.on_deadline(later(61))
    goodbye = client.received()
    assert goodbye.startswith(close_frame(CloseCode.GOING_AWAY, "")[:1])
    assert goodbye[2:4] == (1001).to_bytes(2, "big")
    assert close_codes(stage) == [code]
    assert client.is_closed
    assert sandbox.wire.is_closing()


def test_a_frame_without_end_gets_one_interval_more() -> None:
    stage = Stage(limits=limits(60, 1000))
    client, sandbox = stage.tunnel()
    sandbox.send(FRAME[:3])
    client.received()
    client.connection.on_deadline(later(61))
    assert not client.is_closed
    client.connection.on_deadline(later(62))
    assert client.is_closed
    assert client.received() == b""
    assert close_codes(stage) == ["tunnel_idle"]


# --- activity -------------------------------------------------------------------------------

MASKED_PING = b"\x89\x82MASKpi"
MASKED_TEXT = b"\x81\x82MASKhi"


def moves(stage: Stage, *, protocol: bytes, from_client: bytes, to_client: bytes) -> bool:
    """Says whether these bytes are activity of a tunnel that was opened long ago."""
    client, sandbox = stage.tunnel(protocol)
    tunnel = client.connection.tunnel
    assert tunnel is not None
    tunnel.moved_at = 1.0
    if from_client:
        client.send(from_client)
    if to_client:
        sandbox.send(to_client)
    return tunnel.moved_at > 1.0


@pytest.mark.parametrize(
    ("from_client", "to_client"),
    [(MASKED_PING, b""), (b"", b"\x8a\x02po"), (MASKED_PING, b"\x8a\x02po"), (b"", b"\x89\x00")],
)
def test_pings_and_pongs_of_either_side_are_no_activity(
    from_client: bytes, to_client: bytes
) -> None:
    assert not moves(Stage(), protocol=b"websocket", from_client=from_client, to_client=to_client)


@pytest.mark.parametrize(
    ("from_client", "to_client"),
    [
        (MASKED_TEXT, b""),
        (b"", FRAME),
        (MASKED_PING + MASKED_TEXT, b""),
        (MASKED_TEXT[:1], b""),
        (b"\x89\x02pi", b""),
    ],
)
def test_data_of_either_side_is_activity_and_so_is_what_breaks_the_rules(
    from_client: bytes, to_client: bytes
) -> None:
    assert moves(Stage(), protocol=b"websocket", from_client=from_client, to_client=to_client)


@pytest.mark.parametrize(("from_client", "to_client"), [(b"\x89\x80MASK", b""), (b"", b"\x8a\x00")])
def test_of_any_other_protocol_every_byte_is_activity(from_client: bytes, to_client: bytes) -> None:
    assert moves(Stage(), protocol=b"raw", from_client=from_client, to_client=to_client)


def test_a_tunnel_that_ends_was_used_when_data_crossed_last_and_not_at_its_end() -> None:
    stage = Stage()
    client, sandbox = stage.tunnel()
    tunnel = client.connection.tunnel
    assert tunnel is not None
    tunnel.moved_at = 1.0
    sandbox.send(b"\x89\x00")
    client.leave()
    outcome = stage.records.outcome
    assert outcome.used is not None
    assert (outcome.used.ref.name, outcome.used_at) == ("box", 1.0)


# --- what is told ---------------------------------------------------------------------------


def test_a_tunnel_is_one_request_with_status_101() -> None:
    stage = Stage()
    client, _ = stage.tunnel()
    client.leave()
    outcome = stage.records.outcome
    assert (outcome.status, outcome.is_tunnel) == (101, True)


def test_a_clients_tunnels_are_counted_until_they_end() -> None:
    stage = Stage(limits=ProxyOptions(max_tunnels_per_client=1))
    client, _ = stage.tunnel()
    second = stage.client()
    second.send(UPGRADE)
    assert second.received().startswith(b"HTTP/1.1 429 ")
    client.leave()
    stage.tunnel()


def test_its_repr_says_how_far_it_is() -> None:
    client, _ = Stage().tunnel()
    assert repr(client.connection.tunnel) == (
        "<Tunnel websocket=True client_ended=False sandbox_ended=False ended=False>"
    )


def test_a_tunnel_keeps_no_line_of_the_request_in_memory() -> None:
    client, _ = Stage().tunnel()
    assert client.exchange.head.block == b""
    assert client.exchange.head.lines == [b""]
    assert client.exchange.head.method == b"GET"
