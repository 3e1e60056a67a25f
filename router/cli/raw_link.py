"""RawLink: a TCP connection to a sandbox's port, through a router, as a client has it (docs/connect.md).

It needs the standard library and the router's own frames alone, so that a command that uses it starts at once.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from router.proxy.wire.frame_reader import FrameError, FrameReader
from router.proxy.wire.unmasking import unmask

if TYPE_CHECKING:
    import ssl

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_READ: Final = 65_536
_LONGEST_HEAD: Final = 65_536
_LONGEST_TOLD: Final = 2000
_HINTS: Final = {
    "forbidden": "The grant has to say `methods: [CONNECT]` and this port in `ports`.",
    "router_path_not_found": "This router does not bring TCP to sandboxes: its setting `connect` is off.",
    "unauthenticated": "Give a token: --token-file FILE, or the variable SANDBOX_TOKEN.",
    "sandbox_suspended": "Resume it, or ask for a grant with `wake: true` where the router has `wake-websockets`.",
}


class CannotConnect(Exception):
    """Why there is no connection, in words for whoever asked for it; `is_passing` says that a moment later there may be one."""

    def __init__(self, message: str, *, is_passing: bool = False) -> None:
        self.is_passing = is_passing
        super().__init__(message)


class LinkLost(Exception):
    """Why a connection ended otherwise than by its two ends."""


@dataclass(frozen=True, slots=True)
class Router:
    """Where the router is. Made by of(), which checks it."""

    host: str
    port: int
    authority: str
    path: str
    context: ssl.SSLContext | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str, ca_file: str | None = None) -> Router:
        """Returns the router at an http or https URL; a path in it stands before the router's own. Raises ValueError, OSError."""
        parts = urlsplit(url if "://" in url else f"https://{url}")
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        if scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is no address like https://router.example")
        if parts.username is not None:
            raise ValueError(
                "an address with a user or a password in it shows in every process list"
            )
        if not parts.netloc.isascii() or any(c <= " " for c in parts.netloc + parts.path):
            raise ValueError(f"{url!r} holds what no address may")
        context = None
        if scheme == "https":
            import ssl

            context = ssl.create_default_context(cafile=ca_file)
        port = parts.port or (443 if context else 80)
        path = parts.path.rstrip("/") + "/.sandbox-router/tcp"
        return cls(parts.hostname, port, parts.netloc, path, context)


class RawLink:
    """One connection that stands. Made by open()."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader(is_masked=False)
        self._pieces: list[bytes] = []

    def __repr__(self) -> str:
        return f"<RawLink {self._frames!r}>"

    @classmethod
    async def open(
        cls, router: Router, *, namespace: str, name: str, port: int, token: str
    ) -> RawLink:
        """Returns the connection once it stands. Raises CannotConnect."""
        where = f"{router.host}:{router.port}"
        try:
            reader, writer = await asyncio.open_connection(
                router.host, router.port, ssl=router.context, limit=_LONGEST_HEAD
            )
        except OSError as exc:
            known = os.strerror(exc.errno) if isinstance(exc, ConnectionError) and exc.errno else ""
            why = getattr(exc, "verify_message", "") or known or exc.strerror or str(exc)
            raise CannotConnect(
                f"no connection to the router at {where}: {why}",
                is_passing=isinstance(exc, ConnectionError),
            ) from exc
        try:
            key = base64.b64encode(os.urandom(16))
            writer.write(_handshake(router, key, namespace, name, port, token))
            head = await reader.readuntil(b"\r\n\r\n")
            await _check(head, key, reader)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as exc:
            writer.transport.abort()
            raise CannotConnect(
                f"{where} ended the connection without an answer", is_passing=True
            ) from exc
        except BaseException:
            writer.transport.abort()
            raise
        return cls(reader, writer)

    async def receive(self) -> bytes:
        """Returns what the sandbox sent next, b"" at its end. Raises LinkLost."""
        while not self._pieces:
            code = self._frames.close_code
            if code == 1000:
                return b""
            if code:
                raise LinkLost(self._frames.close_reason or f"the router closed it with {code}")
            try:
                data = await self._reader.read(_READ)
            except OSError as exc:
                raise LinkLost(f"the connection to the router broke: {exc}") from exc
            if not data:
                raise LinkLost("the router, or a proxy before it, ended the connection")
            self._take(data)
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data

    def _take(self, data: bytes) -> None:
        try:
            while data and not self._frames.close_code:
                data = data[self._frames.feed(data, self._pieces) :]
        except FrameError as exc:
            raise LinkLost(f"that is no WebSocket: {exc}") from exc
        if self._frames.ping is not None:
            self._write(0x8A, self._frames.ping)
            self._frames.ping = None

    async def send(self, data: bytes) -> None:
        """Sends bytes to the sandbox; returns when there is room for more. Raises LinkLost."""
        self._write(0x82, data)
        await self._drain()

    async def send_end(self, *, is_cut: bool = False) -> None:
        """Tells the sandbox that no more comes, or that what came was cut. Raises LinkLost."""
        self._write(0x88, (1011 if is_cut else 1000).to_bytes(2, "big"))
        await self._drain()

    async def close(self) -> None:
        """Ends the connection to the router."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(2):
                await self._writer.wait_closed()

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError as exc:
            raise LinkLost(f"the connection to the router broke: {exc}") from exc

    def _write(self, first: int, payload: bytes) -> None:
        size, mask = len(payload), os.urandom(4)
        if size < 126:
            header = bytes((first, 0x80 | size))
        elif size < 65_536:
            header = bytes((first, 0xFE)) + size.to_bytes(2, "big")
        else:
            header = bytes((first, 0xFF)) + size.to_bytes(8, "big")
        self._writer.write(header + mask + unmask(payload, mask, 0, size))


def _handshake(
    router: Router, key: bytes, namespace: str, name: str, port: int, token: str
) -> bytes:
    lines = [
        f"GET {router.path} HTTP/1.1",
        f"Host: {router.authority}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key.decode('ascii')}",
        f"X-Sandbox-ID: {name}",
        f"X-Sandbox-Port: {port}",
    ]
    if namespace:
        lines.append(f"X-Sandbox-Namespace: {namespace}")
    if token:
        lines.append(f"X-Sandbox-Token: {token}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def _check(head: bytes, key: bytes, reader: asyncio.StreamReader) -> None:
    """Raises CannotConnect for every answer but the 101 to this handshake."""
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ", 2)
    headers = {n.strip().lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdecimal():
        raise CannotConnect("what answers there does not speak HTTP/1.1")
    if parts[1] == "101":
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())  # noqa: S324 - RFC 6455 §4.2.2
        if headers.get("sec-websocket-accept", "").encode("latin-1") != accept:
            raise CannotConnect("the answer is not the one to this handshake")
        return
    length = headers.get("content-length", "")
    body = b""
    if length.isdecimal() and len(length) < 6:
        body = await reader.readexactly(int(length))
    raise _refusal(parts[1], parts[2] if len(parts) > 2 else "", headers, body)


def _refusal(status: str, phrase: str, headers: dict[str, str], body: bytes) -> CannotConnect:
    """Returns a refusal in words: the router's own, or those of whatever stands before it."""
    try:
        told = json.loads(body)
        code, detail = str(told["code"]), str(told["detail"])[:_LONGEST_TOLD]
    except (ValueError, KeyError, TypeError):
        who = headers.get("server", "something before the router")
        said = f"{status} {phrase}".strip()
        return CannotConnect(f"{_plain(who)} answered {_plain(said)} in the router's place")
    hint = f" {_HINTS[code]}" if code in _HINTS else ""
    is_passing = status in ("429", "503")
    return CannotConnect(f"{_plain(detail)} ({status} {_plain(code)}){hint}", is_passing=is_passing)


def _plain(text: str) -> str:
    """Returns text from elsewhere as a terminal may be shown it."""
    return "".join(c if c.isprintable() else "?" for c in text)
