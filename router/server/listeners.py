"""Listeners: sockets that are bound before anything is ready, and the servers on them."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from router.settings import Address

logger = logging.getLogger("sandbox_router.server")

BACKLOG: Final = 4096


class BindError(OSError):
    """A listener's address can't be had; the message says which and what to do."""


def bind(address: Address, *, setting: str, shared: bool = False) -> list[socket.socket]:
    """Returns bound sockets for an address: one, or for "every address" one for each IP family.

    `shared` sets SO_REUSEPORT, so that several workers may each have one. Raises BindError.
    """
    hosts = _hosts(address.host)
    sockets: list[socket.socket] = []
    port = address.port
    try:
        for family, host in hosts:
            try:
                sock = _bind_one(family, host, port, shared=shared)
            except OSError as exc:
                if exc.errno == errno.EAFNOSUPPORT and len(hosts) > 1:
                    continue
                raise BindError(_explain(exc, address, setting)) from exc
            sockets.append(sock)
            port = sock.getsockname()[1]
    except BindError:
        close_all(sockets)
        raise
    return sockets


def close_all(sockets: Sequence[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def addresses_of(sockets: Sequence[socket.socket]) -> list[tuple[str, int]]:
    """Returns where the sockets listen, as (address, port)."""
    return [sock.getsockname()[:2] for sock in sockets]


def _hosts(host: str) -> list[tuple[socket.AddressFamily, str]]:
    if host == "":
        # Two sockets rather than one dual-stack: IPv4 clients keep their plain addresses.
        return [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]  # noqa: S104 - the operator said so
    if host == "localhost":
        return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
    return [(socket.AF_INET6 if ":" in host else socket.AF_INET, host)]


def _bind_one(family: socket.AddressFamily, host: str, port: int, *, shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        try:
            sock.bind((host, port))
        except OSError as exc:
            if family == socket.AF_INET6 and exc.errno == errno.EADDRNOTAVAIL:
                raise OSError(errno.EAFNOSUPPORT, "no IPv6 here") from exc
            raise
    except OSError:
        sock.close()
        raise
    return sock


def _explain(exc: OSError, address: Address, setting: str) -> str:
    advice = {
        errno.EADDRINUSE: "Something else listens there; stop it, or choose another port.",
        errno.EACCES: "Ports below 1024 need the capability NET_BIND_SERVICE; choose a higher one.",
        errno.EADDRNOTAVAIL: "This machine has no such address.",
    }.get(exc.errno or 0, "")
    return f"{setting}: cannot listen on {address}: {exc.strerror}. {advice}".rstrip()


class Listener:
    """Accepts connections on bound sockets, plain or with TLS whose context can be exchanged."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        *,
        protocol: Callable[[], asyncio.BaseProtocol],
        handshake_timeout_s: float,
    ) -> None:
        self._sockets = list(sockets)
        self._addresses = addresses_of(sockets)
        self._protocol = protocol
        self._handshake_timeout_s = handshake_timeout_s
        self._servers: list[asyncio.Server] = []
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<Listener {self._addresses} servers={len(self._servers)}>"

    async def start(self, context: ssl.SSLContext | None) -> None:
        """Begins to accept."""
        self._servers = await self._serve(context)

    async def exchange(self, context: ssl.SSLContext) -> None:
        """Handshakes from now on use this context; connections that are open stay as they are. Once stopped it does nothing."""
        if self._is_stopped:
            return
        try:
            made = await self._serve(context)
        except OSError as exc:
            # Out of descriptors, say: an old certificate serves better than none.
            logger.error("certificate not exchanged", extra={"fields": {"reason": str(exc)}})
            return
        # It may have been stopped meanwhile: then the new servers are the ones too many.
        old, self._servers = (made, []) if self._is_stopped else (self._servers, made)
        for server in old:
            server.close()

    def stop(self) -> None:
        """Stops accepting; open connections stay."""
        self._is_stopped = True
        for server in self._servers:
            server.close()
        self._servers = []
        close_all(self._sockets)

    async def _serve(self, context: ssl.SSLContext | None) -> list[asyncio.Server]:
        loop = asyncio.get_running_loop()
        timeout_s = self._handshake_timeout_s if context is not None else None
        servers: list[asyncio.Server] = []
        try:
            for sock in self._sockets:
                servers.append(  # noqa: PERF401 - those before one that fails must be closed
                    await loop.create_server(
                        self._protocol,
                        sock=sock.dup(),
                        ssl=context,
                        backlog=BACKLOG,
                        ssl_handshake_timeout=timeout_s or None,
                    )
                )
        except OSError:
            for server in servers:
                server.close()
            raise
        return servers
