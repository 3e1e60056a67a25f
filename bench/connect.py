"""What a TCP connection through a WebSocket costs the router, beside a plain WebSocket tunnel: `python -m bench.connect`.

The same bytes in the same frames cross a router process both ways, up and down; its CPU time is read from /proc. For the plain
tunnel a sandbox answers the upgrade and frames cross untouched; for `connect` the router takes them off and puts them on.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

_MIB: Final = 2**20
_TOKEN: Final = "let-me-in-let-me-in"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SWITCH: Final = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
)
_MASK: Final = b"\x37\xfa\x21\x3d"


@contextmanager
def running_router() -> Iterator[tuple[int, int]]:
    """Yields the process id and the port of a router that brings TCP to the sandbox `box`, this machine."""
    with tempfile.TemporaryDirectory() as folder:
        boxes, token = Path(folder, "sandboxes.yaml"), Path(folder, "token")
        boxes.write_text("sandboxes: [{name: box, host: 127.0.0.1}]\n")
        token.write_text(_TOKEN)
        flags = f"--http-bind 127.0.0.1:0 --admin-bind 127.0.0.1:0 --discovery file --sandboxes-file {boxes}"
        flags += f" --auth static --static-token-file {token} --connect true --drain-delay 0 --access-log false"
        process = subprocess.Popen(
            [sys.executable, "-m", "router", "serve", *flags.split()],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            port = 0
            while not port:
                told = json.loads(process.stderr.readline())
                if told["message"] == "listening":
                    port = int(told["http"][0].rpartition(":")[2])
            yield process.pid, port
        finally:
            process.terminate()
            process.communicate()


def cpu_s(pid: int) -> float:
    """Returns the CPU time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_mib(pid: int) -> float:
    """Returns the most memory that it ever had (VmHWM), in MiB."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def _frame(size: int, *, mask: bytes) -> bytes:
    bit = 0x80 if mask else 0
    length = (
        bytes((bit | 126,)) + size.to_bytes(2, "big")
        if size < 65_536
        else bytes((bit | 127,)) + size.to_bytes(8, "big")
    )
    return b"\x82" + length + mask + bytes(size)


def _serve(listening: socket.socket, *, answers: bool, sends: bytes, total: int) -> None:
    """One connection of the sandbox: takes everything, or sends `total` bytes in pieces of `sends`, and ends."""
    sock = listening.accept()[0]
    with sock:
        if answers:
            while b"\r\n\r\n" not in sock.recv(65_536):
                pass
            sock.sendall(_SWITCH)
        _send(sock, sends, total)
        if not sends:
            _take(sock, total)


def _send(sock: socket.socket, piece: bytes, total: int) -> None:
    for _ in range(total // len(piece) if piece else 0):
        sock.sendall(piece)


def _take(sock: socket.socket, total: int) -> None:
    buffer = bytearray(_MIB)
    while total > 0:
        got = sock.recv_into(buffer)
        if not got:
            return
        total -= got


def transfer(port: int, *, raw: bool, up: bool, frame_bytes: int, mib: int) -> None:
    """Sends so many MiB one way, through the router on `port`."""
    framed = _frame(frame_bytes, mask=_MASK if up else b"")
    count = mib * _MIB // frame_bytes
    plain = bytes(frame_bytes)
    piece = (plain if raw else framed) if not up else b""
    arrives = count * (frame_bytes if raw else len(framed))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there = threading.Thread(
            target=_serve,
            args=(listening,),
            kwargs={"answers": not raw, "sends": piece, "total": arrives},
        )
        there.start()
        with socket.create_connection(("127.0.0.1", port)) as sock:
            path = "/.sandbox-router/tcp" if raw else "/"
            sock.sendall(
                f"GET {path} HTTP/1.1\r\nHost: router\r\nX-Sandbox-ID: box\r\n"
                f"X-Sandbox-Port: {listening.getsockname()[1]}\r\nX-Sandbox-Token: {_TOKEN}\r\n"
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
            )
            head = sock.recv(65_536)
            assert head.startswith(b"HTTP/1.1 101 "), head
            if up:
                _send(sock, framed, count * len(framed))
                there.join()
            else:
                _take(sock, count * frame_bytes)
        there.join()


def cost_ms(pid: int, work: Callable[[], None], mib: int) -> float:
    """Returns the router's CPU for each MiB of some work, in milliseconds."""
    before = cpu_s(pid)
    work()
    return (cpu_s(pid) - before) * 1000 / mib


def main() -> None:
    """Prints a table, and the most memory after a GiB in either direction and after frames of 16 MiB."""
    mib, rounds = 512, 5
    print(
        "| direction | frame | plain tunnel, ms/MiB | connect, ms/MiB | ratio |\n|---|---|---|---|---|"
    )
    with running_router() as (pid, port):
        for up in (True, False):
            for frame_bytes in (4096, 16_384, 65_536, 16 * _MIB):
                costs: dict[bool, list[float]] = {False: [], True: []}
                for _ in range(rounds):
                    for raw in (False, True):
                        how = partial(transfer, port, up=up, frame_bytes=frame_bytes, mib=mib)
                        costs[raw].append(cost_ms(pid, partial(how, raw=raw), mib))
                plain, framed = median(costs[False]), median(costs[True])
                print(
                    f"| {'up' if up else 'down'} | {frame_bytes // 1024} KiB | {plain:.3f} | "
                    f"{framed:.3f} | {framed / plain:.2f} |",
                    flush=True,
                )
    with running_router() as (pid, port):
        first = peak_mib(pid)
        for up in (True, False):
            for frame_bytes in (65_536, 16 * _MIB):
                transfer(port, raw=True, up=up, frame_bytes=frame_bytes, mib=1024)
        print(f"\nmost memory: {first:.1f} MiB before, {peak_mib(pid):.1f} MiB after 4 GiB")


if __name__ == "__main__":
    main()
