"""`sandbox-router connect`: a command of its own process, through a real router, with real programs at both ends."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.integration.serve import TOKEN, Served, served

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
COMMAND = [sys.executable, "-m", "router", "connect"]
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
REDIS = shutil.which("redis-server")
MIB = 2**20


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path, "box", connect="true") as router:
        yield router


@contextlib.asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[int]:
    """A TCP server in a sandbox; returns its port."""

    async def serving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    listening = await asyncio.start_server(serving, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


async def sums(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with the digest of everything, once the client has said its end."""
    digest = hashlib.sha256()
    while data := await reader.read(65_536):
        digest.update(data)
    writer.write(digest.digest())
    await writer.drain()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


def environment(router: Served, token: str = TOKEN) -> dict[str, str]:
    url = f"http://127.0.0.1:{router.address[1]}"
    return {**os.environ, "SANDBOX_URL": url, "SANDBOX_TOKEN": token}


@contextlib.asynccontextmanager
async def listening(router: Served, *ports: str) -> AsyncIterator[list[int]]:
    """The command, listening; returns its ports of this machine."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "box",
        *ports,
        env=environment(router),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            lines = [(await process.stdout.readline()).decode() for _ in ports]
        assert all(line.startswith("127.0.0.1:") for line in lines), lines
        yield [int(line.split()[0].rpartition(":")[2]) for line in lines]
    finally:
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
        assert process.returncode == 130, said
        assert b"Traceback" not in said, said


async def stdio(
    router: Served, port: int, given: bytes = b"", *, token: str = TOKEN
) -> tuple[int, bytes, str]:
    """Returns exit code, standard output and standard error of the command with --stdio."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "--stdio",
        "default/box",
        str(port),
        env=environment(router, token),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, said = await process.communicate(given)
    assert process.returncode is not None
    return process.returncode, out, said.decode()


# --- bytes ----------------------------------------------------------------------------------


async def test_several_ports_of_this_machine_lead_to_the_sandboxs(router: Served) -> None:
    async with (
        server(echo) as one,
        server(sums) as other,
        listening(router, f"0:{one}", f"0:{other}") as (first, second),
    ):
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", first)
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", second)
        data = os.urandom(20 * MIB)
        writer.write(data)
        writer.write_eof()
        assert await reader.read() == hashlib.sha256(data).digest()
        writer.close()


async def test_standard_input_and_output_are_the_connection_to_their_ends(router: Served) -> None:
    data = os.urandom(5 * MIB)
    async with server(sums) as port:
        assert await stdio(router, port, data) == (0, hashlib.sha256(data).digest(), "")


async def test_files_may_stand_in_for_standard_input_and_output(
    router: Served, tmp_path: Path
) -> None:
    data = os.urandom(3 * MIB)
    (tmp_path / "in").write_bytes(data)
    async with server(echo) as port:
        with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                "--stdio",
                "box",
                str(port),
                env=environment(router),
                stdin=given,
                stdout=out,
            )
            async with asyncio.timeout(60):
                assert await process.wait() == 0
    assert (tmp_path / "out").read_bytes() == data


# --- ends -----------------------------------------------------------------------------------


async def test_a_reset_at_either_end_is_one_at_the_other(router: Served) -> None:
    ended: list[str] = []

    async def notes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1) == b"r":
            reset(writer)
            return
        try:
            await reader.read()
            ended.append("end")
        except ConnectionResetError:
            ended.append("reset")

    async with server(notes) as port, listening(router, f"0:{port}") as (local,):
        reader, writer = await asyncio.open_connection("127.0.0.1", local)
        writer.write(b"r")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        _, writer = await asyncio.open_connection("127.0.0.1", local)
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.3)
        reset(writer)
        async with asyncio.timeout(10):
            while not ended:
                await asyncio.sleep(0.01)
    assert ended == ["reset"]


def reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    writer.transport.abort()


# --- what is said when it can't -------------------------------------------------------------


async def test_a_wrong_token_is_told_in_words_and_not_repeated(router: Served) -> None:
    code, out, said = await stdio(router, 22, token="wrong-token-wrong-token")
    assert (code, out) == (1, b"")
    assert "401 unauthenticated" in said
    assert "wrong-token" not in said


async def test_a_port_that_nobody_listens_on_is_told_with_the_likely_cause(router: Served) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        code, _, said = await stdio(router, closed.getsockname()[1])
    assert code == 1
    assert "502 sandbox_unreachable" in said
    assert "0.0.0.0" in said


async def test_a_failed_connection_ends_alone_and_the_next_one_is_made_anew(router: Served) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        async with listening(router, f"0:{port}") as (local,):
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()
            held.close()
            late = await asyncio.start_server(lambda r, w: w.write(b"here"), "127.0.0.1", port)
            async with late:
                reader, writer = await asyncio.open_connection("127.0.0.1", local)
                assert await reader.readexactly(4) == b"here"
                writer.close()


# --- programs -------------------------------------------------------------------------------


def quiet(*command: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, **more  # type: ignore[call-overload]
    )  # fmt: skip


@contextlib.asynccontextmanager
async def ssh_server(directory: Path) -> AsyncIterator[tuple[int, list[str]]]:
    """Debian's sshd in a sandbox; returns its port, and the options that ssh needs to trust it and be trusted."""
    assert SSHD is not None
    for name in ("host", "user"):
        made = quiet("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name))
        assert made.returncode == 0, made.stderr
    shutil.copy(directory / "user.pub", directory / "authorized")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    Path("/run/sshd").mkdir(exist_ok=True)
    config = directory / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {directory}/host\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {directory}/authorized\nPidFile none\nPermitRootLogin yes\n"
        "Subsystem sftp internal-sftp\n"
    )
    process = await asyncio.create_subprocess_exec(
        SSHD, "-D", "-e", "-f", str(config), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(30):
        assert b"listening" in await process.stderr.readline()
    known = (directory / "host.pub").read_text().split()[:2]
    (directory / "known").write_text(f"[box]:{port} {' '.join(known)}\n")
    proxy = " ".join([*COMMAND, "--stdio", "%h", "%p"])
    options = ["-o", f"ProxyCommand={proxy}", "-o", f"UserKnownHostsFile={directory}/known"]
    options += [
        "-o",
        f"IdentityFile={directory}/user",
        "-o",
        "IdentitiesOnly=yes",
        "-o",
        "BatchMode=yes",
    ]
    try:
        yield port, options
    finally:
        process.terminate()
        await process.communicate()


@pytest.mark.skipif(SSHD is None or os.geteuid() != 0, reason="needs sshd, which needs root here")
async def test_ssh_scp_and_git_work_through_proxy_command(router: Served, tmp_path: Path) -> None:
    async with ssh_server(tmp_path) as (port, options):
        env, at = environment(router), f"{getpass.getuser()}@box"
        run = asyncio.to_thread
        said = await run(quiet, "ssh", *options, "-p", str(port), at, "echo from $((6*7))", env=env)
        assert said.stdout == "from 42\n", said.stderr

        data = os.urandom(8 * MIB)
        (tmp_path / "data").write_bytes(data)
        there = f"{at}:{tmp_path}/there"
        copied = await run(
            quiet, "scp", *options, "-P", str(port), str(tmp_path / "data"), there, env=env
        )
        assert copied.returncode == 0, copied.stderr
        assert (tmp_path / "there").read_bytes() == data

        origin, clone = tmp_path / "origin", tmp_path / "clone"
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(origin))
        quiet("git", "init", "-q", str(origin))
        quiet("git", *who, "commit", "-q", "--allow-empty", "-m", "the first")
        command = " ".join(["ssh", *(f"'{option}'" for option in options), "-p", str(port)])
        cloned = await run(
            quiet, "git", "clone", "-q", f"{at}:{origin}", str(clone),
            env={**env, "GIT_SSH_COMMAND": command},
        )  # fmt: skip
        assert cloned.returncode == 0, cloned.stderr
        assert "the first" in quiet("git", "-C", str(clone), "log").stdout


@pytest.mark.skipif(REDIS is None, reason="needs redis-server")
async def test_redis_cli_works_through_a_port_of_this_machine(
    router: Served, tmp_path: Path
) -> None:
    assert REDIS is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    redis = await asyncio.create_subprocess_exec(
        REDIS, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert redis.stdout is not None
    try:
        async with asyncio.timeout(30):
            while b"Ready to accept" not in await redis.stdout.readline():
                pass
        async with listening(router, f"0:{port}") as (local,):
            cli = ("redis-cli", "-p", str(local))
            assert (await asyncio.to_thread(quiet, *cli, "set", "k", "v" * 1000)).stdout == "OK\n"
            assert (await asyncio.to_thread(quiet, *cli, "get", "k")).stdout.strip() == "v" * 1000
    finally:
        redis.terminate()
        await redis.communicate()
