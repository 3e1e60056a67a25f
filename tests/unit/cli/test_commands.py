"""Tests of the command line as a user meets it: in a process of its own where that matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import aiohttp
import pytest
from click.testing import CliRunner

import router
from router.cli import commands as cli
from router.settings import Settings
from router.settings.table import FILE_KEYS, GROUPS, TABLE

LEAST = ["--auth", "none", "--discovery", "dns"]
TREE = Path(__file__).parents[2]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Runs commands in an empty environment."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    return CliRunner()


def process(
    *args: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "router", *args],
        cwd=TREE,
        env=dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class App(ModuleType):
    """Stands where router.app stands, and remembers the settings that it was run with."""

    def __init__(self, status: int = 0) -> None:
        super().__init__("router.app")
        self.status = status
        self.ran_with: list[Settings] = []

    def run(self, settings: Settings) -> int:
        self.ran_with.append(settings)
        return self.status


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> App:
    app = App()
    monkeypatch.setitem(sys.modules, "router.app", app)
    monkeypatch.setattr(router, "app", app, raising=False)
    return app


# --- the commands as a whole ---


def test_without_a_command_the_help_is_shown(run: CliRunner) -> None:
    result = run.invoke(cli.main, [])

    assert result.exit_code == 0
    for command in ("serve", "demo", "check-config", "version"):
        assert f"\n  {command} " in result.output


def test_the_module_runs_as_a_program() -> None:
    result = process("-h")

    assert result.returncode == 0
    assert result.stdout.startswith("Usage: sandbox-router [OPTIONS] ")


def test_help_is_quick_because_it_imports_neither_the_data_plane_nor_the_kubernetes_client() -> (
    None
):
    code = (
        "import sys; from router import cli; cli.main(['serve', '--help'], standalone_mode=False); "
        "print([name for name in ('asyncio', 'aiohttp', 'kubernetes_asyncio', 'uvloop', 'httptools') if name in sys.modules])"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], cwd=TREE, env={}, capture_output=True, text=True, check=True
    )

    assert result.stdout.splitlines()[-1] == "[]"


def test_help_says_that_who_may_call_must_be_said(run: CliRunner) -> None:
    words = " ".join(run.invoke(cli.main, ["serve", "--help"]).output.split())

    assert "lets every caller reach every sandbox. [required]" in words
    assert "default: required" not in words


def test_help_lists_every_setting_under_its_group(run: CliRunner) -> None:
    output = run.invoke(cli.main, ["serve", "--help"]).output

    for group, rows in GROUPS.items():
        section = output.split(f"\n{group.capitalize()}:\n")[1].split("\n\n")[0]
        assert all(f"  {row.flag} " in section for row in rows if not row.secret)
    assert "static-token " not in output


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_every_setting_has_a_flag_that_takes_its_text(command: str) -> None:
    options = {
        option.row.key: option
        for option in cli.main.commands[command].params
        if isinstance(option, cli.SettingOption)
    }

    assert set(options) == set(FILE_KEYS)
    assert all(options[key].opts == [TABLE[key].flag] for key in FILE_KEYS)


def test_an_unknown_flag_is_refused_with_the_nearest_one(run: CliRunner) -> None:
    result = run.invoke(cli.main, ["serve", "--proxy-timout", "5s"])

    assert result.exit_code == 2
    assert "--proxy-timeout" in result.stderr


# --- serve ---


def test_serve_runs_the_app_with_the_settings_that_hold(
    run: CliRunner, app: App, tmp_path: Path
) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("workers: 2\nproxy-timeout: 1s\ndefault-port: 1\n")
    environment = {"SANDBOX_ROUTER_PROXY_TIMEOUT": "2s", "SANDBOX_ROUTER_DEFAULT_PORT": "2"}

    result = run.invoke(
        cli.main,
        ["serve", *LEAST, "--config", str(config), "--default-port", "3"],
        env=environment,
    )

    assert result.exit_code == 0, result.output
    (settings,) = app.ran_with
    assert settings.listeners.workers == 2
    assert settings.time.proxy_timeout_s == 2.0
    assert settings.routing.default_port == 3


def test_the_exit_code_of_serve_is_the_one_of_the_app(run: CliRunner, app: App) -> None:
    app.status = 3

    assert run.invoke(cli.main, ["serve", *LEAST]).exit_code == 3


def test_serve_does_not_start_with_a_bad_configuration(run: CliRunner, app: App) -> None:
    result = run.invoke(cli.main, ["serve", "--auth", "jwt", "--proxy-timeout", "5x"])

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "sandbox-router: the settings have 3 problems:\n"
        "  - proxy-timeout = '5x' (flag --proxy-timeout): is not a duration; write 180s, 5m, 1h, 250ms or plain seconds\n"
        "  - auth = jwt (flag --auth): jwt has no keys; set jwt-secret-file, jwks-file or jwks-url\n"
        "  - discovery: must be said outside of a cluster; set discovery to file (with sandboxes-file), kubernetes "
        "(with kubeconfig) or dns\n"
    )
    assert app.ran_with == []


def test_serve_without_anything_says_how_to_begin_and_ends_with_2() -> None:
    result = process("serve")

    assert result.returncode == 2
    assert "to let every caller reach every sandbox, say so: auth: none" in result.stderr


def test_warnings_are_written_and_stop_nothing(run: CliRunner, app: App) -> None:
    result = run.invoke(
        cli.main, ["serve", "--discovery", "dns"], env={"ROUTER_AUTH_TOKEN": "x1y2"}
    )

    assert result.exit_code == 0
    assert result.stderr.startswith(
        "sandbox-router: warning: static-token = (hidden) (environment ROUTER_AUTH_TOKEN): "
    )
    assert "x1y2" not in result.stderr
    assert len(app.ran_with) == 1


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], False),
        (["--preserve-host"], True),
        (["--preserve-host=no"], False),
        (["--preserve-host", "on"], True),
    ],
)
def test_a_switch_may_stand_alone_or_have_a_value(
    args: list[str], expected: bool, run: CliRunner, app: App
) -> None:
    result = run.invoke(cli.main, ["serve", *args, *LEAST])

    assert result.exit_code == 0, result.output
    assert app.ran_with[0].routing.preserve_host is expected


def test_a_click_default_is_never_taken_for_a_flag(run: CliRunner, app: App) -> None:
    run.invoke(cli.main, ["serve", *LEAST], env={"SANDBOX_ROUTER_PRESERVE_HOST": "true"})

    assert app.ran_with[0].routing.preserve_host is True


# --- check-config ---


def test_check_config_shows_every_setting_with_its_origin(run: CliRunner, tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("log-level: debug\n")

    result = run.invoke(
        cli.main,
        ["check-config", *LEAST],
        env={"SANDBOX_ROUTER_CONFIG": str(config), "CLUSTER_DOMAIN": "k8s.example"},
    )

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "auth: [none]  # flag --auth" in lines
    assert "cluster-domain: k8s.example  # environment CLUSTER_DOMAIN" in lines
    assert f"log-level: debug  # file {config}, line 1" in lines
    assert "proxy-timeout: 180s  # default" in lines
    assert result.stderr == ""


def test_check_config_answers_programs_too(run: CliRunner) -> None:
    result = run.invoke(cli.main, ["check-config", *LEAST, "--output", "json"])

    assert result.exit_code == 0
    assert json.loads(result.stdout)["settings"]["auth"] == {
        "value": ["none"],
        "source": "flag",
        "name": "--auth",
    }


def test_check_config_tells_programs_the_problems(run: CliRunner) -> None:
    result = run.invoke(
        cli.main, ["check-config", "--auth", "jwt", "--discovery", "dns", "--output", "json"]
    )

    assert result.exit_code == 2
    assert json.loads(result.stdout) == {
        "problems": [
            "auth = jwt (flag --auth): jwt has no keys; set jwt-secret-file, jwks-file or jwks-url"
        ]
    }


def test_check_config_keeps_its_warnings_apart_from_its_answer(run: CliRunner) -> None:
    result = run.invoke(cli.main, ["check-config", *LEAST, "--namespaces", "a"])

    assert result.exit_code == 0
    assert "warning" not in result.stdout
    assert result.stderr.startswith("sandbox-router: warning: namespaces = a (flag --namespaces): ")


# --- facts about this process ---


def test_a_pod_with_a_service_account_is_in_a_cluster(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    monkeypatch.setattr(cli, "SERVICE_ACCOUNT_TOKEN", token)
    command = ["check-config", "--auth", "none"]
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}

    assert run.invoke(cli.main, command, env=pod).exit_code == 2
    token.write_text("token")
    assert run.invoke(cli.main, command).exit_code == 2
    result = run.invoke(cli.main, command, env=pod)

    assert result.exit_code == 0
    assert "discovery: kubernetes  # default" in result.stdout


@pytest.mark.parametrize(
    ("quota", "affinity", "expected"),
    [
        ("max 100000", 8, 8),
        ("200000 100000", 8, 2),
        ("50000 100000", 8, 1),
        ("900000 100000", 4, 4),
        ("junk", 3, 3),
        (None, 3, 3),
    ],
)
def test_the_usable_cores_are_what_the_container_may_use(
    quota: str | None, affinity: int, expected: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(f"{quota}\n")
    monkeypatch.setattr(cli, "CPU_QUOTA", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(affinity)))

    assert cli.usable_cores() == expected


# --- demo and version ---


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], (False, None, False)),
        (["--once"], (True, None, False)),
        (["--once", "--port", "0"], (True, 0, False)),
        (["--sleep"], (False, None, True)),
    ],
)
def test_demo_hands_its_options_on_and_ends_with_its_status(
    args: list[str],
    expected: tuple[bool, int | None, bool],
    run: CliRunner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[bool, int | None, bool]] = []

    def demonstrate(*, once: bool, http_port: int | None, sleeps: bool) -> int:
        calls.append((once, http_port, sleeps))
        return 4

    monkeypatch.setattr("router.demo.run", demonstrate)

    assert run.invoke(cli.main, ["demo", *args]).exit_code == 4
    assert calls == [expected]


def test_a_port_of_the_demo_is_a_port(run: CliRunner) -> None:
    assert run.invoke(cli.main, ["demo", "--port", "65536"]).exit_code == 2


def test_version_says_which_form_of_the_code_runs_and_why() -> None:
    lines = process("version", environment={"SANDBOX_ROUTER_FORM": "pure"}).stdout.splitlines()

    assert lines[1] == "pure Python form (SANDBOX_ROUTER_FORM is pure)"


def test_a_form_that_does_not_exist_is_refused_in_one_line() -> None:
    done = process("serve", environment={"SANDBOX_ROUTER_FORM": "fast"})

    assert done.returncode == 2
    assert done.stderr == (
        "sandbox-router: SANDBOX_ROUTER_FORM is 'fast'; it may be auto, pure, compiled\n"
    )


def test_version_names_the_router_python_and_the_libraries() -> None:
    lines = process("version").stdout.splitlines()

    assert lines[0].startswith("sandbox-router ")
    assert f" {sys.version_info.major}.{sys.version_info.minor}." in lines[2]
    assert f"aiohttp {aiohttp.__version__}" in lines
    assert [line.split()[0] for line in lines[3:]] == list(cli.KEY_LIBRARIES)
    assert not any("(not installed)" in line for line in lines)
