"""The whole program, as a real process: how it starts, what it says, and how it ends."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.app.conftest import MakeSettings

run_module = importlib.import_module("router.app.run")  # the package has a function of that name
ROOT = Path(__file__).parents[3]


class Program:
    """A router that was started as a user starts it."""

    def __init__(
        self, sandboxes_file: Path, *, prefix: Sequence[str] = (), **settings: object
    ) -> None:
        flags = {
            "http-bind": "127.0.0.1:0",
            "admin-bind": "127.0.0.1:0",
            "auth": "none",
            "discovery": "file",
            "sandboxes-file": sandboxes_file,
            "drain-delay": 0,
            "shutdown-timeout": 1,
            "access-log": "false",
        }
        flags |= {name.replace("_", "-"): value for name, value in settings.items()}
        arguments = [f"--{name}={value}" for name, value in flags.items()]
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "router", "serve", *arguments],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[dict[str, Any]] = []

    def line(self, message: str) -> dict[str, Any]:
        """Returns the next line of the log that says this."""
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self.lines.append(json.loads(text))
            if self.lines[-1]["message"] == message:
                return self.lines[-1]
        raise AssertionError(f"{message!r} was never said, but {self.lines}")

    def until_ready(self) -> None:
        (admin,) = self.lines[-1]["admin"]
        while get(admin, "/readyz")[0] != 200:
            time.sleep(0.05)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Returns the exit code after this signal."""
        self.process.send_signal(number)
        return self.code()

    def code(self) -> int:
        _, rest = self.process.communicate(timeout=60)
        self.lines += [json.loads(line) for line in rest.splitlines()]
        return self.process.returncode


@contextlib.contextmanager
def started(sandboxes_file: Path, **settings: Any) -> Iterator[Program]:
    program = Program(sandboxes_file, **settings)
    try:
        yield program
    finally:
        if program.process.poll() is None:
            program.process.kill()
        program.process.communicate()


def get(address: str, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_it_says_where_it_listens_is_ready_and_ends_by_sigterm(sandboxes_file: Path) -> None:
    with started(sandboxes_file) as program:
        line = program.line("listening")
        ((http,), (admin,)) = line["http"], line["admin"]
        assert line["https"] == []
        assert (line["form"], line["why_pure"]) == ("pure", "SANDBOX_ROUTER_FORM is pure")
        assert get(http, "/healthz") == (200, b'{"status":"ok"}')
        assert get(admin, "/readyz")[0] == 200
        assert b"sandbox_router_build_info" in get(admin, "/metrics")[1]
        assert b"box-a" in get(admin, "/debug/sandboxes")[1]
        assert program.end() == 0
    assert "auth is none: whoever reaches this port reaches every sandbox" in [
        line["message"] for line in program.lines if line["level"] == "warning"
    ]
    assert not [line for line in program.lines if line["level"] in ("error", "critical")]


def test_several_workers_have_one_admin_port(sandboxes_file: Path) -> None:
    with started(sandboxes_file, workers=2) as program:
        line = program.line("starting workers")
        (http,), (admin,) = line["listening"], line["admin"]
        status, body = get(admin, "/readyz")
        while status != 200:
            assert b"worker" in body
            time.sleep(0.05)
            status, body = get(admin, "/readyz")
        assert get(http, "/healthz")[0] == 200
        assert b"box-a" in get(admin, "/debug/sandboxes")[1]
        assert program.end(signal.SIGINT) == 0


@pytest.mark.parametrize("setting", ["http-bind", "admin-bind"])
def test_a_port_in_use_is_told_with_its_setting_and_the_exit_code_is_1(
    sandboxes_file: Path, setting: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with started(sandboxes_file, **{setting: address}) as program:
            assert program.code() == 1
    (line,) = [line for line in program.lines if line["level"] == "critical"]
    assert line["message"] == "cannot go on"
    assert line["reason"].startswith(f"{setting}: cannot listen on {address}: ")


def test_a_file_that_cannot_be_used_is_told_and_the_exit_code_is_1(sandboxes_file: Path) -> None:
    sandboxes_file.write_text("sandboxes: [{name: BOX}]")
    with started(sandboxes_file) as program:
        assert program.code() == 1
    (line,) = [line for line in program.lines if line["level"] == "critical"]
    assert str(sandboxes_file) in line["reason"]


def test_a_start_that_fails_leaves_no_socket_open(
    make_settings: MakeSettings, sandboxes_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: what it leaves open would warn, which is an error here."""
    sandboxes_file.write_text("sandboxes: [{name: BOX}]")
    monkeypatch.setattr(run_module, "configure", lambda **options: None)
    monkeypatch.setattr(run_module, "_within_descriptors", lambda settings: settings)
    monkeypatch.setattr(run_module.signal, "signal", lambda number, handler: None)
    bound: list[socket.socket] = []
    bind = run_module.bind

    def noted(*args: Any, **options: Any) -> list[socket.socket]:
        bound.extend(bind(*args, **options))
        return bound[-1:]

    monkeypatch.setattr(run_module, "bind", noted)
    assert run_module.run(make_settings(admin_bind="127.0.0.1:0")) == 1
    assert len(bound) == 2
    assert [sock.fileno() for sock in bound] == [-1, -1]


def test_a_waker_of_its_own_is_refused_where_workers_would_not_have_it(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Idle:
        async def wake(self, endpoint: object) -> bool:
            return False

    monkeypatch.setattr(run_module, "configure", lambda **options: None)
    monkeypatch.setattr(run_module, "_within_descriptors", lambda settings: settings)
    monkeypatch.setattr(run_module.signal, "signal", lambda number, handler: None)
    assert run_module.run(make_settings(workers=2), waker=Idle()) == 1
    assert "set workers to 1" in str(vars(caplog.records[-1])["fields"])


def test_a_second_signal_ends_a_long_drain_at_once(sandboxes_file: Path) -> None:
    with started(sandboxes_file, drain_delay=60) as program:
        program.line("listening")
        program.process.send_signal(signal.SIGTERM)
        program.line("draining")
        assert program.end() == 0
    assert "asked again to stop: ending at once" in [line["message"] for line in program.lines]


def test_more_connections_than_there_are_descriptors_for_are_never_taken(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module.descriptors, "raise_limit", lambda: 456)
    settings = run_module._within_descriptors(make_settings(max_connections=5000))
    assert settings.limits.max_connections == 100


@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_reads_the_files_again_and_ends_nothing(
    sandboxes_file: Path, tmp_path: Path, workers: int
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: []\n")
    with started(sandboxes_file, policy_file=policy, workers=workers) as program:
        program.line("listening" if workers == 1 else "starting workers")
        program.until_ready()
        policy.write_text("rules: [nonsense]\n")
        program.process.send_signal(signal.SIGHUP)
        for _ in range(workers):
            line = program.line("files read again because it was asked for")
            assert line["failed"] == ["policy"]
        assert program.end() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_during_the_start_is_never_lost(sandboxes_file: Path, workers: int) -> None:
    with started(sandboxes_file, workers=workers, max_connections=10) as program:
        program.line("open files allow max-connections")
        assert program.end() in (0, -signal.SIGTERM)  # its handlers come with the event loop


def test_process_1_hears_a_signal_during_its_start(sandboxes_file: Path) -> None:
    prefix = ("unshare", "--pid", "--fork", "--kill-child")
    try:
        subprocess.run([*prefix, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no PID namespace may be made here")
    with started(sandboxes_file, prefix=prefix, max_connections=10) as program:
        program.line("open files allow max-connections")
        children = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children")
        os.kill(int(children.read_text().split()[0]), signal.SIGTERM)
        assert program.code() in (0, 128 + signal.SIGTERM)
