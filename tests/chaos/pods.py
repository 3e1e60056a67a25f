"""Pods that are real listeners on loopback addresses and know who they are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

PORT = 8888


class Addresses:
    """Hands out addresses of 127.0.0.0/8, the one that was freed last first: no address rests before it is used again."""

    def __init__(self, count: int) -> None:
        self._free = [f"127.{64 + (n >> 16)}.{n >> 8 & 255}.{n & 255}" for n in range(count, 0, -1)]
        self._used: set[str] = set()
        self.reused = 0

    def take(self) -> str | None:
        if not self._free:
            return None
        address = self._free.pop()
        self.reused += address in self._used
        self._used.add(address)
        return address

    def give_back(self, address: str) -> None:
        self._free.append(address)


class _Answering(asyncio.Protocol):
    """Answers every request with the pod's uid."""

    def __init__(self, pod: ListeningPod) -> None:
        self._pod = pod
        self._pending = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._pod.connections.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._pod.connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        *requests, self._pending = (self._pending + data).split(b"\r\n\r\n")
        if requests and self._transport is not None:
            body = self._pod.uid.encode()
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
            self._transport.write((head + body) * len(requests))


@dataclass
class ListeningPod:
    """One pod's container: it listens while it lives."""

    uid: str
    address: str
    connections: set[asyncio.Transport] = field(default_factory=set)
    server: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: _Answering(self), self.address, PORT)

    def stop(self) -> None:
        """Ends like a killed container: the address refuses and what was open is reset."""
        if self.server is not None:
            self.server.close()
        for connection in list(self.connections):
            connection.abort()
