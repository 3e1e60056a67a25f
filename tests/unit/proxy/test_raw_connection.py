"""Who gets a TCP connection, and what everybody else is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.auth.anonymous import PUBLIC
from router.auth.authenticator import Authenticated
from router.auth.principal import Grant, Principal
from router.proxy.options import ProxyOptions
from router.proxy.own_paths import OwnPaths
from router.proxy.racing import ConnectFailed
from router.tasks import TaskSet
from tests.unit.proxy.stage import GET, Client, Stage
from tests.unit.proxy.test_raw_tunnel import HANDSHAKE, SWITCH, NoWishes


class Known:
    """An Authenticator that recognises everybody as the same."""

    generation = 0

    def __init__(self, principal: Principal) -> None:
        self.principal = principal

    def authenticate(self, credentials: object) -> Authenticated:
        return Authenticated(self.principal, consumed_authorization=True)

    def valid_until(self, authenticated: Authenticated) -> float:
        return float("inf")


def granted(
    ports: frozenset[int] | None = frozenset({8888}),
    methods: frozenset[bytes] | None = frozenset({b"CONNECT"}),
    *,
    mode: str = "jwt",
) -> Principal:
    return Principal("ann", mode, grants=(Grant("*", "*", ports=ports, methods=methods),))


def a_stage(principal: Principal | None = None, *, connects: bool = True, **options: Any) -> Stage:
    own_paths = OwnPaths(awake=NoWishes(), awake_limit_s=1.0, tasks=TaskSet(), connects=connects)
    return Stage(
        limits=ProxyOptions(connects=connects, **options),
        authenticator=None if principal is None else Known(principal),
        own_paths=own_paths,
        base_domain="boxes.test",
        path_prefix="/s",
    )


async def answer(stage: Stage, request: bytes = HANDSHAKE) -> tuple[int, dict[str, Any], Client]:
    client = stage.client()
    client.send(request)
    await stage.until(lambda: b"\r\n\r\n" in client.wire.sent)
    head, _, body = client.received().partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body) if body else {}, client


# --- the handshake --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"GET ", b"POST ", 405),
        (b"Upgrade: websocket\r\n", b"", 400),
        (b"Upgrade: websocket", b"Upgrade: other", 400),
        (b"Version: 13", b"Version: 8", 400),
        (b"Sec-WebSocket-Version: 13\r\n", b"", 400),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"c2hvcnQ=", 400),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"!!!", 400),
        (b"HTTP/1.1", b"HTTP/1.0", 400),
        (b"tcp HTTP", b"tcp/ HTTP", 404),
    ],
)
async def test_what_is_no_handshake_is_refused_before_anything_is_dialled(
    old: bytes, new: bytes, status: int
) -> None:
    stage = a_stage()
    assert (await answer(stage, HANDSHAKE.replace(old, new)))[0] == status
    assert stage.shelf.dialled == []


async def test_off_there_is_no_such_path() -> None:
    stage = a_stage(connects=False)
    status, told, _ = await answer(stage)
    assert (status, told["code"]) == (404, "router_path_not_found")
    assert stage.shelf.dialled == []


@pytest.mark.parametrize(
    "request_",
    [
        HANDSHAKE.replace(b"X-Sandbox-ID: box\r\n", b"").replace(
            b"Host: router", b"Host: 8888-box.boxes.test"
        ),
        HANDSHAKE.replace(b"X-Sandbox-ID: box\r\n", b"").replace(
            b"GET /", b"GET /s/default/box/8888/"
        ),
    ],
)
async def test_every_way_of_naming_a_sandbox_leads_there(request_: bytes) -> None:
    assert (await answer(a_stage(granted()), request_))[0] == 101


async def test_the_protocol_binary_is_chosen_where_it_is_offered() -> None:
    stage = a_stage()
    client = stage.client()
    client.send(HANDSHAKE[:-2] + b"Sec-WebSocket-Protocol: base64, binary\r\n\r\n")
    await stage.until(lambda: client.wire.sent)
    assert client.received() == SWITCH[:-2] + b"Sec-WebSocket-Protocol: binary\r\n\r\n"


async def test_a_port_that_refuses_is_told_with_what_it_most_often_is() -> None:
    stage = a_stage(connect_budget_s=0.001)
    stage.shelf.connects = [ConnectFailed("connect_refused", "10.0.0.5:8888 refused")] * 9
    status, told, _ = await answer(stage)
    assert (status, told["code"]) == (502, "sandbox_unreachable")
    assert told["detail"].startswith("Could not connect to the backend sandbox: box. Its port 8888")
    assert "0.0.0.0" in told["detail"]


async def test_a_server_that_closes_at_once_is_unreachable() -> None:
    stage = a_stage()
    open_one = stage.shelf._open

    def opens(permit: Any) -> Any:
        upstream = open_one(permit)
        upstream.eof_received()
        return upstream

    stage.shelf._open = opens  # type: ignore[method-assign]
    assert (await answer(stage))[0] == 502
    assert stage.records.outcome.is_tunnel is False


# --- rights ---------------------------------------------------------------------------------


async def test_a_grant_that_says_connect_and_the_port_is_enough() -> None:
    assert (await answer(a_stage(granted())))[0] == 101


@pytest.mark.parametrize(
    ("ports", "methods"),
    [
        (None, frozenset({b"CONNECT"})),
        (frozenset({8888}), None),
        (None, None),
        (frozenset({8888}), frozenset({b"GET"})),
        (frozenset({22}), frozenset({b"CONNECT"})),
    ],
)
async def test_a_grant_that_says_less_gives_none(
    ports: frozenset[int] | None, methods: frozenset[bytes] | None
) -> None:
    stage = a_stage(granted(ports, methods))
    status, told, _ = await answer(stage)
    assert (status, told["code"]) == (403, "forbidden")
    assert stage.shelf.dialled == []
    assert stage.records.outcome.method == b"CONNECT"
    assert "lacks" in stage.records.outcome.error_reason


@pytest.mark.parametrize("mode", ["session", "forwarded", "link", "public", "preflight"])
async def test_what_a_browser_adds_by_itself_never_suffices(mode: str) -> None:
    stage = a_stage(granted(mode=mode))
    own_page = b"Origin: http://router\r\nSec-Fetch-Site: same-origin\r\n\r\n"
    status, _, _ = await answer(stage, HANDSHAKE[:-2] + own_page)
    assert status == 403
    assert stage.shelf.dialled == []


async def test_a_public_port_is_not_public_for_raw_bytes() -> None:
    stage = a_stage(PUBLIC, public_ports=True)
    assert (await answer(stage))[0] == 403


async def test_a_right_to_connect_is_none_to_call() -> None:
    stage = a_stage(granted())
    stage.shelf.connects = [ConnectFailed("resolve_error", "no")]
    client = stage.client()
    client.send(HANDSHAKE.replace(b"Version: 13", b"Version: 8"))
    await stage.until(lambda: client.wire.sent)
    client.received()
    client.send(GET)
    await stage.until(lambda: client.wire.sent)
    assert client.received().startswith(b"HTTP/1.1 403 ")


async def test_a_right_to_call_that_the_connection_remembers_is_none_to_connect() -> None:
    stage = a_stage(granted(methods=frozenset({b"GET"})))
    client, sandbox = stage.talk(GET)
    sandbox.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    client.received()
    client.send(HANDSHAKE)
    await stage.until(lambda: client.wire.sent)
    assert client.received().startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("principal", [None, granted(mode="mtls")])
async def test_a_foreign_page_gets_nothing_by_what_its_user_need_not_give(
    principal: Principal | None,
) -> None:
    stage = a_stage(principal)
    status, told, _ = await answer(stage, HANDSHAKE[:-2] + b"Origin: https://evil.test\r\n\r\n")
    assert (status, told["code"]) == (403, "cross_origin")


async def test_a_page_that_brings_a_token_of_its_own_may_be_anywhere() -> None:
    stage = a_stage(granted())
    request = HANDSHAKE[:-2] + b"Origin: https://novnc.test\r\n\r\n"
    assert (await answer(stage, request))[0] == 101


# --- limits ---------------------------------------------------------------------------------


async def test_a_sandbox_has_so_many_connections_and_an_ended_one_makes_room() -> None:
    stage = a_stage(connect_per_sandbox=1)
    _, _, first = await answer(stage)
    status, told, _ = await answer(stage)
    assert status == 429
    assert "connect-per-sandbox" in told["detail"]
    first.leave()
    assert (await answer(stage))[0] == 101


async def test_a_limit_of_connections_bounds_nothing_else() -> None:
    stage = a_stage(connect_per_sandbox=1)
    await answer(stage)
    client, sandbox = stage.talk(GET)
    sandbox.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert client.received().startswith(b"HTTP/1.1 200 ")
