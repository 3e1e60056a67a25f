"""Clients that take memory: `python -m tests.integration.hostile_clients PORT KIND COUNT`; they come back when they are ended.

Kinds: `uploads` that a sandbox doesn't read, `downloads` that are not read, `heads` that don't end, `pipelines` of refused
requests whose answers are not read, and `silent` ones. Their segments are those of a real network: over loopback's of 64 KiB
the kernel alone would take megabytes for each connection before the router has to hold anything.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time

SEGMENT_BYTES = 1400
TO_BOX = b"Host: router\r\nX-Sandbox-ID: hostile\r\n"
BODY = b"x" * 600_000
HEAD = (
    b"GET / HTTP/1.1\r\n"
    + TO_BOX
    + b"".join(b"X-%04d: %s\r\n" % (i, b"h" * 200) for i in range(290))
)
REFUSED = b"GET /refused HTTP/1.1\r\nHost: router\r\nX-Sandbox-ID: nobody-knows-it\r\n\r\n" * 2000
FIRST = {
    "uploads": b"POST / HTTP/1.1\r\n" + TO_BOX + b"Content-Length: 1000000000000\r\n\r\n" + BODY,
    "downloads": b"GET /flood HTTP/1.1\r\n" + TO_BOX + b"\r\n",
    "heads": HEAD,
    "pipelines": REFUSED,
    "silent": b"",
}
MORE = {"uploads": BODY, "pipelines": REFUSED}


def connected(port: int, kind: str) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
    if kind in ("downloads", "pipelines"):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(30)
    sock.connect(("127.0.0.1", port))
    sock.setblocking(False)
    with contextlib.suppress(OSError):
        sock.send(FIRST[kind])
    return sock


def has_ended(sock: socket.socket, kind: str) -> bool:
    """Returns True when the router has ended the connection, or refused what it was sent."""
    try:
        if kind in ("downloads", "pipelines"):
            return not sock.recv(1, socket.MSG_PEEK)  # nothing is read
        sock.recv(4096)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def main(port: int, kind: str, count: int) -> None:
    """Keeps so many connections open, and pushes what they will take, until it is killed."""
    socks: list[socket.socket | None] = [None] * count
    while True:
        for place, sock in enumerate(socks):
            try:
                if sock is None:
                    socks[place] = connected(port, kind)
                elif has_ended(sock, kind):
                    sock.close()
                    socks[place] = None
                elif kind in MORE:
                    sock.send(MORE[kind])
            except BlockingIOError:
                continue
            except OSError:
                if sock is not None:
                    sock.close()
                    socks[place] = None
        print(sum(sock is not None for sock in socks), flush=True)
        time.sleep(0.2)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
