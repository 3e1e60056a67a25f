""".ci/venv and .ci/install: what a fresh clone says while it is set up, and when the machine lacks something."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "venv"


def python_that(folder: Path, *, fails_on: str) -> Path:
    """Returns a Python that can do everything but what the text names."""
    wrapper = folder / "python"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *{fails_on}*) exit 1;; esac\nexec "{sys.executable}" "$@"\n'
    )
    wrapper.chmod(0o755)
    return wrapper


def make_venv(venv: Path, *pythons: str | Path) -> subprocess.CompletedProcess[str]:
    command = [SCRIPT, venv, *pythons]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


def test_an_old_python_is_refused_with_what_to_do(tmp_path):
    ended = make_venv(tmp_path / "venv", python_that(tmp_path, fails_on="version_info"))
    assert ended.returncode == 1
    assert ended.stderr.startswith("Python 3.11 or newer is needed; tried: ")
    assert "make PYTHON=" in ended.stderr


def test_no_python_at_all_is_told_the_same_way(tmp_path):
    ended = make_venv(tmp_path / "venv", "no-such-python", "nor-this-one")
    assert ended.returncode == 1
    assert "tried: no-such-python nor-this-one." in ended.stderr


def test_a_python_without_ensurepip_is_told_with_what_to_install(tmp_path):
    ended = make_venv(tmp_path / "venv", python_that(tmp_path, fails_on="ensurepip"))
    assert ended.returncode == 1
    assert "apt-get install python3-venv" in ended.stderr
    assert not (tmp_path / "venv").exists()


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    old = python_that(folder, fails_on="version_info")
    ended = make_venv(folder / "venv", "no-such-python", old, sys.executable)
    assert ended.returncode == 0, ended.stderr
    return folder / "venv"


def test_the_first_python_that_is_new_enough_makes_the_environment(venv):
    assert (venv / "bin" / "pip").exists()


def test_an_environment_that_works_is_kept(venv):
    (venv / "kept").touch()
    assert make_venv(venv, "no-such-python").returncode == 0
    assert (venv / "kept").exists()


def test_an_environment_whose_python_is_gone_is_made_anew(venv):
    (venv / "bin" / "python").unlink()
    assert make_venv(venv, sys.executable).returncode == 0
    assert (venv / "bin" / "python").exists()


# --- installing ------------------------------------------------------------------------------

LOCK = """\
#
# made by a program
#
aiohttp==3.14.4 \\
    --hash=sha256:00
    # via router
uvloop==0.21.0 \\
    --hash=sha256:01
"""


def install(folder: Path, pip: str) -> subprocess.CompletedProcess[str]:
    """Runs .ci/install with a stand-in for pip."""
    (folder / "venv" / "bin").mkdir(parents=True)
    python = folder / "venv" / "bin" / "python"
    python.write_text(f"#!/bin/sh\n{pip}\n")
    python.chmod(0o755)
    (folder / "some.lock").write_text(LOCK)
    command = [SCRIPT.with_name("install"), "venv", "some.lock"]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=100
    )


def test_installing_says_what_it_does_and_how_far_it_is(tmp_path):
    ended = install(
        tmp_path,
        "echo 'Collecting aiohttp==3.14.4 (from -r some.lock (line 4))'\n"
        "echo '  Downloading aiohttp.whl (1.7 MB)'\n"
        "echo 'Collecting uvloop==0.21.0 (from -r some.lock (line 7))'\n"
        "echo 'Installing collected packages: uvloop, aiohttp'\n"
        "echo 'Successfully installed'",
    )

    assert ended.returncode == 0
    first, *steps = ended.stdout.splitlines()
    assert first.startswith("Installing the 2 packages of some.lock into venv: ")
    assert steps == [
        "  1 of 2: aiohttp==3.14.4",
        "  2 of 2: uvloop==0.21.0",
        "  putting them in place",
    ]


def test_an_installation_that_fails_ends_so_and_shows_why(tmp_path):
    ended = install(
        tmp_path,
        "echo 'Collecting aiohttp==3.14.4 (from -r some.lock (line 4))'\n"
        "echo 'ERROR: hashes do not match' >&2\nexit 3",
    )

    assert ended.returncode == 3
    assert ended.stdout.splitlines()[-3:] == [
        "pip could not install them. Its last words:",
        "  | Collecting aiohttp==3.14.4 (from -r some.lock (line 4))",
        "  | ERROR: hashes do not match",
    ]
