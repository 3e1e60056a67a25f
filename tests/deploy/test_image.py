"""Tests that the image is built from what is there, hardened as its pods are; and, as far as that goes without a
container engine, that its steps work: the wheel is built, installed into an empty prefix, and run."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import tomllib
import urllib.request
import venv
import zipfile
from email import message_from_bytes
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.deploy.fronts import free_port
from tests.deploy.rendering import DEPLOY, ROOT, TOKEN_REVIEW, chart

DOCKERFILE = DEPLOY / "Dockerfile"
ENTRY_POINT = "/opt/sandbox-router/bin/sandbox-router"


def instructions():
    """Returns (instruction, rest) of each line, continuation lines joined and comments left out."""
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE.read_text()).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def all_of(name, lines=None):
    return [rest for instruction, rest in lines or instructions() if instruction == name]


def last_stage():
    lines = instructions()
    start = max(index for index, (instruction, _) in enumerate(lines) if instruction == "FROM")
    return lines[start:]


# --- what it says ---------------------------------------------------------------------------


def test_it_has_two_stages_of_one_pinned_base():
    (base,) = [rest for rest in all_of("ARG") if rest.startswith("PYTHON_IMAGE=")]

    assert [rest.split()[0] for rest in all_of("FROM")] == ["${PYTHON_IMAGE}"] * 2
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+-slim-\w+", base)


def test_it_runs_without_root_and_as_the_user_of_the_pods():
    context = chart(TOKEN_REVIEW).pod()["securityContext"]

    assert all_of("USER", last_stage()) == [f"{context['runAsUser']}:{context['runAsGroup']}"]


def test_the_last_stage_runs_no_command_and_needs_no_shell():
    lines = last_stage()

    assert all_of("RUN", lines) == []
    for name in ("ENTRYPOINT", "CMD"):
        (form,) = all_of(name, lines)
        assert isinstance(json.loads(form), list)
    (check,) = all_of("HEALTHCHECK", lines)
    assert json.loads(check.partition("CMD ")[2])[:2] == ["/opt/sandbox-router/bin/python", "-c"]


def test_every_command_of_the_build_is_said_without_a_shell():
    for form in all_of("RUN"):
        assert isinstance(json.loads(form), list)


def test_it_starts_the_router_and_opens_its_ports():
    ports = [str(port["containerPort"]) for port in chart(TOKEN_REVIEW).container()["ports"]]

    assert json.loads(all_of("ENTRYPOINT")[0]) == ["env", "--block-signal=TERM", ENTRY_POINT]
    assert json.loads(all_of("CMD")[0]) == chart(TOKEN_REVIEW).container()["args"][:1]
    assert set(ports) | {"8443"} == set(all_of("EXPOSE")[0].split())


def test_it_copies_files_that_exist_and_reach_the_builder():
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    let_through = [line[1:] for line in ignore if line.startswith("!")]
    copied = [
        word
        for rest in all_of("COPY")
        if not rest.startswith("--from")
        for word in rest.split()[:-1]
    ]

    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert name in let_through
    assert "*" in ignore


def test_it_leaves_behind_exactly_what_only_builds():
    lock = (ROOT / "requirements-runtime.lock").read_text()
    (uninstall,) = [json.loads(rest) for rest in all_of("RUN") if '"uninstall"' in rest]
    left = set(uninstall[uninstall.index("--yes") + 1 :]) - {"pip"}
    wanted_by = {}
    for entry in re.split(r"\n(?=[a-z])", lock):
        comments = [line.partition("#")[2].strip() for line in entry.splitlines()[1:]]
        wanted_by[entry.partition("==")[0]] = {
            comment.removeprefix("via").strip()
            for comment in comments
            if comment not in ("", "via") and not comment.startswith("-c ")
        }
    build_only = set()
    while more := {
        name
        for name, wanting in wanted_by.items()
        if name not in build_only
        and wanting
        and all("build-system" in who or who in build_only for who in wanting)
    }:
        build_only |= more

    assert left == build_only


# --- what it does ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built by the Dockerfile's own command."""
    (command,) = [json.loads(rest) for rest in all_of("RUN") if '"wheel"' in rest]
    folder = tmp_path_factory.mktemp("dist")
    command[command.index("/dist")] = str(folder)
    run([sys.executable, *command[1:]], cwd=ROOT)
    (built,) = folder.glob("sandbox_router-*.whl")
    return built


@pytest.fixture(scope="module")
def program(wheel, tmp_path_factory):
    """The router's command, installed without network into an environment that has nothing but its dependencies."""
    prefix = tmp_path_factory.mktemp("prefix")
    venv.create(prefix, with_pip=False, symlinks=True)
    python = prefix / "bin" / "python"
    (command,) = [json.loads(rest) for rest in all_of("RUN") if '"--find-links"' in rest]
    command[command.index("/dist")] = str(wheel.parent)
    where = command.index("install")
    run([sys.executable, "-m", "pip", "--python", str(python), *command[where:]], cwd=prefix)
    (site,) = prefix.glob("lib/python3.*/site-packages")
    # The dependencies stand where the tests have theirs; their .pth files (the source tree) are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return prefix / "bin" / "sandbox-router"


def run(command, **more):
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PIP_NO_CACHE_DIR": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=110, env=environment, **more
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    tracked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "router").rglob("*")
        if path.is_file() and not fnmatch(str(path), "*__pycache__*")
    }

    compiled = {name for name in tracked if name.startswith("router/_compiled/")}

    assert {
        name for name in packed if not name.startswith("router/_compiled/")
    } == tracked - compiled
    assert packed - tracked == set()


def test_the_wheel_asks_for_the_dependencies_that_the_lock_has(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        asked = message_from_bytes(archive.read(name)).get_all("Requires-Dist")
    locked = (ROOT / "requirements-runtime.lock").read_text()

    for requirement in asked:
        if "extra ==" not in requirement or "otel" in requirement:
            project = re.match(r"[A-Za-z0-9-]+", requirement)[0]
            assert f"\n{project}==" in locked, requirement


def test_the_chart_and_the_manifests_name_the_version_of_the_wheel(wheel):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    image = chart(TOKEN_REVIEW).container()["image"]

    assert wheel.name.startswith(f"sandbox_router-{version}-")
    assert image == f"sandbox-router:{version}"


def test_the_installed_program_runs_from_its_prefix_alone(program, tmp_path):
    where = run(
        [program.parent / "python", "-c", "import router; print(router.__file__)"], cwd=tmp_path
    )

    assert Path(where.strip()).is_relative_to(program.parent.parent)
    assert run([program, "version"], cwd=tmp_path).startswith("sandbox-router ")


def test_the_programs_check_takes_the_settings_of_chart_and_manifests(program, tmp_path):
    for text in (
        chart(TOKEN_REVIEW).one("ConfigMap", "sandbox-router")["data"]["config.yaml"],
        (DEPLOY / "base" / "config.yaml").read_text(),
        (DEPLOY / "overlays" / "kind" / "config.yaml").read_text(),
    ):
        file = tmp_path / "config.yaml"
        file.write_text(text)
        shown = json.loads(
            run([program, "check-config", "--config", str(file), "--output", "json"])
        )
        assert "problems" not in shown


@pytest.fixture
def served(program, tmp_path):
    """The installed router, serving a file's sandboxes; yields (process, proxy port, admin port)."""
    ports = free_port(), free_port()
    sandboxes = tmp_path / "sandboxes.yaml"
    sandboxes.write_text("sandboxes: [{name: box-a, host: 127.0.0.1}]\n")
    command = [program, "serve", "--auth", "none", "--discovery", "file"]
    command += ["--sandboxes-file", sandboxes, "--drain-delay", "0"]
    command += ["--http-bind", f"127.0.0.1:{ports[0]}", "--admin-bind", f"127.0.0.1:{ports[1]}"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path)
    try:
        yield process, *ports
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(20)


def get(url):
    with urllib.request.urlopen(url, timeout=5) as response:
        return response.status, json.loads(response.read())


def wait_for(url, within_s=30.0):
    deadline = time.monotonic() + within_s
    while True:
        try:
            return get(url)
        except (OSError, urllib.error.HTTPError):
            assert time.monotonic() < deadline, url
            time.sleep(0.1)


def test_the_installed_router_answers_the_probes_of_its_pods_and_leaves_in_time(served):
    process, http_port, admin_port = served
    container = chart(TOKEN_REVIEW).container()

    wait_for(f"http://127.0.0.1:{admin_port}{container['readinessProbe']['httpGet']['path']}")
    alive = get(f"http://127.0.0.1:{admin_port}{container['livenessProbe']['httpGet']['path']}")
    balancer = get(f"http://127.0.0.1:{http_port}/healthz")
    process.send_signal(signal.SIGTERM)

    assert alive == balancer == (200, {"status": "ok"})
    assert process.wait(30) == 0
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", http_port)):
        pass


def test_the_health_check_of_the_image_tells_living_from_dead(served):
    process, _, admin_port = served
    (check,) = all_of("HEALTHCHECK")
    _, flag, code = json.loads(check.partition("CMD ")[2])
    command = [sys.executable, flag, code.replace("9090", str(admin_port))]
    wait_for(f"http://127.0.0.1:{admin_port}/healthz")

    living = subprocess.run(command, capture_output=True, timeout=30, check=False).returncode
    process.kill()
    process.wait(20)
    dead = subprocess.run(command, capture_output=True, timeout=30, check=False).returncode

    assert (living, dead) == (0, 1)


def test_a_signal_that_comes_while_python_starts_is_held_back_and_not_lost():
    """What the image's entry point does, for a process that isn't the first of its container."""
    started = subprocess.Popen(
        [
            "env",
            "--block-signal=TERM",
            sys.executable,
            "-m",
            "router",
            "check-config",
            "--auth",
            "none",
        ]
    )
    started.terminate()
    assert started.wait(timeout=60) == -signal.SIGTERM
