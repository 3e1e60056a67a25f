"""LocalCluster: a real etcd and a real kube-apiserver on loopback, with RBAC; no kubelet, no controllers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import trustme
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.cluster.binaries import etcd, kube_apiserver

ADMIN_TOKEN = secrets.token_hex(16)


@dataclass
class LocalCluster:
    """The two processes. Each may be stopped and started again on the same port, with its data kept."""

    folder: Path
    authority: trustme.CA
    api_port: int
    etcd_port: int
    etcd_peer_port: int
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.api_port}"

    def kubeconfig(self, name: str, user: dict[str, Any], *, server: str = "") -> Path:
        """Writes a kubeconfig with that user."""
        pem = self.authority.cert_pem.bytes()
        cluster = {
            "server": server or self.url,
            "certificate-authority-data": base64.b64encode(pem).decode(),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "local",
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "me"}}],
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "me", "user": user}],
        }
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def admin_kubeconfig(self) -> Path:
        return self.kubeconfig("admin", {"token": ADMIN_TOKEN})

    async def start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{p}" for p in (self.etcd_port, self.etcd_peer_port))
        await self._start(
            "etcd", etcd(), "--data-dir", self.folder / "etcd", "--unsafe-no-fsync",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}",
        )  # fmt: skip

    async def start_api_server(self) -> None:
        """Returns once it says that it is ready. Raises RuntimeError with its last words otherwise."""
        await self._start(
            "kube-apiserver", kube_apiserver(),
            "--etcd-servers", f"http://127.0.0.1:{self.etcd_port}",
            "--bind-address", "127.0.0.1", "--secure-port", str(self.api_port),
            "--tls-cert-file", self.folder / "server.pem",
            "--tls-private-key-file", self.folder / "server.key",
            "--client-ca-file", self.folder / "ca.pem",
            "--token-auth-file", self.folder / "tokens.csv",
            "--authorization-mode", "RBAC",
            "--service-account-issuer", "https://cluster.test",
            "--service-account-key-file", self.folder / "accounts.pem",
            "--service-account-signing-key-file", self.folder / "accounts.key",
            "--service-cluster-ip-range", "10.0.0.0/24,fd00:10::/112",
            # Nobody makes the service accounts' default objects here.
            "--disable-admission-plugins", "ServiceAccount",
            "--etcd-compaction-interval", "0",
            "--v", "0",
        )  # fmt: skip
        async with asyncio.timeout(90):
            while not await self._is_ready():
                if self.processes["kube-apiserver"].returncode is not None:
                    raise RuntimeError((self.folder / "kube-apiserver.log").read_text()[-3000:])
                await asyncio.sleep(0.2)

    async def stop(self, name: str) -> None:
        process = self.processes.pop(name, None)
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def restart(self, *, while_down: Callable[[], object]) -> None:
        """Ends both, has `while_down` do what it wants with the data, and starts them again."""
        await self.stop("kube-apiserver")
        await self.stop("etcd")
        while_down()
        await self.start_etcd()
        await self.start_api_server()

    async def _start(self, name: str, *command: str | Path) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, cwd=self.folder
            )

    async def _is_ready(self) -> bool:
        tls = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.get(f"{self.url}/readyz", ssl=tls) as answer,
            ):
                return answer.status == 200
        return False


@asynccontextmanager
async def local_cluster(folder: Path) -> AsyncIterator[LocalCluster]:
    """Starts both and ends them with the block."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued.private_key_pem.write_to_path(folder / "server.key")
    (folder / "server.pem").write_bytes(b"".join(p.bytes() for p in issued.cert_chain_pems))
    (folder / "tokens.csv").write_text(f'{ADMIN_TOKEN},admin,admin,"system:masters"\n')
    _write_account_keys(folder)
    api_port, etcd_port, peer_port = _free_ports(3)
    cluster = LocalCluster(folder, authority, api_port, etcd_port, peer_port)
    try:
        await cluster.start_etcd()
        await cluster.start_api_server()
        yield cluster
    finally:
        for name in ("kube-apiserver", "etcd"):
            await cluster.stop(name)


def _write_account_keys(folder: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (folder / "accounts.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    (folder / "accounts.pem").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
