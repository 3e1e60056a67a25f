"""One way for all tests of a module: TLS to an Envoy by the shipped configuration, which asks a real router and dials sandboxes itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.deploy.fronts import Front, envoy_that_asks, running
from tests.fakes.router_process import RouterProcess, router
from tests.integration.gateway.sandbox import Sandbox, sandbox

TOKEN = "the-token-that-every-client-here-has"
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}


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
        entry = "{{name: {name}, host: {host}, ports: {{8888: {port}}}{more}}}"
        entries = [
            entry.format(name="box", host="127.0.0.1", port=box.port, more=""),
            entry.format(name="named", host="localhost", port=box.port, more=""),
            entry.format(name="deaf", host="127.0.0.1", port=1, more=""),
            entry.format(name="asleep", host="127.0.0.1", port=1, more=", state: suspended"),
        ]
        table.write_text(f"sandboxes: [{', '.join(entries)}]\n")
        flags = {
            "extauthz-bind": "127.0.0.1:0",
            "auth": "static",
            "static-token-file": folder / "token",
            "discovery": "file",
            "sandboxes-file": table,
            "base-domain": "sandbox.example.com",
            "preserve-host": "true",
            "trusted-proxies": "127.0.0.1/32",
            "strip-headers": "x-corporate-secret",
            "strip-cookies": "front_session",
            "path-prefix": "/s/",
        }
        given = [f"--{key}={value}" for key, value in flags.items()]
        async with router(*given) as routing:
            await routing.until_ready()
            command = envoy_that_asks(routing.checks_port)
            async with running("envoy", routing.http_port, folder, AUTHORIZATION, command) as front:
                yield Way(box, routing, front)
