"""JwksFetcher against a real server: kept fresh, kept on error, never hammering the issuer."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from jwt.algorithms import RSAAlgorithm

from router.auth.claims import ClaimRules
from router.auth.jwks import MAX_JWKS_BYTES, JwksFetcher, checked_url, watch_authorities
from router.auth.jwt import JwtVerifier
from router.auth.keys import KeyRing
from router.auth.principal import Principal
from router.auth.verifier import Reason, Refusal
from tests.unit.auth.tokens import OTHER_RSA_KEY, RSA_KEY, sign

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _jwks(**keys: object) -> bytes:
    """Returns a JWK Set of RSA keys by `kid`."""
    return json.dumps(
        {
            "keys": [
                {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid}  # type: ignore[attr-defined]
                for kid, key in keys.items()
            ]
        }
    ).encode()


class Issuer:
    """An issuer's server, whose answer tests exchange."""

    def __init__(self) -> None:
        self.requests = 0
        self.url = ""
        self.body = _jwks(k1=RSA_KEY)
        self.answer: Answer = self.publish

    async def publish(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self.body)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        return await self.answer(request)


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/jwks"
    yield made
    await runner.cleanup()


@asynccontextmanager
async def _running(fetcher: JwksFetcher) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(fetcher.run())
        try:
            yield
        finally:
            task.cancel()


def _fetcher(issuer: Issuer, keys: KeyRing, **settings: float) -> JwksFetcher:
    return JwksFetcher(
        **{"url": issuer.url, "keys": keys, "timeout_s": 2.0, **settings}  # type: ignore[arg-type]
    )


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_keys_are_there_soon_after_the_start(issuer: Issuer) -> None:
    keys = KeyRing()
    fetcher = _fetcher(issuer, keys)
    assert fetcher.missing() == ["the keys at jwks-url are not loaded: not tried yet"]

    async with _running(fetcher):
        await _until(lambda: fetcher.is_loaded)

    assert keys.knows("k1")
    assert fetcher.missing() == []


async def test_keys_are_refreshed_and_removed_ones_go(issuer: Issuer) -> None:
    keys = KeyRing()
    fetcher = _fetcher(issuer, keys, refresh_s=0.02)

    async with _running(fetcher):
        await _until(lambda: keys.knows("k1"))
        issuer.body = _jwks(k2=OTHER_RSA_KEY)
        await _until(lambda: keys.knows("k2"))

    assert not keys.knows("k1")


async def test_the_same_answer_again_forgets_no_verified_token(issuer: Issuer) -> None:
    keys, changes = KeyRing(), []
    keys.on_change(lambda: changes.append(1))

    async with _running(_fetcher(issuer, keys, refresh_s=0.01)):
        await _until(lambda: issuer.requests > 5)

    assert changes == [1]


async def _huge(request: web.Request) -> web.StreamResponse:
    return web.Response(body=b" " * (MAX_JWKS_BYTES + 1))


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65536)


async def _silent(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


async def _moved(request: web.Request) -> web.StreamResponse:
    if request.path == "/jwks":
        raise web.HTTPFound("/elsewhere")
    return web.Response(body=_jwks(evil=OTHER_RSA_KEY))


async def _broken(request: web.Request) -> web.StreamResponse:
    return web.Response(body=b"<html>")


async def _secret(request: web.Request) -> web.StreamResponse:
    return web.Response(body=json.dumps({"keys": [{"kty": "oct", "k": "A" * 64}]}).encode())


async def _down(request: web.Request) -> web.StreamResponse:
    return web.Response(status=503, body=_jwks(evil=OTHER_RSA_KEY))


async def _zipped(request: web.Request) -> web.StreamResponse:
    return web.Response(
        body=gzip.compress(_jwks(evil=OTHER_RSA_KEY)), headers={"Content-Encoding": "gzip"}
    )


async def _cut(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b"{")
    assert request.transport is not None
    request.transport.close()
    return response


@pytest.mark.parametrize(
    "bad", [_huge, _endless, _silent, _moved, _broken, _secret, _down, _zipped, _cut]
)
async def test_a_bad_answer_keeps_the_last_keys_and_counts(issuer: Issuer, bad: Answer) -> None:
    keys = KeyRing()
    fetcher = _fetcher(issuer, keys, refresh_s=0.02, timeout_s=0.3)

    async with _running(fetcher):
        await _until(lambda: keys.knows("k1"))
        issuer.answer = bad
        await _until(lambda: fetcher.fetches_failed > 0)
        assert keys.knows("k1")
        assert not keys.knows("evil")
        assert fetcher.last_error
        issuer.answer = issuer.publish
        await _until(lambda: not fetcher.last_error)

    assert keys.knows("k1")


async def test_an_issuer_that_is_down_at_the_start_is_tried_again_and_named(
    issuer: Issuer,
) -> None:
    keys = KeyRing()
    issuer.answer = _down
    fetcher = _fetcher(issuer, keys)

    async with _running(fetcher):
        await _until(lambda: fetcher.fetches_failed == 1)
        assert "503" in fetcher.missing()[0]
        issuer.answer = issuer.publish
        await _until(lambda: fetcher.is_loaded)

    assert keys.knows("k1")


async def test_an_unknown_key_is_fetched_at_once(issuer: Issuer) -> None:
    keys = KeyRing()
    fetcher = _fetcher(issuer, keys)

    async with _running(fetcher):
        await _until(lambda: fetcher.is_loaded)
        issuer.body = _jwks(k1=RSA_KEY, k2=OTHER_RSA_KEY)

        assert await fetcher.look_again() is True
        assert keys.knows("k2")


async def test_within_the_cooldown_nobody_looks_again(issuer: Issuer) -> None:
    clock_s = 1000.0
    fetcher = JwksFetcher(url=issuer.url, keys=KeyRing(), cooldown_s=30.0, clock=lambda: clock_s)

    async with _running(fetcher):
        await _until(lambda: fetcher.is_loaded)
        answers = [await fetcher.look_again() for _ in range(3)]
        clock_s += 30.0
        answers.append(await fetcher.look_again())

    assert answers == [True, False, False, True]
    assert issuer.requests == 3


async def test_a_fetch_that_fails_is_no_new_look(issuer: Issuer) -> None:
    fetcher = _fetcher(issuer, KeyRing())

    async with _running(fetcher):
        await _until(lambda: fetcher.is_loaded)
        issuer.answer = _down

        assert await fetcher.look_again() is False


async def test_who_asks_while_a_fetch_is_under_way_gets_the_next_one(issuer: Issuer) -> None:
    keys, gate = KeyRing(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        body = issuer.body
        await gate.wait()
        return web.Response(body=body)

    issuer.answer = slow
    fetcher = _fetcher(issuer, keys)

    async with _running(fetcher), asyncio.TaskGroup() as group:
        await _until(lambda: issuer.requests == 1)
        look = group.create_task(fetcher.look_again())
        await asyncio.sleep(0.02)
        issuer.body = _jwks(k2=OTHER_RSA_KEY)
        gate.set()
        assert await look is True

    assert keys.knows("k2")


async def test_a_thousand_tokens_with_invented_key_ids_cause_one_fetch(issuer: Issuer) -> None:
    keys = KeyRing()
    fetcher = _fetcher(issuer, keys)
    verifier = JwtVerifier(
        keys=keys,
        rules=ClaimRules(None, (), 0.0),
        is_refused=lambda principal: False,
        remote=fetcher,
    )
    tokens = [sign({}, headers={"kid": f"invented-{number}"}) for number in range(1000)]

    async def verify(token: bytes) -> Principal | Refusal:
        verdict = verifier.verify(token)
        return verdict if isinstance(verdict, (Principal, Refusal)) else await verdict

    async with _running(fetcher):
        await _until(lambda: fetcher.is_loaded)
        verdicts = await asyncio.gather(*(verify(token) for token in tokens))
        verdicts += [await verify(token) for token in tokens[:50]]

    assert all(
        isinstance(verdict, Refusal) and verdict.reason is Reason.UNKNOWN_KEY
        for verdict in verdicts
    )
    assert issuer.requests == 2


async def test_without_a_running_fetcher_nobody_waits_for_ever(issuer: Issuer) -> None:
    fetcher = _fetcher(issuer, KeyRing(), timeout_s=0.05)

    assert await fetcher.look_again() is False


@pytest.mark.parametrize(
    "url",
    [
        "",
        "jwks",
        "file:///etc/passwd",
        "ftp://issuer.example/jwks",
        "https://",
        "https://user:password@issuer.example/jwks",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        checked_url(url)

    assert "password@" not in str(caught.value)


def test_an_unencrypted_url_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    checked_url("https://issuer.example/jwks")
    assert not caplog.records

    checked_url("http://issuer.example/jwks")

    assert "not https" in caplog.text


async def test_its_status_is_that_of_the_last_fetch(issuer: Issuer) -> None:
    fetcher = _fetcher(issuer, KeyRing())
    assert fetcher.status("jwks_url") == ("jwks_url", False, 0.0, "not tried yet")

    async with _running(fetcher):
        await _until(lambda: fetcher.is_loaded)
        loaded = fetcher.status("jwks_url")
        issuer.answer = _down
        assert await fetcher.reload() is False
        failed = fetcher.status("jwks_url")

    assert (loaded.ok, loaded.error) == (True, "")
    assert loaded.last_success_unix > 0
    assert (failed.ok, failed.last_success_unix) == (False, loaded.last_success_unix)
    assert "503" in failed.error


async def test_reload_fetches_at_once_within_the_cooldown_too(issuer: Issuer) -> None:
    keys = KeyRing()
    fetcher = _fetcher(issuer, keys, cooldown_s=3600.0)
    async with _running(fetcher):
        await _until(lambda: fetcher.is_loaded)
        await fetcher.look_again()
        issuer.body = _jwks(k2=OTHER_RSA_KEY)

        assert await fetcher.reload() is True
        assert await fetcher.reload() is False

    assert keys.knows("k2")


# --- an issuer with a certificate of a private authority -------------------------------------


@asynccontextmanager
async def _private_issuer(authority: trustme.CA) -> AsyncIterator[Issuer]:
    made = Issuer()
    app = web.Application()
    app.router.add_get("/jwks", made.handle)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    made.url = f"https://localhost:{runner.addresses[0][1]}/jwks"
    try:
        yield made
    finally:
        await runner.cleanup()


async def test_a_private_authority_is_trusted_where_it_is_named_and_only_there(
    tmp_path: Path,
) -> None:
    authority, file = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    async with _private_issuer(authority) as issuer:
        named, unnamed = (_fetcher(issuer, KeyRing()) for _ in range(2))
        watch_authorities(named, file).load_once()
        async with _running(named), _running(unnamed):
            await _until(lambda: named.is_loaded and unnamed.fetches_failed > 0)

            assert not unnamed.is_loaded
            assert "certificate verify failed" in unnamed.last_error


async def test_new_authorities_count_from_the_next_fetch_on(tmp_path: Path) -> None:
    authority, file = trustme.CA(), tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(file))
    async with _private_issuer(authority) as issuer:
        fetcher = _fetcher(issuer, KeyRing())
        watched = watch_authorities(fetcher, file)
        watched.load_once()
        async with _running(fetcher):
            await _until(lambda: fetcher.fetches_failed > 0)
            authority.cert_pem.write_to_path(str(file))
            assert await watched.poll()
            await fetcher.reload()

            assert fetcher.is_loaded


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no certificate",
        b"-----BEGIN CERTIFICATE-----\ncaf\xc3\xa9\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ],
)
def test_a_file_without_a_certificate_is_refused_and_named(
    tmp_path: Path, issuer: Issuer, content: bytes
) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(content)

    with pytest.raises(ValueError, match=f"{file}: holds (no|a broken) certificate"):
        watch_authorities(_fetcher(issuer, KeyRing()), file).load_once()
