"""Starts one process on one core, and ends it with all it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.credentials import Credential
from bench.subjects import USUAL, Setup, Site, Subject

_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 8.0
_FOREIGN = ("SANDBOX_ROUTER_", "ROUTER_", "OTEL_", "PROXY_", "GODEBUG", "GOGC", "GOMAXPROCS")


class StartError(Exception):
    """A subject didn't come up; the text ends with what it said."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Which core the load and the sandbox run on, and which the proxy."""

    load: int
    proxy: int

    @classmethod
    def found(cls) -> Cores:
        """The first and the last that we may use; with a single one they are the same."""
        allowed = os.sched_getaffinity(0)
        return cls(load=min(allowed), proxy=max(allowed))

    @property
    def shared(self) -> bool:
        return self.load == self.proxy


@dataclass(frozen=True, slots=True)
class Started:
    """A subject that listens."""

    pid: int
    port: int
    output: Path  # what it writes on its standard output


@contextlib.contextmanager
def _pinned(core: int) -> Iterator[None]:
    """A child inherits the affinity that this thread has when it forks."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _environment(directory: Path) -> dict[str, str]:
    """Ours, without what would change a subject's settings, with its state in the directory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return kept | {"XDG_CONFIG_HOME": str(directory), "XDG_DATA_HOME": str(directory)}


def _spawn(
    command: Sequence[str],
    *,
    core: int,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes] | None = None,
    environment: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    with _pinned(core):
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the process to end, then make its whole session."""
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The sandbox's process, listening."""

    pid: int
    port: int


@contextlib.contextmanager
def sandbox(cores: Cores) -> Iterator[Sandbox]:
    """The sandbox's process, on the load's core."""
    process = _spawn(
        [sys.executable, "-m", "bench.sandbox"],
        core=cores.load,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        environment=os.environ,
    )
    try:
        assert process.stdout is not None
        yield Sandbox(process.pid, int(process.stdout.readline()))
    finally:
        _end(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.asynccontextmanager
async def started(
    subject: Subject,
    binary: Path,
    *,
    sandbox_port: int,
    credential: Credential,
    cores: Cores,
    setup: Setup = USUAL,
) -> AsyncIterator[Started]:
    """One subject on the proxy's core, listening. Raises StartError."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        port, admin_port = free_ports(2)
        site = Site(directory, port, admin_port, sandbox_port, credential, setup)
        output = directory / "stdout"
        complaints = directory / "stderr"
        with output.open("ab") as stdout, complaints.open("ab") as stderr:
            process = _spawn(
                subject.command(binary, site),
                core=cores.proxy,
                stdout=stdout,
                stderr=stderr,
                environment=_environment(directory) | dict(subject.environment),
            )
        try:
            await _listening(process, port, complaints)
            yield Started(process.pid, port, output)
        finally:
            await asyncio.to_thread(_end, process)


async def _listening(process: subprocess.Popen[bytes], port: int, complaints: Path) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_TIMEOUT_S
    while loop.time() < deadline:
        if process.poll() is not None:
            break
        try:
            _reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            await writer.wait_closed()
            return
    said = complaints.read_bytes()[-800:].decode(errors="replace").strip()
    if process.returncode is not None:
        raise StartError(f"ended with {process.returncode} before it listened: {said}")
    raise StartError(f"didn't listen within {_START_TIMEOUT_S:.0f} s: {said}")
