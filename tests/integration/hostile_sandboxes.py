"""Sandboxes that do harm, and one that doesn't: `python -m tests.integration.hostile_sandboxes PORT`.

GET /ok is answered; GET /flood for ever, as fast as it is taken; whoever sends a body is not read from,
and the kernel keeps little of it (small segments and a small receive buffer), so that it is the router that has to hold it.
"""

from __future__ import annotations

import asyncio
import socket
import sys

SEGMENT_BYTES = 1400
CONNECTIONS: set[asyncio.Protocol] = set()
"""Nothing else refers to one that isn't read from: it would be collected, and its connection reset."""
PIECE = b"x" * 262_144


class Sandbox(asyncio.Protocol):
    def __init__(self) -> None:
        self.head = b""
        self.floods = False
        self.is_writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        CONNECTIONS.add(self)

    def data_received(self, data: bytes) -> None:
        self.head += data
        if b"\r\n\r\n" not in self.head:
            return
        line, self.head = self.head.split(b"\r\n", 1)[0], b""
        if line.startswith(b"POST"):
            self.transport.pause_reading()
        elif b" /flood " in line:
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
            self.floods = True
            self.flood()
        elif b" /large " in line:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"y" * 1_000_000
            )
        else:
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")

    def flood(self) -> None:
        if self.floods and self.is_writable:
            self.transport.write(PIECE)
            asyncio.get_running_loop().call_soon(self.flood)

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self.flood()

    def connection_lost(self, exc: Exception | None) -> None:
        self.floods = False
        CONNECTIONS.discard(self)


async def main(port: int) -> None:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.bind(("127.0.0.1", port))
    server = await asyncio.get_running_loop().create_server(Sandbox, sock=sock, backlog=4096)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
