"""Threats that no other test names: smuggling, spoofed headers, the router as its own sandbox, inherited addresses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from tests.integration.auth.door import POD, Door, open_door, read_answer, request

TOKEN = "the-operators-shared-token"
BEARER = ("Authorization", f"Bearer {TOKEN}")


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    async with open_door(tmp_path, auth="static", static_token_file=path) as opened:
        yield opened


HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: x\r\nX-Sandbox-ID: box-a\r\n\r\n"
AMBIGUOUS = {
    "both lengths": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + HIDDEN,
    "a list of lengths": b"Content-Length: 5, 6\r\n\r\nhello" + HIDDEN,
    "signed length": b"Content-Length: +5\r\n\r\nhello" + HIDDEN,
    "chunked twice": b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "not chunked last": b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n" + HIDDEN,
    "space before the colon": b"Content-Length : 5\r\n\r\nhello" + HIDDEN,
    "folded": b"X-A: 1\r\n Content-Length: 5\r\n\r\nhello" + HIDDEN,
    "bare LF": b"X-A: 1\nContent-Length: 5\r\n\r\nhello" + HIDDEN,
    "bare CR": b"X-A: 1\rContent-Length: 5\r\n\r\nhello" + HIDDEN,
}


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_ambiguous_framing_is_400_and_nothing_behind_it_is_a_request(
    door: Door, name: str
) -> None:
    head = request(BEARER, method="POST")[:-2] + AMBIGUOUS[name]
    async with asyncio.timeout(5):
        reader, writer = await door.connect()
        writer.write(head)
        answer = await read_answer(reader)
        rest = await reader.read()

    assert answer.status == 400
    assert rest == b"", "the connection closes; a second answer would be the hidden request's"
    assert door.reached() == 0


async def test_strangers_can_not_say_where_they_come_from(door: Door) -> None:
    spoofed = "198.51.100.66"
    await door.ask(
        BEARER,
        ("X-Forwarded-For", spoofed),
        ("X-Forwarded-Host", spoofed),
        ("X-Forwarded-Proto", spoofed),
        ("Forwarded", f"for={spoofed}"),
        ("X_Forwarded_For", spoofed),
    )

    [head] = door.sandbox.heads
    assert spoofed.encode() not in head
    assert b"X-Forwarded-For: 127.0.0.1\r\n" in head


async def test_a_pod_address_from_a_client_never_decides_where_bytes_go(door: Door) -> None:
    answer = await door.ask(BEARER, ("X-Sandbox-Pod-IP", "192.0.2.9"))

    assert answer.status == 200
    assert door.reached() == 1


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "0.0.0.0"],
)
async def test_an_address_that_is_nobodys_pod_is_refused(door: Door, address: str) -> None:
    answer = await door.ask(BEARER, ("X-Sandbox-Pod-IP", address))

    assert (answer.status, answer.code) == (400, "invalid_pod_ip")
    assert door.reached() == 0


async def test_the_router_is_never_its_own_sandbox(door: Door, tmp_path: Path) -> None:
    """Whatever the table says: a sandbox entry must not lead to a port of the router."""
    path = tmp_path / "sandboxes.yaml"
    entry = {"name": "self", "namespace": "team-a", "host": "127.0.0.1"}
    path.write_text(yaml.safe_dump({"sandboxes": [{**entry, "ports": {8888: door.http[1]}}]}))

    async with asyncio.timeout(10):
        while (answer := await door.ask(BEARER, name="self")).status == 404:
            await asyncio.sleep(0.05)

    assert (answer.status, answer.code) == (403, "forbidden")


async def test_the_next_pod_at_an_address_is_not_reached_through_the_last_ones_connection(
    door: Door, tmp_path: Path
) -> None:
    await door.ask(BEARER)
    await door.ask(BEARER)
    assert door.sandbox.connections == 1, "an idle connection is used again while the pod lives"
    path = tmp_path / "sandboxes.yaml"
    path.write_text(path.read_text().replace(POD, POD[:-1] + "2"))

    async with asyncio.timeout(10):
        while door.sandbox.open_connections:
            await asyncio.sleep(0.05)
    await door.ask(BEARER)

    assert door.sandbox.connections == 2


async def test_a_pods_redirect_is_the_clients_to_follow(door: Door) -> None:
    answer = await door.ask(BEARER, path="/redirect")

    assert answer.status == 302
    assert answer.headers["location"] == "http://169.254.169.254/latest"
    assert door.reached() == 1
