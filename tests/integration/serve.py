"""The router as its user runs it: a process of `sandbox-router serve`, and where it listens."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

PATIENCE_S = 30.0
TOKEN = "let-me-in-let-me-in"


@dataclass
class Served:
    """A running router."""

    pid: int
    address: tuple[str, int]
    log: list[str] = field(default_factory=list)
    """What it has said on stderr so far."""

    def memory_bytes(self) -> int:
        """Returns the memory that it occupies (VmRSS)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def descriptors(self) -> int:
        """Returns how many file descriptors it has."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


@asynccontextmanager
async def served(directory: Path, *names: str, **flags: str) -> AsyncIterator[Served]:
    """Runs a router that knows these sandboxes at 127.0.0.1, with one static token; it must end with 0 when told to."""
    boxes, token = directory / "sandboxes.yaml", directory / "token"
    boxes.write_text(
        yaml.safe_dump({"sandboxes": [{"name": n, "host": "127.0.0.1"} for n in names]})
    )
    token.write_text(TOKEN)
    given = {
        "http-bind": "127.0.0.1:0",
        "admin-bind": "127.0.0.1:0",
        "discovery": "file",
        "sandboxes-file": str(boxes),
        "auth": "static",
        "static-token-file": str(token),
        "drain-delay": "0",
        "shutdown-timeout": "1s",
        "access-log": "false",
        **{name.replace("_", "-"): value for name, value in flags.items()},
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "serve"),
        *(part for name, value in given.items() for part in (f"--{name}", value)),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    router = Served(process.pid, ("", 0))
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not router.address[1]:
                line = (await process.stderr.readline()).decode()
                assert line, f"it ended before it listened: {router.log}"
                router.log.append(line)
                router.address = _listening(line)
        async with asyncio.TaskGroup() as group:
            group.create_task(_follow(process.stderr, router.log))
            try:
                yield router
            finally:
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
    finally:
        async with asyncio.timeout(PATIENCE_S):
            code = await process.wait()
    assert code == 0, router.log
    assert "Traceback" not in "".join(router.log)


async def _follow(stderr: asyncio.StreamReader, log: list[str]) -> None:
    while line := await stderr.readline():
        log.append(line.decode())


def _listening(line: str) -> tuple[str, int]:
    """Returns the address that the log line tells, ("", 0) for another line."""
    record = json.loads(line)
    if record.get("message") != "listening":
        return "", 0
    host, _, port = record["http"][0].rpartition(":")
    return host, int(port)
