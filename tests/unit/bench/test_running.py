"""Starting and ending subjects."""

from __future__ import annotations

import asyncio
import os
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.credentials import Credential
from bench.running import Cores, StartError, free_ports, sandbox, started
from bench.subjects import Site, Subject

CORES = Cores.found()


def subject(command: Callable[[Path, Site], list[str]]) -> Subject:
    own = {"SANDBOX_ROUTER_FORM": "pure"}
    return Subject("fake", "Fake", "", lambda: None, command, "--version", environment=own)


async def start(command: Callable[[Path, Site], list[str]]) -> tuple[int, set[int], list[str]]:
    async with started(
        subject(command),
        Path(sys.executable),
        sandbox_port=1,
        credential=Credential("t", "s"),
        cores=CORES,
    ) as running:
        environment = Path(f"/proc/{running.pid}/environ").read_text().split("\0")
        return running.pid, os.sched_getaffinity(running.pid), environment


def serve(binary: Path, site: Site) -> list[str]:
    return [str(binary), "-m", "http.server", "--bind", "127.0.0.1", str(site.port)]


async def test_a_subject_runs_on_its_core_and_is_gone_afterwards() -> None:
    own = os.sched_getaffinity(0)

    pid, affinity, _environment = await start(serve)

    assert affinity == {CORES.proxy}
    assert os.sched_getaffinity(0) == own
    assert not Path(f"/proc/{pid}").exists()


async def test_our_settings_in_the_environment_change_no_subject(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SANDBOX_ROUTER_LOG_LEVEL", "debug")
    monkeypatch.setenv("GOGC", "off")

    _pid, _affinity, environment = await start(serve)

    foreign = [each for each in environment if each.startswith(("SANDBOX_ROUTER_", "GOGC"))]
    assert foreign == ["SANDBOX_ROUTER_FORM=pure"]


async def test_a_subject_that_ends_at_once_says_why() -> None:
    with pytest.raises(StartError, match="ended with 3 before it listened: no such port"):
        await start(
            lambda binary, _site: [
                str(binary),
                "-c",
                "import sys; print('no such port', file=sys.stderr); sys.exit(3)",
            ]
        )


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20


async def test_the_sandbox_serves_until_it_is_left() -> None:
    def ask(port: int) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/items/1", timeout=10) as answer:
            return int(answer.status)

    with sandbox(CORES) as running:
        assert await asyncio.to_thread(ask, running.port) == 200
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", running.port)
