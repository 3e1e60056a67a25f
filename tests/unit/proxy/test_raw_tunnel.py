"""A WebSocket whose frames are a TCP connection's bytes, and how each end is told to the other side."""

from __future__ import annotations

import pytest

from router.proxy.closing_connection import State as State
from router.proxy.options import ProxyOptions
from router.proxy.own_paths import OwnPaths
from router.proxy.wire.websocket import PING, CloseCode, close_frame
from router.routing.endpoint import Endpoint
from router.tasks import TaskSet
from tests.unit.proxy.stage import TO_BOX, Client, Sandbox, Stage, later
from tests.unit.proxy.wire.test_frame_reader import frame

HANDSHAKE = (
    b"GET /.sandbox-router/tcp HTTP/1.1\r\n%bConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" % TO_BOX
)
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
HALF_CLOSE = frame(b"\x03\xe8", 0x88)


class NoWishes:
    async def keep_awake(self, endpoint: Endpoint, seconds: float) -> float:
        raise AssertionError("nobody asks for that")


def a_stage(*, connects: bool = True, **options: object) -> Stage:
    limits = ProxyOptions(connects=connects, **options)  # type: ignore[arg-type]
    own_paths = OwnPaths(
        awake=NoWishes(), awake_limit_s=1.0, tasks=TaskSet(), connects=limits.connects
    )
    return Stage(limits=limits, own_paths=own_paths)


class Ends:
    """Both ends of a raw connection."""

    def __init__(self, stage: Stage, client: Client, sandbox: Sandbox) -> None:
        self.stage = stage
        self.client = client
        self.sandbox = sandbox

    @property
    def code(self) -> str:
        return self.stage.records.outcome.code

    @property
    def is_cut(self) -> bool:
        """The sandbox saw a reset, not an end."""
        return self.sandbox.wire.is_aborted


async def connected(**options: object) -> Ends:
    stage = a_stage(**options)
    client = stage.client()
    client.send(HANDSHAKE)
    await stage.until(lambda: client.wire.sent)
    assert client.received() == SWITCH
    return Ends(stage, client, stage.sandbox())


# --- how it begins --------------------------------------------------------------------------


async def test_the_101_comes_when_the_connection_stands_and_never_by_an_idle_one() -> None:
    ends = await connected()
    assert ends.client.connection.state is State.TUNNEL
    assert len(ends.stage.shelf.dialled) == 1
    assert ends.stage.shelf.taken == []
    assert ends.sandbox.received() == b""
    assert ends.stage.records.events[-1] == "tunnel_opened"


async def test_what_the_client_sent_behind_its_handshake_crosses() -> None:
    stage = a_stage()
    client = stage.client()
    client.send(HANDSHAKE + frame(b"early"))
    await stage.until(lambda: client.wire.sent)
    assert stage.sandbox().received() == b"early"


async def test_a_server_that_speaks_first_is_heard() -> None:
    stage = a_stage()
    client = stage.client()

    def speak() -> None:
        open_one = stage.shelf._open

        def opens(permit: object) -> object:
            upstream = open_one(permit)  # type: ignore[arg-type]
            upstream.data_received(b"SSH-2.0-box\r\n")
            return upstream

        stage.shelf._open = opens  # type: ignore[assignment, method-assign]

    stage.shelf.connects.append(speak)
    client.send(HANDSHAKE)
    await stage.until(lambda: b"SSH" in client.wire.sent)
    assert client.received() == SWITCH + b"\x82\x0dSSH-2.0-box\r\n"


# --- bytes ----------------------------------------------------------------------------------


async def test_payload_crosses_without_frames_and_bytes_in_frames() -> None:
    ends = await connected()
    ends.client.send(frame(b"one") + frame(b"two", 0x02) + frame(b"three", 0x80))
    assert ends.sandbox.received() == b"onetwothree"
    ends.sandbox.send(b"x" * 125)
    ends.sandbox.send(b"y" * 126)
    ends.sandbox.send(b"z" * 65_536)
    assert ends.client.received() == (
        b"\x82\x7d" + b"x" * 125 + b"\x82\x7e\x00\x7e" + b"y" * 126
        + b"\x82\x7f" + (65_536).to_bytes(8, "big") + b"z" * 65_536
    )  # fmt: skip
    ends.client.leave()
    outcome = ends.stage.records.outcome
    assert (outcome.bytes_from_client, outcome.bytes_to_client) == (11, 65_787)
    assert outcome.method == b"CONNECT"
    assert outcome.used is not None


async def test_a_million_tiny_frames_give_way_to_others() -> None:
    ends = await connected()
    ends.client.send(frame(b"x") * 1500)
    assert ends.sandbox.received() == b"x" * 512
    assert ends.client.wire.is_paused
    await ends.stage.until(lambda: not ends.client.wire.is_paused)
    assert ends.sandbox.received() == b"x" * 988


# --- ends -----------------------------------------------------------------------------------


async def test_the_sandboxs_end_is_told_behind_all_that_it_sent() -> None:
    ends = await connected()
    ends.sandbox.send(b"last")
    ends.sandbox.end()
    assert ends.client.received() == b"\x82\x04last" + close_frame(CloseCode.NORMAL, "")
    assert ends.client.wire.has_ended
    assert ends.code == ""


async def test_a_reset_is_told_as_1011() -> None:
    ends = await connected()
    ends.sandbox.break_off()
    sent = ends.client.received()
    assert sent[:4] == b"\x88\x22\x03\xf3"
    assert b"reset" in sent
    assert ends.code == "tunnel_cut"


async def test_a_close_frame_is_an_end_to_the_sandbox_whose_rest_still_comes() -> None:
    ends = await connected()
    ends.client.send(frame(b"ask") + HALF_CLOSE)
    assert ends.sandbox.received() == b"ask"
    assert ends.sandbox.wire.has_ended
    ends.sandbox.send(b"answer")
    assert ends.client.received() == b"\x82\x06answer"
    ends.sandbox.end()
    assert ends.client.received() == close_frame(CloseCode.NORMAL, "")
    assert ends.code == ""
    assert not ends.is_cut


async def test_what_follows_a_close_frame_is_nothing() -> None:
    ends = await connected()
    ends.client.send(HALF_CLOSE + frame(b"late"))
    ends.client.send(frame(b"later") + b"\xff\xff")
    assert ends.sandbox.received() == b""
    assert ends.stage.records.outcomes == []


async def test_a_client_that_goes_without_a_word_resets_the_sandbox() -> None:
    ends = await connected()
    ends.client.send(frame(b"half of an upl"))
    assert ends.client.connection.eof_received() is False
    assert ends.is_cut
    assert ends.code == "client_closed"


async def test_a_client_that_ends_its_tcp_behind_a_close_frame_hears_the_rest() -> None:
    ends = await connected()
    ends.client.send(HALF_CLOSE)
    assert ends.client.connection.eof_received() is True
    ends.sandbox.send(b"rest")
    assert ends.client.received() == b"\x82\x04rest"


async def test_a_close_frame_that_tells_of_trouble_resets_the_sandbox() -> None:
    ends = await connected()
    ends.client.send(frame(b"\x03\xf3", 0x88))
    assert ends.is_cut
    assert ends.client.received() == close_frame(CloseCode.NORMAL, "")


@pytest.mark.parametrize(
    ("data", "code"),
    [(frame(b"text", 0x81), 1003), (frame(b"x", 0xC2), 1002), (frame(b"x", mask=None), 1002)],
)
async def test_a_broken_frame_ends_it_with_the_code_that_says_how(data: bytes, code: int) -> None:
    ends = await connected()
    ends.client.send(data)
    assert ends.client.received()[2:4] == code.to_bytes(2, "big")
    assert ends.is_cut
    assert ends.code == "tunnel_bad_frame"


async def test_a_revoked_right_ends_it_with_1008() -> None:
    ends = await connected()
    ends.stage.rights.revoked = True
    ends.stage.clients.end_streams_without_right(later(2))
    assert ends.client.received()[2:4] == b"\x03\xf0"
    assert ends.code == "tunnel_right_ended"
    assert ends.is_cut


async def test_a_drain_ends_it_with_1001() -> None:
    ends = await connected()
    ends.stage.clients.end_tunnels("the router is shutting down")
    assert ends.client.received()[2:4] == b"\x03\xe9"
    assert ends.code == "tunnel_drained"


async def test_memory_that_others_need_ends_it_at_once() -> None:
    ends = await connected()
    ends.sandbox.upstream.make_room()
    assert ends.code == "tunnel_overloaded"
    assert ends.is_cut


# --- time -----------------------------------------------------------------------------------


async def test_it_pings_and_no_pong_is_activity() -> None:
    ends = await connected(tunnel_idle_timeout_s=30.0)
    ends.client.connection.on_deadline(later(21))
    assert ends.client.received() == PING
    ends.client.send(frame(b"", 0x8A) + frame(b"?", 0x89))
    assert ends.client.received() == b"\x8a\x01?"
    ends.client.connection.on_deadline(later(31))
    assert ends.client.received()[2:4] == b"\x03\xe9"
    assert ends.code == "tunnel_idle"


async def test_it_lives_no_longer_than_allowed() -> None:
    ends = await connected(tunnel_max_lifetime_s=10.0)
    ends.client.connection.on_deadline(later(11))
    assert ends.client.received()[2:4] == b"\x03\xe9"
    assert ends.code == "tunnel_lifetime"


# --- back-pressure --------------------------------------------------------------------------


async def test_a_full_side_stops_the_other_from_being_read() -> None:
    ends = await connected()
    ends.client.connection.pause_writing()
    assert ends.sandbox.wire.is_paused
    ends.client.connection.resume_writing()
    assert not ends.sandbox.wire.is_paused
    ends.sandbox.upstream.pause_writing()
    assert ends.client.wire.is_paused
    ends.sandbox.upstream.resume_writing()
    assert not ends.client.wire.is_paused


async def test_a_flood_of_pings_costs_a_client_that_reads_nothing_one_pong() -> None:
    ends = await connected()
    ends.client.connection.pause_writing()
    for number in range(100):
        ends.client.send(frame(b"%d" % number, 0x89))
    assert ends.client.received() == b""
    ends.client.connection.resume_writing()
    assert ends.client.received() == b"\x8a\x0299"
