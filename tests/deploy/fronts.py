"""Runs a real front (nginx, Traefik, Envoy, HAProxy, Caddy) by the configuration that we ship, with only its addresses changed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import aiohttp
import trustme
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tests.deploy.rendering import DEPLOY, found

EXAMPLES = DEPLOY / "examples"
HOST = "8888-box.sandbox.example.com"
UPSTREAM = "sandbox-router-svc.agent-sandbox-system.svc.cluster.local:8080"
START_S = 20.0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


Command: TypeAlias = Callable[[Path, int, int], list[str]]
"""Makes a front's command of a folder for its files, the port to listen on and the port behind it."""


@dataclass(slots=True)
class Behind:
    """What stands where the router would: it tells what the front made of a request."""

    port: int = 0
    first_piece: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def told(self, request: web.Request) -> web.Response:
        seen = {
            "target": request.raw_path,
            "version": f"{request.version.major}.{request.version.minor}",
            "headers": [[name.lower(), value] for name, value in request.headers.items()],
        }
        return web.Response(text=json.dumps(seen), content_type="application/json")

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: first\n\n")
        await self.go_on.wait()
        await response.write(b"data: second\n\n")
        return response

    async def upload(self, request: web.Request) -> web.Response:
        size = 0
        async for piece in request.content.iter_any():
            size += len(piece)
            self.first_piece.set()
        return web.Response(text=str(size))

    async def echo(self, request: web.Request) -> web.WebSocketResponse:
        socket_ = web.WebSocketResponse()
        await socket_.prepare(request)
        async for message in socket_:
            await socket_.send_str(f"{request.headers['Host']} {message.data}")
        return socket_


@contextlib.asynccontextmanager
async def behind() -> AsyncIterator[Behind]:
    """Serves Behind on a port of its own."""
    it = Behind()
    app = web.Application(client_max_size=0)
    app.router.add_get("/stream", it.stream)
    app.router.add_post("/upload", it.upload)
    app.router.add_get("/socket", it.echo)
    app.router.add_route("*", "/{rest:.*}", it.told)
    runner = web.AppRunner(app, max_field_size=70000, max_line_size=70000, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        it.port = runner.addresses[0][1]
        yield it
    finally:
        it.go_on.set()
        await runner.cleanup()


class Here(AbstractResolver):
    """Finds every name on this machine, so that the certificate is asked for by its name."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        address = ResolveResult(
            hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0
        )
        return [address]

    async def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class Front:
    """A running front: where it listens, whom its certificate is from, and what clients say with every request."""

    kind: str
    port: int
    authority: trustme.CA
    headers: Mapping[str, str]

    def url(self, target: str, scheme: str = "https") -> URL:
        return URL(f"{scheme}://{HOST}:{self.port}{target}", encoded=True)

    def tls(self, *protocols: str) -> ssl.SSLContext:
        """Returns what a client needs that trusts the front; `protocols` are offered by ALPN."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if protocols:
            context.set_alpn_protocols(protocols)
        return context

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[aiohttp.ClientSession]:
        connector = aiohttp.TCPConnector(ssl=self.tls(), resolver=Here())
        headers = {"Host": HOST, **self.headers}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            yield session


@contextlib.asynccontextmanager
async def running(
    kind: str,
    upstream_port: int,
    folder: Path,
    headers: Mapping[str, str] | None = None,
    command: Command | None = None,
) -> AsyncIterator[Front]:
    """Runs one of COMMANDS on a free port in front of `upstream_port`; `headers` are what it takes to get a 200 for `/`."""
    port = free_port()
    authority = trustme.CA()
    certificate = authority.issue_cert(HOST, "*.sandbox.example.com")
    (folder / "tls.crt").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(folder / "tls.key")
    arguments = (command or COMMANDS[kind])(folder, port, upstream_port)
    log = folder / "front.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*arguments, stdout=output, stderr=output)
        try:
            front = Front(kind, port, authority, headers or {})
            await _wait_until_it_serves(front, process, log)
            yield front
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.wait(), 20)


async def _wait_until_it_serves(
    front: Front, process: asyncio.subprocess.Process, log: Path
) -> None:
    """Waits for an answer from behind: Traefik listens before it has read its routes and certificates."""
    async with asyncio.timeout(START_S), front.client() as client:
        while True:
            assert process.returncode is None, log.read_text()[-2000:]
            with contextlib.suppress(aiohttp.ClientError):
                async with client.get(front.url("/")) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.05)


def changed(source: Path, target: Path, changes: dict[str, str]) -> Path:
    """Writes a copy of a shipped file with its addresses and paths changed; each must be there to change."""
    text = source.read_text()
    for old, new in changes.items():
        assert old in text, f"{source} has no {old!r} to change"
        text = text.replace(old, new)
    target.write_text(text)
    return target


def _nginx(folder: Path, port: int, upstream_port: int) -> list[str]:
    config = changed(
        EXAMPLES / "nginx" / "nginx.conf",
        folder / "nginx.conf",
        {
            "listen 443 ": f"listen 127.0.0.1:{port} ",
            UPSTREAM: f"127.0.0.1:{upstream_port}",
            "/etc/nginx/tls": str(folder),
            "/tmp/nginx.pid": str(folder / "nginx.pid"),
            "worker_processes auto": "daemon off;\nworker_processes 1",
            "http {\n": f"http {{\n    access_log off;\n{temporary(folder)}",
        },
    )
    return [found("nginx"), "-c", str(config), "-p", str(folder), "-e", "stderr"]


def temporary(folder: Path) -> str:
    """Returns where nginx may keep what it can't hold in memory: folders of the test's own."""
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return "".join(f"    {name}_temp_path {folder / name};\n" for name in names)


def _traefik(folder: Path, port: int, upstream_port: int) -> list[str]:
    dynamic = changed(
        EXAMPLES / "traefik" / "dynamic.yaml",
        folder / "dynamic.yaml",
        {UPSTREAM: f"127.0.0.1:{upstream_port}", "/etc/traefik/tls": str(folder)},
    )
    static = changed(
        EXAMPLES / "traefik" / "traefik.yaml",
        folder / "traefik.yaml",
        {'":443"': f'"127.0.0.1:{port}"', "/etc/traefik/dynamic.yaml": str(dynamic)},
    )
    return [found("traefik"), f"--configfile={static}"]


def _envoy(folder: Path, port: int, upstream_port: int) -> list[str]:
    config = changed(
        EXAMPLES / "envoy" / "envoy.yaml",
        folder / "envoy.yaml",
        {
            "address: 0.0.0.0, port_value: 443": f"address: 127.0.0.1, port_value: {port}",
            UPSTREAM.partition(":")[0]: "127.0.0.1",
            "port_value: 8080": f"port_value: {upstream_port}",
            "/etc/envoy/tls": str(folder),
        },
    )
    quiet = ("--log-level", "warning", "--concurrency", "1", "--disable-hot-restart")
    return [found("envoy"), "-c", str(config), *quiet]


def envoy_that_asks(checks_port: int) -> Command:
    """Returns the command of an Envoy that carries requests to sandboxes itself, and asks the router on that port."""

    def command(folder: Path, port: int, upstream_port: int) -> list[str]:
        config = changed(
            EXAMPLES / "envoy" / "decided.yaml",
            folder / "decided.yaml",
            {
                "address: 0.0.0.0, port_value: 443": f"address: 127.0.0.1, port_value: {port}",
                UPSTREAM.partition(":")[0]: "127.0.0.1",
                "sandbox-router-checks.agent-sandbox-system.svc.cluster.local": "127.0.0.1",
                "port_value: 8080": f"port_value: {upstream_port}",
                "port_value: 9000": f"port_value: {checks_port}",
                "/etc/envoy/tls": str(folder),
            },
        )
        quiet = ("--log-level", "warning", "--concurrency", "1", "--disable-hot-restart")
        return [found("envoy"), "-c", str(config), *quiet]

    return command


def _haproxy(folder: Path, port: int, upstream_port: int) -> list[str]:
    config = changed(
        EXAMPLES / "haproxy" / "haproxy.cfg",
        folder / "haproxy.cfg",
        {
            "bind :443 ": f"bind 127.0.0.1:{port} ",
            UPSTREAM: f"127.0.0.1:{upstream_port}",
            "/etc/haproxy/tls": str(folder),
        },
    )
    return [found("haproxy"), "-f", str(config), "-db"]


def _caddy(folder: Path, port: int, upstream_port: int) -> list[str]:
    config = changed(
        EXAMPLES / "caddy" / "Caddyfile",
        folder / "Caddyfile",
        {
            "https://*.sandbox.example.com {": f"https://*.sandbox.example.com:{port} {{\n\tbind 127.0.0.1",
            UPSTREAM: f"127.0.0.1:{upstream_port}",
            "/etc/caddy/tls": str(folder),
        },
    )
    # It keeps an id of the installation, and would in the home folder.
    homes = [f"XDG_{kind}_HOME={folder}" for kind in ("DATA", "CONFIG")]
    return ["env", *homes, found("caddy"), "run", "--config", str(config), "--adapter", "caddyfile"]


COMMANDS = {
    "nginx": _nginx,
    "traefik": _traefik,
    "envoy": _envoy,
    "haproxy": _haproxy,
    "caddy": _caddy,
}


@dataclass(frozen=True, slots=True)
class Router:
    """Where a running router listens."""

    port: int
    admin_port: int


@contextlib.asynccontextmanager
async def router(
    sandbox_port: int, folder: Path, **changed_settings: object
) -> AsyncIterator[Router]:
    """Runs the real router, by host names, before one sandbox called `box`; None leaves a setting to its file or default."""
    port, admin_port = free_port(), free_port()
    sandboxes = folder / "sandboxes.yaml"
    sandboxes.write_text(
        f"sandboxes: [{{name: box, host: 127.0.0.1, ports: {{8888: {sandbox_port}}}}}]\n"
    )
    settings = {
        "auth": "none",
        "discovery": "file",
        "sandboxes-file": sandboxes,
        "base-domain": "sandbox.example.com",
        "trusted-proxies": "127.0.0.0/8",
        "preserve-host": "true",
        "http-bind": f"127.0.0.1:{port}",
        "admin-bind": f"127.0.0.1:{admin_port}",
        "drain-delay": "0",
        "shutdown-timeout": "2s",
        **changed_settings,
    }
    flags = [f"--{key}={value}" for key, value in settings.items() if value is not None]
    log = folder / "router.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "router", "serve", *flags, stdout=output, stderr=output
        )
        try:
            await wait_until_ready(f"http://127.0.0.1:{admin_port}/readyz", process, log)
            yield Router(port, admin_port)
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.wait(), 20)


async def wait_until_ready(url: str, process: asyncio.subprocess.Process, log: Path) -> None:
    """Waits for a 200; fails with the end of the log when the process ends first."""
    async with asyncio.timeout(START_S), aiohttp.ClientSession() as client:
        while True:
            assert process.returncode is None, log.read_text()[-2000:]
            with contextlib.suppress(aiohttp.ClientError):
                async with client.get(url) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.05)
