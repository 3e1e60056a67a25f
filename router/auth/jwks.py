"""JwksFetcher: the keys that an issuer publishes at a URL, kept fresh in the background."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from router.auth.keys import KeyRing, parse_jwks
from router.watched_file import FileStatus, WatchedFiles

logger = logging.getLogger("sandbox_router.auth")

MAX_JWKS_BYTES = 1024 * 1024
SOURCE = "jwks-url"


class JwksFetcher:
    """Fetches a JWK Set at the start, every `refresh_s`, and when somebody asks about an unknown key, at most once per `cooldown_s`.

    An answer that is too large, too slow, redirected or holds no usable key changes nothing: the last keys stay in force.
    """

    def __init__(
        self,
        *,
        url: str,
        keys: KeyRing,
        refresh_s: float = 300.0,
        cooldown_s: float = 30.0,
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = checked_url(url)
        self._keys = keys
        self._refresh_s = refresh_s
        self._cooldown_s = cooldown_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._digest = b""
        self._tls: ssl.SSLContext | bool = True
        self._wanted = asyncio.Event()
        self._round_ended = asyncio.Event()
        self._last_asked_at = -float("inf")
        self._last_succeeded_round = 0
        self._round = 0
        self.is_loaded = False
        self.last_error = ""
        self.last_success_unix = 0.0
        self.fetches_succeeded = 0
        self.fetches_failed = 0

    def __repr__(self) -> str:
        return (
            f"<JwksFetcher loaded={self.is_loaded} succeeded={self.fetches_succeeded}"
            f" failed={self.fetches_failed} error={self.last_error!r}>"
        )

    def missing(self) -> list[str]:
        """Returns what keeps the router from being ready."""
        if self.is_loaded:
            return []
        return [f"the keys at jwks-url are not loaded: {self.last_error or 'not tried yet'}"]

    def trust(self, authorities: ssl.SSLContext) -> None:
        """Holds the issuer's certificate against these authorities from the next fetch on, instead of the system's."""
        self._tls = authorities

    async def run(self) -> None:
        """Keeps the keys fresh for ever; cancel it to stop."""
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "Accept": "application/jwk-set+json, application/json",
                "Accept-Encoding": "identity",
            },
            auto_decompress=False,
        ) as session:
            failures_in_row = 0
            while True:
                succeeded = await self._fetch(session)
                failures_in_row = 0 if succeeded else failures_in_row + 1
                await self._pause(failures_in_row)

    async def look_again(self) -> bool:
        """Returns True when the keys were fetched anew after this call began.

        All callers share one fetch, and within `cooldown_s` of the last one that was asked for the answer is False at once:
        tokens with invented key ids can't make the router hammer the issuer.
        """
        if not self._wanted.is_set():
            now = self._clock()
            if now - self._last_asked_at < self._cooldown_s:
                return False
            self._last_asked_at = now
            self._wanted.set()
        asked_in_round = self._round
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                # A fetch that was under way when the question came may have missed the new key.
                while self._wanted.is_set():
                    await self._round_ended.wait()
        except TimeoutError:
            return False
        return self._last_succeeded_round > asked_in_round

    async def reload(self) -> bool:
        """Fetches now, whatever the cool-down. Returns True when other keys were put in force."""
        before = self._digest
        self._last_asked_at = -float("inf")
        await self.look_again()
        return self._digest != before

    def status(self, name: str) -> FileStatus:
        """Returns how the last fetch ended; not ok before the first."""
        error = self.last_error or ("" if self.is_loaded else "not tried yet")
        return FileStatus(name, not error, self.last_success_unix, error)

    async def _pause(self, failures_in_row: int) -> None:
        """Waits until the next fetch is due: backing off while it fails, jittered so that replicas don't come together."""
        pause_s = self._refresh_s
        if failures_in_row:
            pause_s = min(pause_s, 2.0 ** min(failures_in_row - 1, 6))
        try:
            async with asyncio.timeout(pause_s * random.uniform(0.8, 1.2)):  # noqa: S311 (no secret)
                await self._wanted.wait()
        except TimeoutError:
            pass

    async def _fetch(self, session: aiohttp.ClientSession) -> bool:
        self._round += 1
        answers_question = self._wanted.is_set()
        try:
            body = await self._download(session)
            self._put_in_force(body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._failed(error)
        else:
            self._last_succeeded_round = self._round
            self.is_loaded = True
            self.last_error = ""
            self.last_success_unix = time.time()
            self.fetches_succeeded += 1
        if answers_question:
            self._wanted.clear()
        self._round_ended.set()
        self._round_ended = asyncio.Event()
        return self._last_succeeded_round == self._round

    async def _download(self, session: aiohttp.ClientSession) -> bytes:
        async with session.get(self._url, allow_redirects=False, ssl=self._tls) as response:
            if response.status != 200:
                raise ValueError(f"the answer is {response.status}, not 200")
            body = await response.content.read(MAX_JWKS_BYTES + 1)
            while len(body) <= MAX_JWKS_BYTES and not response.content.at_eof():
                body += await response.content.read(MAX_JWKS_BYTES + 1 - len(body))
            if len(body) > MAX_JWKS_BYTES:
                raise ValueError(f"the answer is larger than {MAX_JWKS_BYTES} bytes")
            return body

    def _put_in_force(self, body: bytes) -> None:
        """Replaces the keys when they differ; the same answer again leaves every verified token remembered."""
        digest = hashlib.sha256(body).digest()
        if digest != self._digest:
            self._keys.replace(SOURCE, parse_jwks(body, allow_secrets=False))
            self._digest = digest

    def _failed(self, error: BaseException) -> None:
        self.fetches_failed += 1
        self.last_error = f"{type(error).__name__}: {error}".rstrip(": ")
        logger.warning(
            "keys not fetched, the last ones stay in force",
            extra={"fields": {"host": urlsplit(self._url).hostname, "error": self.last_error}},
        )


def watch_authorities(
    fetcher: JwksFetcher, path: Path, *, poll_interval_s: float = 1.0
) -> WatchedFiles[ssl.SSLContext]:
    """Returns the watcher that keeps the fetcher's trust at the authorities in a PEM file."""
    return WatchedFiles(
        (path,),
        parse=lambda contents: _context(contents[0]),
        apply=fetcher.trust,
        poll_interval_s=poll_interval_s,
    )


def _context(content: bytes) -> ssl.SSLContext:
    """Returns a client's TLS context that trusts the certificates in `content` alone. Raises ValueError."""
    # Without any, create_default_context() would trust the system's.
    if b"-----BEGIN CERTIFICATE-----" not in content:
        raise ValueError("holds no certificate in PEM")
    try:
        return ssl.create_default_context(cadata=content.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError):
        raise ValueError("holds a broken certificate") from None


def checked_url(url: str) -> str:
    """Returns `url`. Raises ValueError unless it is http(s), names a host and carries no password."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("jwks-url must be an https:// URL with a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("jwks-url must not carry a user or password")
    if parts.scheme == "http":
        logger.warning(
            "jwks-url is not https: whoever sits in between can put keys in",
            extra={"fields": {"host": parts.hostname}},
        )
    return url
