"""Checks: what Envoy is told about a request that it carries itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from router.errors import Forbidden, InternalError
from router.proxy.checks import Checks
from router.proxy.racing import ConnectFailed
from router.routing.endpoint import Endpoint, SandboxRef, State
from tests.unit.proxy.stage import BOX, GET, Shelf, Stage, Wire

NAMED = Endpoint(SandboxRef("default", "named"), "pod-2", State.READY, ("named.example",))
OTHER = Endpoint(BOX.ref, "pod-9", State.READY, ("10.0.0.9",))


class Places(Shelf):
    """A Shelf that knows addresses without connections."""

    def __init__(self) -> None:
        super().__init__()
        self.while_looking: Any = None
        self.failure: Exception | None = None

    def known_address(self, permit: Any) -> str | None:
        if self.failure is not None:
            raise self.failure
        address: str = permit.endpoint.addresses[0]
        return None if address == "named.example" else address

    async def locate(self, permit: Any, *, limit_s: float) -> str:
        assert limit_s > 0
        await asyncio.sleep(0)
        if self.while_looking is not None:
            self.while_looking()
        return "fd00::7" if permit.endpoint is NAMED else str(permit.endpoint.addresses[0])


class Envoy:
    """A connection that asks."""

    def __init__(self, **options: Any) -> None:
        self.stage = stage = Stage(**options)
        self.shelf = Places()
        self.stage.index.upsert(NAMED)
        connector = stage.gateway._connector
        connector.pool = self.shelf  # type: ignore[assignment]
        self.checks = Checks(
            gateway=stage.gateway,
            connector=connector,
            tasks=stage.tasks,
            budget=self.shelf.budget,
            options=stage.gateway._options,
        )
        self.wire = Wire()
        self.connection = self.checks.connection()
        self.connection.connection_made(self.wire)

    def asks(self, data: bytes = GET) -> tuple[int, dict[str, str], bytes]:
        """Returns status, headers and body of the response, status 0 while there is none."""
        self.connection.data_received(data)
        return self.told()

    def told(self) -> tuple[int, dict[str, str], bytes]:
        head, _, body = self.wire.taken().partition(b"\r\n\r\n")
        if not head:
            return 0, {}, b""
        status, *lines = head.decode().split("\r\n")
        pairs = [line.split(": ", 1) for line in lines]
        return int(status.split()[1]), {name.lower(): value for name, value in pairs}, body


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_yes_names_the_pods_address_and_is_use_of_the_sandbox() -> None:
    envoy = Envoy()

    status, headers, body = envoy.asks()

    assert (status, body) == (200, b"")
    assert headers["x-sandbox-upstream"] == "10.0.0.5:8888"
    outcome = envoy.stage.records.outcome
    assert (outcome.status, outcome.used, outcome.sandbox) == (200, BOX, "box")
    assert envoy.shelf.dialled == []


async def test_the_next_check_comes_on_the_same_connection() -> None:
    envoy = Envoy()
    assert [envoy.asks()[0] for _ in range(3)] == [200, 200, 200]


async def test_an_address_of_ipv6_stands_in_brackets_and_a_name_is_looked_up() -> None:
    envoy = Envoy()
    envoy.asks(GET.replace(b": box", b": named"))
    await turns()

    status, headers, _ = envoy.told()

    assert (status, headers["x-sandbox-upstream"]) == (200, "[fd00::7]:8888")


async def test_a_pod_that_changes_while_its_name_is_looked_up_is_not_the_one_named() -> None:
    envoy = Envoy()
    envoy.stage.index.upsert(Endpoint(BOX.ref, "pod-1b", State.READY, ("named.example",)))

    def changes() -> None:
        envoy.shelf.while_looking = None
        envoy.stage.index.upsert(OTHER)

    envoy.shelf.while_looking = changes
    envoy.asks()
    await turns()

    assert envoy.told()[1]["x-sandbox-upstream"] == "10.0.0.9:8888"


async def test_a_no_is_the_response_of_the_proxy_port() -> None:
    envoy = Envoy()
    client = envoy.stage.client()
    unknown = GET.replace(b": box", b": nobody")
    client.send(unknown)
    envoy.connection.data_received(unknown)

    assert envoy.wire.taken() == client.received()


async def test_a_refusal_of_the_address_is_a_no() -> None:
    envoy = Envoy()
    envoy.shelf.failure = Forbidden("The router does not connect to itself.")
    assert envoy.asks()[0] == 403


async def test_a_failure_that_nobody_foresaw_is_never_a_yes() -> None:
    envoy = Envoy()
    envoy.shelf.failure = RuntimeError("unforeseen")
    status, headers, _ = envoy.asks()
    assert (status, headers["x-sandbox-router-error"]) == (500, InternalError.code)


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        (b"/.sandbox-router/session", 404, "router_path_not_found"),
        (b"/s/default/box/8888/x", 400, "bad_request"),
    ],
)
async def test_what_only_the_routers_own_port_can_answer_is_no_yes(
    target: bytes, status: int, code: str
) -> None:
    envoy = Envoy(path_prefix="/s")
    told, headers, body = envoy.asks(b"GET " + target + b" HTTP/1.1\r\nHost: router\r\n\r\n")
    assert (told, json.loads(body)["code"]) == (status, code)
    assert "x-sandbox-upstream" not in headers


async def test_an_upgrade_is_known_without_a_connection_line() -> None:
    envoy = Envoy()
    envoy.connection.data_received(GET[:-2] + b"Upgrade: websocket\r\n\r\n")
    assert envoy.told()[0] == 200


async def test_a_probe_is_answered_and_lets_nothing_pass() -> None:
    envoy = Envoy()
    probe = b"GET /healthz HTTP/1.1\r\nHost: router\r\n\r\n"

    assert envoy.asks(probe)[0] == 204

    envoy.stage.clients.is_draining = True
    assert envoy.asks(probe)[0] == 503


async def test_bytes_that_are_no_request_are_told_of() -> None:
    envoy = Envoy()
    assert envoy.asks(b"nonsense\r\n\r\n")[0] == 400
    assert envoy.stage.records.outcome.code == "bad_request"


async def test_an_envoy_that_leaves_ends_its_check() -> None:
    envoy = Envoy()
    envoy.asks(GET.replace(b": box", b": named"))
    envoy.connection.connection_lost(None)
    await turns()
    assert envoy.stage.records.outcome.code == "client_closed"


async def test_a_name_that_leads_nowhere_is_told_as_on_the_proxy_port() -> None:
    envoy = Envoy()

    def fails() -> None:
        raise ConnectFailed("connect_error", "nowhere", dead_address="")

    envoy.shelf.while_looking = fails
    envoy.asks(GET.replace(b": box", b": named"))
    await turns()
    assert envoy.stage.records.events == ["connection_opened", "upstream_retried"]


async def test_a_sandbox_that_is_just_coming_up_is_dialled_before_the_yes() -> None:
    envoy = Envoy()
    envoy.stage.admission.is_on_its_way = lambda endpoint: True  # type: ignore[method-assign]

    assert envoy.asks()[0] == 0
    await turns()

    status, headers, _ = envoy.told()
    assert (status, headers["x-sandbox-upstream"]) == (200, "10.0.0.5:8888")
    (dialled,) = envoy.shelf.opened
    assert dialled.transport is None or dialled.transport.is_closing()
