"""A name server on loopback, over UDP and TCP, that says what a test wants, nothing, or too much for a datagram."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset


@dataclass
class FakeDns:
    """What the server knows, and what it was asked."""

    port: int = 0
    names: dict[str, list[str]] = field(default_factory=dict)
    """Addresses of either family; an empty list is a name without addresses."""
    silent: set[tuple[str, str]] = field(default_factory=set)
    """(name, "A" or "AAAA") that get no answer."""
    failing: set[str] = field(default_factory=set)
    """Names for which it answers SERVFAIL."""
    truncated: set[str] = field(default_factory=set)
    """Names whose answer does not fit into a datagram."""
    ttl_s: int = 5
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    asked_by_tcp: Counter[str] = field(default_factory=Counter)

    def never_answers(self, name: str) -> None:
        self.silent |= {(name, "A"), (name, "AAAA")}

    def questions(self) -> int:
        return self.asked.total()

    def write_resolv_conf(self, path: Path, *more: str) -> Path:
        """Writes a resolv.conf that names this server, and returns its path."""
        path.write_text("\n".join(["nameserver 127.0.0.1", *more, ""]))
        return path

    def answer(self, wire: bytes, *, by_tcp: bool) -> bytes | None:
        query = dns.message.from_wire(wire)
        question = query.question[0]
        name, kind = question.name.to_text(omit_final_dot=True), question.rdtype.name
        self.asked[name, kind] += 1
        if (name, kind) in self.silent:
            return None
        response = dns.message.make_response(query)
        if by_tcp:
            self.asked_by_tcp[name] += 1
        elif name in self.truncated:
            response.flags |= dns.flags.TC
            return response.to_wire()
        if name in self.failing:
            response.set_rcode(dns.rcode.SERVFAIL)
        elif name not in self.names:
            response.set_rcode(dns.rcode.NXDOMAIN)
        else:
            wanted = [each for each in self.names[name] if (":" in each) == (kind == "AAAA")]
            if wanted:
                response.answer.append(
                    dns.rrset.from_text(question.name, self.ttl_s, "IN", kind, *wanted)
                )
        return response.to_wire()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: FakeDns) -> None:
        self._server = server
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        answer = self._server.answer(data, by_tcp=False)
        if answer is not None:
            self._transport.sendto(answer, addr)


@asynccontextmanager
async def dns_server(**knows: Any) -> AsyncIterator[FakeDns]:
    """Yields a running server; keywords are FakeDns' fields."""
    server = FakeDns(**knows)

    async def by_tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            size = int.from_bytes(await reader.readexactly(2), "big")
            answer = server.answer(await reader.readexactly(size), by_tcp=True)
            if answer is not None:
                writer.write(len(answer).to_bytes(2, "big") + answer)
                await writer.drain()
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    streams, datagrams = _same_port()
    server.port = datagrams.getsockname()[1]
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(server), sock=datagrams)
    listening = await asyncio.start_server(by_tcp, sock=streams)
    try:
        yield server
    finally:
        transport.close()
        listening.close()
        await listening.wait_closed()


def _same_port() -> tuple[socket.socket, socket.socket]:
    """Returns a listening TCP socket and a UDP socket on one free port."""
    for _ in range(20):
        streams = socket.create_server(("127.0.0.1", 0))
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            datagrams.bind(streams.getsockname())
        except OSError:
            streams.close()
            datagrams.close()
            continue
        streams.setblocking(False)
        datagrams.setblocking(False)
        return streams, datagrams
    raise OSError("no port is free for both")
