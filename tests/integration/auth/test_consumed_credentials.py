"""What the router used to recognise a caller never reaches untrusted code; what is the app's own does."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.auth.door import Door, open_door, read_answer, request
from tests.integration.auth.test_refusals import upgrade

TOKEN = "the-operators-shared-token"


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    async with open_door(tmp_path, auth="static", static_token_file=path) as opened:
        yield opened


def _head(door: Door) -> bytes:
    [head] = door.sandbox.heads
    return head


async def test_the_bearer_header_is_taken_out(door: Door) -> None:
    await door.ask(("Authorization", f"bearer {TOKEN}"), ("X-App", "1"))

    assert b"authorization" not in _head(door).lower()
    assert TOKEN.encode() not in _head(door)
    assert b"X-App: 1\r\n" in _head(door)


async def test_with_x_sandbox_token_the_apps_own_authorization_passes(door: Door) -> None:
    await door.ask(("X-Sandbox-Token", TOKEN), ("Authorization", "Bearer of-the-app"))

    assert b"Authorization: Bearer of-the-app\r\n" in _head(door)
    assert TOKEN.encode() not in _head(door)
    assert b"x-sandbox-token" not in _head(door).lower()


async def test_connection_can_not_name_the_credential_away(door: Door) -> None:
    answer = await door.ask(
        ("Authorization", f"Bearer {TOKEN}"), ("Connection", "close, Authorization")
    )

    assert answer.status == 200
    assert TOKEN.encode() not in _head(door)


async def test_certificate_headers_of_strangers_are_taken_out(door: Door) -> None:
    await door.ask(
        ("Authorization", f"Bearer {TOKEN}"),
        ("X-Forwarded-Client-Cert", "URI=spiffe://x/admin"),
        ("X_Forwarded_Client_Cert", "URI=spiffe://x/admin"),
    )

    assert b"spiffe" not in _head(door)


@pytest.mark.parametrize(
    ("offered", "passed"),
    [
        ("sandbox-router.bearer.{}", None),
        ("sandbox-router.bearer.{}, v1.kernel", b"v1.kernel"),
        ("v1.kernel, sandbox-router.bearer.{}, v2.kernel", b"v1.kernel, v2.kernel"),
    ],
)
async def test_the_subprotocol_token_is_taken_out_of_the_offer_and_the_rest_is_the_apps(
    door: Door, offered: str, passed: bytes | None
) -> None:
    answer = await door.ask(*upgrade(offered.format(TOKEN).encode()))

    assert answer.status == 101
    assert TOKEN.encode() not in _head(door)
    lines = [
        line.partition(b":")[2].strip()
        for line in _head(door).split(b"\r\n")
        if line.lower().startswith(b"sec-websocket-protocol:")
    ]
    assert lines == ([] if passed is None else [passed])


async def test_the_subprotocol_token_goes_even_if_a_header_decides(door: Door) -> None:
    answer = await door.ask(
        ("X-Sandbox-Token", TOKEN),
        ("Authorization", "Basic dXNlcjpwYXNz"),
        *upgrade(f"sandbox-router.bearer.{TOKEN}, v1".encode()),
    )

    assert answer.status == 101
    assert TOKEN.encode() not in _head(door)
    assert b"Authorization: Basic dXNlcjpwYXNz\r\n" in _head(door)


async def test_bytes_of_a_tunnel_flow_once_it_is_permitted(door: Door) -> None:
    async with asyncio.timeout(5):
        reader, writer = await door.connect()
        writer.write(request(*upgrade(f"sandbox-router.bearer.{TOKEN}".encode())))
        assert (await read_answer(reader)).status == 101
        writer.write(b"\x00\xff any bytes")
        assert await reader.readexactly(12) == b"\x00\xff any bytes"


async def test_with_no_mode_for_tokens_authorization_is_the_apps_own(tmp_path: Path) -> None:
    async with open_door(tmp_path, auth="none") as door:
        await door.ask(("Authorization", "Bearer of-the-app"))

        assert b"Authorization: Bearer of-the-app\r\n" in _head(door)


async def test_a_token_in_a_basic_password_is_taken_out(door: Door) -> None:
    password = base64.b64encode(f"git:{TOKEN}".encode()).decode()

    answer = await door.ask(("Authorization", f"Basic {password}"))

    assert answer.status == 200
    assert b"authorization" not in _head(door).lower()
    assert password.encode() not in _head(door)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
async def test_git_gets_in_with_the_token_in_its_url(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    async with open_door(
        tmp_path, auth="static", static_token_file=tmp_path / "token", path_prefix="/s"
    ) as door:
        host, port = door.http
        git = await asyncio.create_subprocess_exec(
            "git",
            "ls-remote",
            f"http://git:{TOKEN}@{host}:{port}/s/team-a/box-a/{door.sandbox.port}/repo.git",
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "GIT_TERMINAL_PROMPT": "0", "HOME": str(tmp_path)},
        )
        async with asyncio.timeout(30):
            await git.communicate()

        heads = door.sandbox.heads
        assert heads[0].startswith(b"GET /repo.git/info/refs?service=git-upload-pack ")
        assert not any(b"authorization" in head.lower() for head in heads)
