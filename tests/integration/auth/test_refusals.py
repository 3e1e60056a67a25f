"""The negative table over real sockets: each credential with its status, and nothing reaches the sandbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.integration.auth.door import POD, Door, open_door, read_answer, request
from tests.unit.auth.tokens import (
    EC_KEY,
    ED_KEY,
    OTHER_RSA_KEY,
    OTHER_SECRET,
    RSA_KEY,
    SECRET,
    SIGNING_KEYS,
    public_pem,
    sign,
)

ISSUER = "https://platform.example"
AUDIENCE = "sandbox-router"
NOW = int(time.time())


def token(*grants: dict[str, Any], algorithm: str = "HS256", key: Any = None, **claims: Any) -> str:
    """Returns a token that is good but for what is given."""
    allowed = list(grants) or [{"namespace": "team-a", "name": "box-a"}]
    body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "sandboxes": allowed, **claims}
    kept = {name: value for name, value in body.items() if value is not None}
    return sign(
        {"exp": claims.get("exp", NOW + 3600), **kept}, algorithm=algorithm, key=key
    ).decode()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    secrets, keys = tmp_path / "secrets", tmp_path / "keys.pem"
    secrets.write_bytes(SECRET)
    keys.write_bytes(b"".join(public_pem(key) for key in (RSA_KEY, EC_KEY, ED_KEY)))
    async with open_door(
        tmp_path,
        auth="jwt,static",
        jwt_secret_file=secrets,
        jwks_file=keys,
        jwt_issuer=ISSUER,
        jwt_audience=AUDIENCE,
        static_token_file=_static(tmp_path),
        wait_for_ready="5s",
    ) as opened:
        yield opened


def _static(tmp_path: Path) -> Path:
    path = tmp_path / "static"
    path.write_text("the-operators-shared-token\n")
    return path


@pytest.mark.parametrize("algorithm", SIGNING_KEYS)
async def test_a_good_token_of_every_family_reaches_the_sandbox(door: Door, algorithm: str) -> None:
    answer = await door.ask(("Authorization", f"Bearer {token(algorithm=algorithm)}"))

    assert answer.status == 200
    assert door.reached() == 1


async def test_the_shared_token_reaches_every_sandbox(door: Door) -> None:
    for name, namespace in (("box-a", "team-a"), ("box-b", "team-b")):
        answer = await door.ask(
            ("Authorization", "Bearer the-operators-shared-token"), name=name, namespace=namespace
        )
        assert answer.status == 200


BAD: dict[str, str | bytes] = {
    "wrong secret": token(key=OTHER_SECRET),
    "wrong RSA key": token(algorithm="RS256", key=OTHER_RSA_KEY),
    "algorithm none": jwt.encode({"sub": "alice"}, None, algorithm="none"),
    "algorithm none with a signature": "eyJhbGciOiJub25lIn0." + token().partition(".")[2],
    "RS512": jwt.encode({"exp": NOW + 60, "iss": ISSUER, "aud": AUDIENCE}, RSA_KEY, "RS512"),
    "without exp": sign({"exp": None, "iss": ISSUER, "aud": AUDIENCE}).decode(),
    "expired": token(exp=NOW - 60),
    "exp as text": token(exp=str(NOW + 60)),
    "not valid yet": token(nbf=NOW + 600),
    "issued in the future": token(iat=NOW + 600),
    "wrong issuer": token(iss="https://other.example"),
    "no issuer": token(iss=None),
    "wrong audience": token(aud="other"),
    "no audience": token(aud=None),
    "malformed grants": token(sandboxes="*"),
    "unknown restriction": token({"namespace": "team-a", "name": "box-a", "paths": ["/x"]}),
    "cut": token()[:-3],
    "padded": token() + "=",
    "not a token": "not.a.token",
    "non-ASCII": "caf\xe9.\xff.\xc3\xa9".encode("latin-1"),
    "huge": "a" * 40_000,
    "huge and signed": token(padding="x" * 20_000),
    "shared token in other case": "The-operators-shared-token",
    "shared token twice": "the-operators-shared-token the-operators-shared-token",
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("header", ["Authorization", "X-Sandbox-Token", "Sec-WebSocket-Protocol"])
async def test_a_bad_token_is_401_wherever_it_stands_and_reaches_nobody(
    door: Door, name: str, header: str
) -> None:
    bad = BAD[name]
    raw = bad if isinstance(bad, bytes) else bad.encode()
    if header == "Sec-WebSocket-Protocol":
        if not set(raw) <= set(
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
        ):
            pytest.skip("can't stand in a subprotocol")
        answer = await door.ask(*upgrade(b"sandbox-router.bearer." + raw))
    else:
        answer = await door.ask((header, b"Bearer " + raw if header == "Authorization" else raw))

    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert "www-authenticate" in answer.headers
    assert door.reached() == 0


def upgrade(protocols: bytes) -> tuple[tuple[str, str | bytes], ...]:
    """Returns the headers of a WebSocket handshake."""
    return (
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Protocol", protocols),
    )


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "the-operators-shared-token", "Token x"],
)
async def test_no_bearer_token_is_401(door: Door, value: str) -> None:
    answer = await door.ask(("Authorization", value))

    assert answer.status == 401
    assert door.reached() == 0


async def test_the_challenge_tells_a_refused_token_from_a_missing_one(door: Door) -> None:
    missing, refused = await door.ask(), await door.ask(("X-Sandbox-Token", "bad"))

    basic = ', Basic realm="sandbox-router", charset="UTF-8"'
    assert missing.headers["www-authenticate"] == 'Bearer realm="sandbox-router"' + basic
    assert refused.headers["www-authenticate"] == (
        'Bearer realm="sandbox-router", error="invalid_token"' + basic
    )


async def test_two_authorization_headers_are_refused_even_if_one_is_good(door: Door) -> None:
    good = ("Authorization", f"Bearer {token()}")
    for headers in (
        (good, ("Authorization", "Bearer bad")),
        (("Authorization", "Bearer bad"), good),
    ):
        answer = await door.ask(*headers)
        assert answer.status in (400, 401)
    assert door.reached() == 0


async def test_an_invalid_credential_is_not_passed_over_for_a_good_one(door: Door) -> None:
    good, bad = token(), token(exp=NOW - 60)
    for headers in (
        (("X-Sandbox-Token", bad), ("Authorization", f"Bearer {good}")),
        (("Authorization", f"Bearer {bad}"), *upgrade(f"sandbox-router.bearer.{good}".encode())),
        (("Authorization", f"Bearer {good}"), *upgrade(f"sandbox-router.bearer.{bad}".encode())),
    ):
        assert (await door.ask(*headers)).status == 401
    assert door.reached() == 0


FOREIGN: dict[str, dict[str, Any]] = {
    "another sandbox": {"namespace": "team-a", "name": "box-z"},
    "another namespace": {"namespace": "team-b", "name": "box-a"},
    "another port": {"namespace": "team-a", "name": "box-a", "ports": [80]},
    "another method": {"namespace": "team-a", "name": "box-a", "methods": ["POST"]},
    "another UID": {"namespace": "team-a", "name": "box-a", "uid": "not-" + POD},
}


@pytest.mark.parametrize("name", FOREIGN)
async def test_a_token_for_something_else_is_403_and_reaches_nobody(door: Door, name: str) -> None:
    answer = await door.ask(("Authorization", f"Bearer {token(FOREIGN[name])}"))

    assert (answer.status, answer.code) == (403, "forbidden")
    assert door.reached() == 0


@pytest.mark.parametrize(
    "grant",
    [
        {"namespace": "team-a", "name": "*"},
        {"namespace": "*", "name": "box-a"},
        {"namespace": "team-a", "name": "box-a", "uid": POD, "ports": [8888], "methods": ["GET"]},
    ],
)
async def test_a_token_for_this_very_call_gets_through(door: Door, grant: dict[str, Any]) -> None:
    assert (await door.ask(("Authorization", f"Bearer {token(grant)}"))).status == 200


async def test_missing_forbidden_and_starting_look_the_same_to_who_may_not_know(
    door: Door,
) -> None:
    bearer = ("Authorization", f"Bearer {token({'namespace': 'team-b', 'name': '*'})}")
    started = time.monotonic()

    answers = [await door.ask(bearer, name=name) for name in ("box-a", "box-s", "no-such-box")]

    assert {answer.status for answer in answers} == {403}
    assert len({answer.body for answer in answers}) == 1
    assert len({tuple(answer.headers.items()) for answer in answers}) == 1
    assert time.monotonic() - started < 2, "nobody without a right waits for a sandbox to start"


async def test_who_may_know_is_told_that_it_is_missing(door: Door) -> None:
    bearer = ("Authorization", f"Bearer {token({'namespace': 'team-a', 'name': '*'})}")

    answer = await door.ask(bearer, name="no-such-box")

    assert (answer.status, answer.code) == (404, "sandbox_not_found")


@pytest.mark.parametrize(
    "authorization", ["Bearer bad", f"Bearer {token(FOREIGN['another port'])}"]
)
async def test_the_answer_comes_before_a_100_continue_and_before_the_body(
    door: Door, authorization: str
) -> None:
    async with asyncio.timeout(5):
        reader, writer = await door.connect()
        writer.write(
            request(
                ("Authorization", authorization),
                ("Expect", "100-continue"),
                ("Content-Length", "1000000000"),
                method="POST",
            )
        )
        answer = await read_answer(reader)

    assert answer.status in (401, 403)
    assert answer.informational == ()
    assert door.reached() == 0


async def test_no_answer_repeats_the_token(door: Door) -> None:
    secret_part = token(sub="hunter2hunter2", exp=NOW - 60)

    answer = await door.ask(("Authorization", f"Bearer {secret_part}"))

    assert answer.detail == "The token has expired."
    assert secret_part.rpartition(".")[2].encode() not in answer.body


async def test_refusals_are_counted_by_reason_and_not_by_who_sent_them(door: Door) -> None:
    for _ in range(3):
        await door.ask(("Authorization", f"Bearer {token(exp=NOW - 60)}"))
    await door.ask()

    assert door.worker.access.failures == {("jwt", "expired"): 3, ("none", "missing"): 1}
