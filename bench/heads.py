"""Builds the requests that the load sends: bytes made before the clock starts."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

DIFFERENT_HEADS = 20_000
POST_BODY = random.Random(1_024).randbytes(512).hex().encode()  # 1,024 bytes
ITEM_BODY = (
    b'{"id":"7d3a1f52","state":"running","language":"python","cells":12,"kernel":"idle",'
    b'"started":"2026-08-01T09:30:00Z","cpu":0.25,"memory_mb":412}'
)
STORED_BODY = b'{"stored":1024}'

_AGENTS = (
    "python-requests/2.32.3",
    "python-httpx/0.28.1",
    "k8s-agent-sandbox/1.0.8 python/3.12.4",
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/139.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/18.5 Safari/605.1.15",
    "curl/8.9.1",
    "node-fetch/3.3.2",
    "Go-http-client/1.1",
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom the requests speak for, and which sandbox they ask for."""

    sandbox_id: str
    token: str

    def head(self, method: str, target: str, *lines: str) -> bytes:
        """One request head with the routing and credential headers, and the lines given."""
        fixed = (
            f"{method} {target} HTTP/1.1",
            "Host: router.example:8080",
            f"X-Sandbox-ID: {self.sandbox_id}",
            "X-Sandbox-Namespace: default",
            "X-Sandbox-Port: 8888",
            f"Authorization: Bearer {self.token}",
        )
        return "\r\n".join((*fixed, *lines, "", "")).encode()


class _Variety:
    """A seeded source of the header lines in which real requests differ."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def target(self) -> str:
        return f"/items/{self._random.randrange(10**6)}?page={self._random.randrange(500)}&q={self._hex(4)}"

    def lines(self) -> tuple[str, ...]:
        request_id = uuid.UUID(int=self._random.getrandbits(128), version=4)
        return (
            f"User-Agent: {self._random.choice(_AGENTS)}",
            "Accept: application/json",
            "Accept-Encoding: gzip, deflate",
            f"X-Request-Id: {request_id}",
            f"traceparent: 00-{self._hex(16)}-{self._hex(8)}-01",
            f"Cookie: session={self._hex(16)}; theme=dark",
        )

    def _hex(self, size: int) -> str:
        return self._random.randbytes(size).hex()


def same_gets(caller: Caller) -> list[bytes]:
    """One small GET, sent again and again."""
    variety = _Variety(1)
    return [caller.head("GET", variety.target(), *variety.lines())]


def different_gets(caller: Caller, count: int = DIFFERENT_HEADS) -> list[bytes]:
    """Small GETs, no two alike, in the same order in every run."""
    variety = _Variety(2)
    return [caller.head("GET", variety.target(), *variety.lines()) for _ in range(count)]


def gets_in_turn(callers: Sequence[Caller]) -> list[bytes]:
    """Small GETs, no two alike, each for the next of the callers."""
    variety = _Variety(4)
    return [caller.head("GET", variety.target(), *variety.lines()) for caller in callers]


def proxied_gets(caller: Caller, count: int = DIFFERENT_HEADS) -> list[bytes]:
    """The same GETs as different_gets with what an Ingress adds: who the client is, and how it came."""
    variety = _Variety(2)
    return [
        caller.head(
            "GET",
            variety.target(),
            *variety.lines(),
            f"X-Forwarded-For: 203.0.113.{number % 250}",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: sandboxes.example.com",
            "X-Forwarded-Port: 443",
            f"X-Real-IP: 203.0.113.{number % 250}",
        )
        for number in range(count)
    ]


def browser_gets(
    host: str, *, authorization: str = "", session: str = "", count: int = DIFFERENT_HEADS
) -> list[bytes]:
    """GETs of one browser's page in host mode, with a bearer token or with a session; the browser's own lines stay the same."""
    variety = _Variety(5)
    cookies = "theme=dark; _xsrf=2|8c5f1d0a|0b6c3d"
    cookies += f"; __Host-sandbox-router={session}" if session else ""
    lines = [
        f"Host: {host}",
        *([f"Authorization: Bearer {authorization}"] if authorization else []),
        f"User-Agent: {_AGENTS[3]}",
        "Accept: */*",
        "Accept-Encoding: gzip, deflate, br, zstd",
        "Accept-Language: en-GB,en;q=0.9",
        f"Referer: https://{host}/lab",
        "Sec-Fetch-Site: same-origin",
        "Sec-Fetch-Mode: cors",
        "Sec-Fetch-Dest: empty",
        f"Cookie: {cookies}",
    ]
    return [
        "\r\n".join((f"GET {variety.target()} HTTP/1.1", *lines, "", "")).encode()
        for _ in range(count)
    ]


def different_posts(caller: Caller, count: int = DIFFERENT_HEADS) -> list[bytes]:
    """POSTs of 1 KB (1,024 bytes) whose heads differ."""
    variety = _Variety(3)
    entity = ("Content-Type: application/json", f"Content-Length: {len(POST_BODY)}")
    return [
        caller.head("POST", variety.target(), *variety.lines(), *entity) + POST_BODY
        for _ in range(count)
    ]


def download(caller: Caller, size: int, *, chunked: bool) -> bytes:
    return caller.head("GET", f"/big?n={size}&chunked={int(chunked)}", "Accept: */*")


def upload_head(caller: Caller, size: int, *, chunked: bool) -> bytes:
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    return caller.head("PUT", "/upload", "Content-Type: application/octet-stream", framing)


def handshake(caller: Caller, key: bytes) -> bytes:
    return caller.head(
        "GET",
        "/ws",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key.decode()}",
    )
