"""Builds a real kube-apiserver and a real etcd from their Go modules.

`python -m tests.cluster.binaries` builds what is missing and prints where it is. That takes minutes and 3 GB of Go's caches
the first time; the binaries stay in the tools' cache folder.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.deploy.tools import ToolMissing, cache_folder

FOLDER = Path(__file__).parent
"""Each in a module of its own here, named like its program."""


def kube_apiserver() -> Path:
    """Returns the API server's binary, built once. Raises ToolMissing when it can't be built here."""
    released = version("apiserver", "k8s.io/kubernetes")
    stamp = f"-X k8s.io/component-base/version.gitVersion={released}"
    return _built("apiserver", f"kube-apiserver-{released}", stamp)


def etcd() -> Path:
    """Returns etcd, built once. Raises ToolMissing when it can't be built here."""
    return _built("etcd", f"etcd-{version('etcd', 'go.etcd.io/etcd/server/v3')}")


def version(module: str, requirement: str) -> str:
    """Returns the version of what the Go module in that folder asks for."""
    found = re.search(rf"{re.escape(requirement)} (v\S+)", (FOLDER / module / "go.mod").read_text())
    assert found is not None
    return found[1]


def _built(module: str, name: str, stamp: str = "") -> Path:
    path = cache_folder() / name
    with (cache_folder() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _build(FOLDER / module, path, stamp)
    return path


def _build(module: Path, path: Path, stamp: str) -> None:
    if shutil.which("go") is None:
        raise ToolMissing(f"{path.name} is built with Go, and there is no `go`")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(module, folder, dirs_exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        flags = f"-s -w {stamp}".strip()
        build = ["go", "build", "-p", "1", "-trimpath", "-ldflags", flags, "-o", part, "."]
        # One package at a time and last in the queue: the machine may be somebody's.
        command = ["nice", "-n", "19", *build]
        environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ToolMissing(f"`go build` failed: {done.stderr.strip()[-2000:]}")
        part.rename(path)
    print(f"built {path.name} in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    print(kube_apiserver())
    print(etcd())
