"""Gets a real kube-apiserver, built from its Go module, and a real etcd, out of Debian's package.

`python -m tests.cluster.binaries` builds what is missing and prints where it is. The build takes minutes and 3 GB of Go's
caches the first time; the binary stays in the tools' cache folder.
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

from tests.deploy.tools import ToolMissing, cache_folder, etcd

MODULE = Path(__file__).parent / "apiserver"


def version() -> str:
    """Returns the version of Kubernetes that the Go module asks for."""
    found = re.search(r"k8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text())
    assert found is not None
    return found[1]


def kube_apiserver() -> Path:
    """Returns the API server's binary, built once. Raises ToolMissing when it can't be built here."""
    path = cache_folder() / f"kube-apiserver-{version()}"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _build(path)
    return path


def _build(path: Path) -> None:
    if shutil.which("go") is None:
        raise ToolMissing("kube-apiserver is built with Go, and there is no `go`")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(MODULE, folder, dirs_exist_ok=True)
        part = path.with_suffix(".part")
        stamp = f"-s -w -X k8s.io/component-base/version.gitVersion={version()}"
        build = ["go", "build", "-p", "1", "-trimpath", "-ldflags", stamp, "-o", part, "."]
        # One package at a time and last in the queue: the machine may be somebody's.
        command = ["nice", "-n", "19", *build]
        environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ToolMissing(f"`go build` failed: {done.stderr.strip()[-2000:]}")
        part.rename(path)
    print(f"built kube-apiserver {version()} in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    print(kube_apiserver())
    print(etcd())
