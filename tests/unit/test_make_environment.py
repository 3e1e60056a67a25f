""".ci/venv: what a fresh clone says when the machine lacks something."""

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
