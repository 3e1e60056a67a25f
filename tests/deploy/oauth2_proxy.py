"""Finds a real oauth2-proxy: `python -m tests.deploy.oauth2_proxy` builds it from its Go module into the tools' cache folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.deploy.tools import ToolMissing, cache_folder

MODULE = "github.com/oauth2-proxy/oauth2-proxy/v7"
VERSION = "v7.15.6"


def oauth2_proxy() -> Path:
    """Returns the machine's program of that name, or the one that was built here. Raises ToolMissing."""
    installed = shutil.which("oauth2-proxy")
    path = Path(installed) if installed else _built()
    if not path.exists():
        raise ToolMissing(
            "oauth2-proxy is in no package: `python -m tests.deploy.oauth2_proxy` builds it with Go, in some minutes"
        )
    return path


def _built() -> Path:
    return cache_folder() / f"oauth2-proxy-{VERSION}"


def build() -> Path:
    """Returns the program, built when it isn't there yet: one package at a time and last in the queue."""
    path = _built()
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                ["nice", "-n", "19", "go", "install", "-p", "1", f"{MODULE}@{VERSION}"],
                env={**os.environ, "GOBIN": folder, "CGO_ENABLED": "0"},
                check=True,
            )
            shutil.copy(Path(folder) / "oauth2-proxy", path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    return path


if __name__ == "__main__":
    print(build())
