"""Listeners: sockets that are bound before anything is ready, and the servers on them."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from typing import Final

from router.settings import Address

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
    """Accepts connections on bound sockets."""

    def __init__(
        self, sockets: Sequence[socket.socket], *, protocol: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        """`protocol` makes one for each connection, as it is accepted."""
        self._sockets = list(sockets)
        self._addresses = addresses_of(sockets)
        self._protocol = protocol
        self._servers: list[asyncio.Server] = []

    def __repr__(self) -> str:
        return f"<Listener {self._addresses} servers={len(self._servers)}>"

    async def start(self) -> None:
        """Begins to accept. Raises OSError when one of the sockets can't be listened on; then none is."""
        loop = asyncio.get_running_loop()
        try:
            for sock in self._sockets:
                server = await loop.create_server(self._protocol, sock=sock.dup(), backlog=BACKLOG)
                self._servers.append(server)
        except OSError:
            self._close_servers()
            raise

    def stop(self) -> None:
        """Stops accepting; open connections stay."""
        self._close_servers()
        close_all(self._sockets)

    def _close_servers(self) -> None:
        for server in self._servers:
            server.close()
        self._servers = []
