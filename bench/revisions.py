"""Older revisions of the router, each built once and kept beside the results, to be measured next to today's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
_KEPT = Path(__file__).resolve().parent / ".revisions"
PREFIX = "router@"


class RevisionError(Exception):
    """A revision can't be had; the text says why."""


def _run(*command: str, stdin: bytes | None = None) -> bytes:
    done = subprocess.run(command, cwd=PROJECT, input=stdin, capture_output=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout)[-800:].decode(errors="replace").strip()
        raise RevisionError(f"{' '.join(command[:3])}: {said}")
    return done.stdout


def commit_of(revision: str) -> str:
    """Returns the whole name of a commit. Raises RevisionError."""
    name = _run("git", "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    return name.decode().strip()


def installed(revision: str, *, kept: Path = _KEPT) -> Path:
    """Returns a directory to import that revision's router from, in the form that its own build makes here."""
    commit = commit_of(revision)
    target = kept / commit[:12]
    if target.is_dir():
        return target
    kept.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept) as name:
        source, built = Path(name, "source"), Path(name, "built")
        source.mkdir()
        _run("tar", "-x", "-C", str(source), stdin=_run("git", "archive", commit))
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _run(*pip, "--no-deps", "--no-build-isolation", "--target", str(built), str(source))
        shutil.move(built, target)
    return target


def environment(code: Path | None) -> dict[str, str]:
    """Returns what makes a Python import the router from `code` (None: this tree), and the harness from here."""
    paths = [str(PROJECT)] if code is None else [str(code), str(PROJECT)]
    return {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
