"""One way for all tests of a module: HTTP/2 and TLS to Envoy by the shipped configuration, HTTP/1.1 to the router, to a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.deploy.fronts import Front, running
from tests.fakes.router_process import RouterProcess, router
from tests.integration.gateway.http2 import Client, connected
from tests.integration.gateway.sandbox import Sandbox, sandbox

TOKEN = "the-token-that-every-client-here-has"
AUTHORIZATION = ("authorization", f"Bearer {TOKEN}")
MAX_BODY_BYTES = 50 << 20
CLIENT = "127.0.0.77"
"""Where clients come from: Envoy writes its own address in place of 127.0.0.1."""


@dataclass(frozen=True, slots=True)
class Way:
    """All who take part."""

    sandbox: Sandbox
    router: RouterProcess
    front: Front


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def way(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Way]:
    folder = tmp_path_factory.mktemp("way")
    (folder / "token").write_text(TOKEN)
    async with sandbox() as box:
        table = folder / "sandboxes.yaml"
        entry = "{{name: {name}, host: 127.0.0.1, ports: {{8888: {port}}}{more}}}"
        entries = [
            entry.format(name="box", port=box.port, more=""),
            entry.format(name="deaf", port=1, more=""),
            entry.format(name="asleep", port=box.port, more=", state: suspended"),
        ]
        table.write_text(f"sandboxes: [{', '.join(entries)}]\n")
        flags = {
            "auth": "static",
            "static-token-file": folder / "token",
            "discovery": "file",
            "sandboxes-file": table,
            "base-domain": "sandbox.example.com",
            "preserve-host": "true",
            "trusted-proxies": "127.0.0.1/32",
            "max-body-bytes": MAX_BODY_BYTES,
            "access-log": "true",
            "shutdown-timeout": "3s",
        }
        given = [f"--{key}={value}" for key, value in flags.items()]
        async with router(*given) as routing:
            await routing.until_ready()
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with running("envoy", routing.http_port, folder, headers) as front:
                yield Way(box, routing, front)


@pytest_asyncio.fixture(loop_scope="module")
async def client(way: Way) -> AsyncIterator[Client]:
    async with connected(way.front, address=CLIENT) as client:
        yield client
