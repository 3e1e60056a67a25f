"""The load that opens connections, against the harness's own sandbox behind TLS."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench import heads
from bench.certificates import client_context, write_certificate
from bench.handshakes import handshakes
from bench.loads import Aim, Span
from bench.sandbox import SandboxConnection

from .conftest import CALLER, aim_at

SPAN = Span(warm_s=0.1, window_s=0.3)


@pytest.fixture
def server_context(tmp_path: Path) -> ssl.SSLContext:
    files = write_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context


@pytest.fixture
async def aim(server_context: ssl.SSLContext) -> AsyncIterator[Aim]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(SandboxConnection, "127.0.0.1", 0, ssl=server_context)
    port = server.sockets[0].getsockname()[1]
    yield dataclasses.replace(aim_at(port), tls=client_context())
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("resumed", [False, True])
async def test_each_connection_is_answered_once(aim: Aim, resumed: bool) -> None:
    measured = await handshakes(
        aim, SPAN, heads.same_gets(CALLER), resumed=resumed, body=heads.ITEM_BODY
    )

    assert measured.errors == {}
    assert measured.cost is not None
    assert measured.cost > 0


async def test_a_session_that_is_not_resumed_is_an_error(
    aim: Aim, server_context: ssl.SSLContext
) -> None:
    aim = dataclasses.replace(aim, tls=NeverReused(ssl.PROTOCOL_TLS_CLIENT))
    assert aim.tls is not None
    aim.tls.check_hostname = False
    aim.tls.verify_mode = ssl.CERT_NONE

    measured = await handshakes(
        aim, SPAN, heads.same_gets(CALLER), resumed=True, body=heads.ITEM_BODY
    )

    assert "the session was not resumed" in measured.errors


class NeverReused(ssl.SSLContext):
    """Forgets the session that it is to resume."""

    def wrap_bio(self, *args, session=None, **options):
        return super().wrap_bio(*args, **options)


async def test_another_answer_is_an_error(aim: Aim) -> None:
    measured = await handshakes(
        aim, SPAN, [CALLER.head("GET", "/nothing")], resumed=False, body=heads.ITEM_BODY
    )

    assert [reason for reason in measured.errors if not reason.startswith("answered")] == []
    assert measured.errors
