"""Limits of tunnels, and how they end a WebSocket: with a Close frame, between two frames."""

import pytest

from router.auth.authenticator import Authenticated
from router.auth.policy import Policy
from router.auth.principal import Grant, Principal
from tests.fakes.deciders import DecidesEachTime
from tests.integration.proxy.messages import answer, request
from tests.integration.proxy.pod import serving
from tests.integration.proxy.upgrades import (
    BINARY,
    GOING_AWAY,
    POLICY_VIOLATION,
    TEXT,
    close_code,
    frame,
    opened,
    upgrade,
)
from tests.integration.proxy.wire import settled, until

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


@pytest.fixture
async def limited(start_router, pod):
    router = await start_router(tunnel_idle_timeout_s=HOUR_S, tunnel_max_lifetime_s=DAY_S)
    router.knows(pod)
    return router


async def test_a_silent_tunnel_ends_with_1001(limited, pod):
    client, sandbox = await opened(limited, pod)
    limited.pass_time(HOUR_S + 1)
    assert await close_code(client) == GOING_AWAY
    assert await sandbox.end() == "eof"
    sandbox.close()
    outcome = await limited.outcome()
    assert (outcome.status, outcome.code) == (101, "tunnel_idle")


async def test_a_word_from_either_side_keeps_a_tunnel(limited, pod):
    client, sandbox = await opened(limited, pod)
    for _ in range(5):
        limited.pass_time(HOUR_S - 60)
        client.send(b"a")
        assert await sandbox.read(1) == b"a"
        limited.pass_time(HOUR_S - 60)
        sandbox.send(frame(TEXT, b"b"))
        assert await client.read(3) == frame(TEXT, b"b")
    assert limited.outcomes == []


async def test_no_tunnel_outlives_its_lifetime(limited, pod):
    client, sandbox = await opened(limited, pod)
    for _ in range(24):
        limited.pass_time(HOUR_S - 60)
        client.send(b"a")
        await sandbox.read(1)
    limited.pass_time(HOUR_S - 60)
    assert await close_code(client) == GOING_AWAY
    assert (await limited.outcome()).code == "tunnel_lifetime"


async def test_another_protocol_just_ends(limited, pod):
    client, sandbox = await opened(limited, pod, protocol="other")
    limited.pass_time(HOUR_S + 1)
    assert await client.end() == "eof"
    assert await sandbox.end() == "eof"
    sandbox.close()


async def test_the_close_frame_waits_for_the_current_frame_to_end(limited, pod):
    client, sandbox = await opened(limited, pod)
    message = frame(BINARY, b"x" * 1000)
    sandbox.send(message[:500])
    assert await client.read(500) == message[:500]
    limited.pass_time(HOUR_S + 1)
    await settled()
    sandbox.send(message[500:] + frame(TEXT, b"a frame that comes too late")[:9])
    assert await client.read(504) == message[500:]
    first, size = await client.read(2)
    assert first == 0x88
    assert int.from_bytes((await client.read(size))[:2], "big") == GOING_AWAY
    assert await client.end() == "eof"


async def test_a_frame_that_never_ends_keeps_no_tunnel(limited, pod):
    client, sandbox = await opened(limited, pod)
    sandbox.send(frame(BINARY, b"x" * 1000)[:500])
    await client.read(500)
    limited.pass_time(HOUR_S + 1)
    await settled()
    assert limited.outcomes == []
    limited.pass_time(1)
    assert await client.end() == "eof"
    assert (await limited.outcome()).code == "tunnel_idle"


@pytest.mark.parametrize("seconds", [HOUR_S + 1, DAY_S + 1])
async def test_a_sandbox_that_says_no_more_keeps_no_tunnel(limited, pod, seconds):
    client, sandbox = await opened(limited, pod)
    sandbox.half_close()
    assert await client.end() == "eof"
    limited.pass_time(seconds)
    outcome = await limited.outcome()
    assert outcome.code in ("tunnel_idle", "tunnel_lifetime")
    assert await sandbox.end() in ("eof", "reset")


async def test_a_client_that_says_no_more_keeps_no_tunnel(limited, pod):
    client, sandbox = await opened(limited, pod)
    client.half_close()
    assert await sandbox.end() == "eof"
    limited.pass_time(HOUR_S + 1)
    assert await close_code(client) == GOING_AWAY


async def test_a_client_that_reads_no_goodbye_keeps_no_tunnel(limited, pod):
    limited.shrink_buffers()
    client, sandbox = await opened(limited, pod, buffers=8192)
    client.stop_reading()
    sandbox.send(frame(BINARY, b"x" * 3_000_000))
    await settled()
    limited.pass_time(HOUR_S + 1)
    limited.pass_time(1)
    await limited.outcome()
    limited.pass_time(31)
    limited.pass_time(31)
    await until(lambda: len(limited.clients) == 0)


class Alice(DecidesEachTime):
    """An Authenticator that knows one caller, whose token has an id and ends at some time."""

    def __init__(self, expires_at: float | None = None) -> None:
        self.principal = Principal(
            subject="alice",
            mode="jwt",
            grants=(Grant("*", "*"),),
            token_id="token-1",
            issued_at=100.0,
            expires_at=expires_at,
        )

    def authenticate(self, credentials):
        return Authenticated(self.principal, consumed_authorization=True)


async def test_a_tunnel_ends_with_1008_some_time_after_its_token(start_router, pod, clock):
    router = await start_router(authenticator=Alice(expires_at=clock.time() + 100))
    router.knows(pod)
    client, sandbox = await opened(router, pod)
    router.pass_time(150)
    client.send(b"within the grace")
    assert await sandbox.read(16) == b"within the grace"
    router.pass_time(15)
    assert await close_code(client) == POLICY_VIOLATION
    assert (await router.outcome()).code == "tunnel_right_ended"


async def test_a_revoked_token_ends_its_tunnels_and_streams(start_router, pod):
    router = await start_router(authenticator=Alice())
    router.knows(pod)
    client, _ = await opened(router, pod)
    router.policy.replace(Policy(revoked=frozenset({"token-1"})))
    router.pass_time(1)
    assert await close_code(client) == POLICY_VIOLATION


async def test_a_frame_that_never_ends_keeps_no_right(start_router, pod):
    router = await start_router(authenticator=Alice())
    router.knows(pod)
    client, sandbox = await opened(router, pod)
    sandbox.send(frame(BINARY, b"x" * 1000)[:500])
    await client.read(500)
    router.policy.replace(Policy(revoked=frozenset({"token-1"})))
    router.pass_time(1)
    router.pass_time(1)
    assert await client.end() == "eof"
    assert (await router.outcome()).code == "tunnel_right_ended"
    assert await sandbox.end() in ("eof", "reset")


async def test_a_sandbox_that_rejects_older_tokens_ends_its_tunnels(start_router, pod):
    router = await start_router(authenticator=Alice())
    router.knows(pod)
    client, _ = await opened(router, pod)
    other, _ = await opened(router, pod, protocol="other")
    router.knows(pod, tokens_not_before=1000.0)
    router.pass_time(1)
    assert await close_code(client) == POLICY_VIOLATION
    assert await other.end() == "eof"


async def test_draining_ends_tunnels_with_1001(router, pod):
    client, sandbox = await opened(router, pod)
    other, _ = await opened(router, pod, protocol="other")
    router.clients.drain()
    await settled()
    client.send(b"still open")
    assert await sandbox.read(10) == b"still open"
    router.clients.end_tunnels("the router is shutting down")
    assert await close_code(client) == GOING_AWAY
    assert await other.end() == "eof"
    assert {outcome.code for outcome in router.outcomes} == {"tunnel_drained"}


async def test_draining_survives_a_sandbox_that_says_no_more(router, pod):
    first, sandbox = await opened(router, pod)
    second, _ = await opened(router, pod)
    sandbox.half_close()
    assert await first.end() == "eof"
    router.clients.drain()
    router.clients.end_tunnels("the router is shutting down")
    assert await close_code(second) == GOING_AWAY
    assert (await router.outcome(2)).code == "tunnel_drained"


async def test_no_client_has_more_tunnels_than_allowed(start_router, pod):
    router = await start_router(max_tunnels_per_client=2)
    router.knows(pod)
    first, sandbox = await opened(router, pod)
    await opened(router, pod)
    told = await router.ask(upgrade())
    assert (told.status, told.code, told.get("Retry-After")) == (429, "too_many_requests", b"1")
    async with serving(pod, lambda _: answer(200, ("Connection", "close"))):
        assert (await router.ask(request())).status == 200
    first.close()
    await sandbox.rest()
    sandbox.close()
    await until(lambda: len(router.outcomes) == 3)
    await opened(router, pod)
