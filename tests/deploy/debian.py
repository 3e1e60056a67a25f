"""Takes one file out of a Debian package: nothing is installed, nobody has to be root, no list has to be there."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

TIMEOUT_S = 90.0
"""Below a test's own limit, so that what went wrong is told."""


class NotToBeHadError(Exception):
    """No package could be had; the message says why."""


def file_of(packages: Sequence[str], member: str, *, lists: Path) -> bytes:
    """Returns the file `member` of the first of these packages that has it (their contents differ by release).

    `lists` is a folder for lists of packages of our own, used when the machine's are missing or old. One caller at a time.
    """
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise NotToBeHadError(f"{packages[0]} is a Debian package, and here is no {program}")
    with contextlib.suppress(NotToBeHadError):
        return _first_file(packages, member, ["apt-get"])
    apt_get = ["apt-get", *_own_lists(lists)]
    try:
        run([*apt_get, "-qq", "update"])
        bad_source = ""
    except NotToBeHadError as error:
        # One bad source fails the whole update; the lists of the others are there all the same.
        bad_source = f"{error}; "
    try:
        return _first_file(packages, member, apt_get)
    except NotToBeHadError as error:
        raise NotToBeHadError(f"{bad_source}{error}") from error


def _first_file(packages: Sequence[str], member: str, apt_get: Sequence[str]) -> bytes:
    reasons = []
    for package in packages:
        with tempfile.TemporaryDirectory(prefix="sandbox-router-deb-") as name:
            folder = Path(name)
            folder.chmod(0o755)  # as root, apt-get downloads as a user of its own
            try:
                run([*apt_get, "-qq", "download", package], folder)
                (archive,) = folder.glob("*.deb")
                run(["dpkg", "-x", str(archive), "root"], folder)
                return (folder / "root" / member).read_bytes()
            except FileNotFoundError:
                reasons.append(f"the package {package} has no {member}")
            except NotToBeHadError as error:
                reasons.append(str(error))
    raise NotToBeHadError("; ".join(reasons))


def _own_lists(folder: Path) -> list[str]:
    """Returns the options by which apt-get keeps all that it writes in this folder."""
    for part in ("state/lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::State": folder / "state",
        "Dir::State::lists": folder / "state" / "lists",
        "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": folder / "cache",
        "Dir::Cache::archives": folder / "cache" / "archives",
        "Dir::Log": folder / "log",
        "APT::Sandbox::User": "",
        "APT::Update::Error-Mode": "any",
        "Acquire::Retries": 1,
    }
    return [f"-o{key}={value}" for key, value in options.items()]


def run(command: Sequence[str], folder: Path | None = None) -> None:
    """Runs to the end; raises NotToBeHadError with the end of what it complained about."""
    words = " ".join(word for word in command if not word.startswith("-"))
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotToBeHadError(f"`{words}` took longer than {TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        complaint = " ".join(done.stderr.split())[-200:]
        raise NotToBeHadError(f"`{words}` failed: {complaint}")
