"""A long-lived stream ends when its right ends: by time, by policy, by the sandbox's own word, by rotated keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.auth.door import Door, open_door, read_answer, request
from tests.integration.auth.test_refusals import upgrade
from tests.unit.auth.tokens import OTHER_SECRET, SECRET, sign

NOW = int(time.time())


def _token(**claims: Any) -> str:
    grants = [{"namespace": "team-a", "name": "box-a"}]
    return sign({"sub": "alice", "iat": NOW, "sandboxes": grants, **claims}).decode()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    made = {"policy_file": tmp_path / "policy.yaml", "jwt_secret_file": tmp_path / "secret"}
    made["policy_file"].write_text("revoked: []\n")
    made["jwt_secret_file"].write_bytes(SECRET)
    return made


@pytest.fixture
async def door(tmp_path: Path, files: dict[str, Path]) -> AsyncIterator[Door]:
    async with open_door(tmp_path, auth="jwt", jwt_leeway="0", auth_grace="1s", **files) as opened:
        yield opened


async def _tunnel(door: Door, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await door.connect()
    writer.write(request(*upgrade(f"sandbox-router.bearer.{token}".encode())))
    assert (await read_answer(reader)).status == 101
    writer.write(b"\x82\x02hi")
    assert await reader.readexactly(4) == b"\x82\x02hi"
    return reader, writer


async def _close_code(reader: asyncio.StreamReader) -> int:
    """Returns the code of the WebSocket close frame that ends the stream."""
    rest = await reader.read()
    assert rest[0] == 0x88, rest
    return int.from_bytes(rest[2:4], "big")


async def test_a_websocket_whose_token_expires_is_closed_with_1008_within_the_grace(
    door: Door,
) -> None:
    async with asyncio.timeout(15):
        reader, _ = await _tunnel(door, _token(exp=int(time.time()) + 2))
        code = await _close_code(reader)

    assert code == 1008


async def test_a_stream_whose_token_expires_is_cut_and_does_not_look_whole(door: Door) -> None:
    async with asyncio.timeout(15):
        reader, writer = await door.connect()
        bearer = ("Authorization", f"Bearer {_token(exp=int(time.time()) + 2)}")
        writer.write(request(bearer, path="/endless"))
        received = await _all(reader)

    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"data: tick" in received
    assert not received.endswith(b"0\r\n\r\n")


async def _all(reader: asyncio.StreamReader) -> bytes:
    received = b""
    try:
        while data := await reader.read(65536):
            received += data
    except ConnectionError:
        pass
    return received


async def test_with_no_grace_a_websocket_ends_with_its_token(
    tmp_path: Path, files: dict[str, Path]
) -> None:
    async with open_door(tmp_path, auth="jwt", jwt_leeway="0", auth_grace="0", **files) as door:
        async with asyncio.timeout(15):
            expires_at = int(time.time()) + 2
            reader, _ = await _tunnel(door, _token(exp=expires_at))
            assert await _close_code(reader) == 1008
            assert time.time() < expires_at + 5


async def test_with_the_grace_off_an_open_stream_outlives_its_token(
    tmp_path: Path, files: dict[str, Path]
) -> None:
    async with open_door(tmp_path, auth="jwt", jwt_leeway="0", auth_grace="off", **files) as door:
        async with asyncio.timeout(15):
            reader, writer = await _tunnel(door, _token(exp=int(time.time()) + 1))
            await asyncio.sleep(3)
            writer.write(b"\x82\x02ho")
            assert await reader.readexactly(4) == b"\x82\x02ho"


@pytest.mark.parametrize(
    "policy",
    [
        "revoked: [id-1]\n",
        "not-before: [{subject: alice, time: '2100-01-01T00:00:00Z'}]\n",
    ],
)
async def test_a_policy_that_revokes_the_token_ends_its_tunnel_and_refuses_it(
    door: Door, files: dict[str, Path], policy: str
) -> None:
    token = _token(jti="id-1")
    async with asyncio.timeout(15):
        reader, _ = await _tunnel(door, token)
        files["policy_file"].write_text(policy)
        code = await _close_code(reader)
        answer = await door.ask(("Authorization", f"Bearer {token}"))

    assert code == 1008
    assert (answer.status, answer.detail) == (401, "The token has been revoked.")


async def test_other_tokens_keep_their_tunnels(door: Door, files: dict[str, Path]) -> None:
    async with asyncio.timeout(15):
        revoked, _ = await _tunnel(door, _token(jti="id-1"))
        reader, writer = await _tunnel(door, _token(jti="id-2"))
        files["policy_file"].write_text("revoked: [id-1]\n")
        await _close_code(revoked)
        writer.write(b"\x82\x02ho")
        assert await reader.readexactly(4) == b"\x82\x02ho"


async def test_a_bad_new_policy_keeps_the_old_one_in_force(
    door: Door, files: dict[str, Path]
) -> None:
    token = _token(jti="id-1")
    watched = door.worker.access.files["policy"]
    async with asyncio.timeout(15):
        files["policy_file"].write_text("revoked: [id-1]\n")
        while not watched.reloads_succeeded:
            await asyncio.sleep(0.05)
        files["policy_file"].write_text("revoked: id-1\n")
        while not watched.reloads_failed:
            await asyncio.sleep(0.05)
        answer = await door.ask(("Authorization", f"Bearer {token}"))

    assert answer.status == 401


async def test_rotated_secrets_refuse_tokens_of_the_old_one(
    door: Door, files: dict[str, Path]
) -> None:
    old, new = _token(), sign({"sandboxes": [{"namespace": "*", "name": "*"}]}, key=OTHER_SECRET)
    assert (await door.ask(("Authorization", f"Bearer {old}"))).status == 200

    async with asyncio.timeout(15):
        files["jwt_secret_file"].write_bytes(OTHER_SECRET)
        while (await door.ask(("X-Sandbox-Token", new))).status != 200:
            await asyncio.sleep(0.05)

    assert (await door.ask(("Authorization", f"Bearer {old}"))).status == 401
