"""Tests the dashboard and the rules on a real Prometheus that scrapes a real router under traffic."""

import asyncio
import contextlib
import json
import re

import aiohttp
import pytest
import yaml

from router.server.listeners import bind, close_all
from router.settings.groups import Address
from router.suspender.metrics import SuspenderMetrics
from router.suspender.port import own_port
from tests.deploy import fronts, queries
from tests.deploy.rendering import DEPLOY, found

POD = {"namespace": "agent-sandbox-system", "pod": "sandbox-router-0"}
SUSPENDER = {**POD, "pod": "sandbox-router-suspend-idle-0"}
TRAFFIC_S = 12
EMPTY_WITHOUT_TROUBLE = re.compile(r"> 0$")
NOT_IN_A_SHORT_RUN = ("ratio_rate1h", "ratio_rate6h", "ratio_rate3d")
NOT_WITHOUT_TLS = (
    "sandbox_router_tls_handshakes",
    "certificate_not_after",
)


@contextlib.asynccontextmanager
async def prometheus(admin_port: int, suspender_port: int, folder):
    """Runs Prometheus with our rules, scraping both ports each second; yields its address."""
    port = fronts.free_port()
    rules = (DEPLOY / "prometheus" / "rules.yaml").read_text()
    (folder / "rules.yaml").write_text(rules.replace("interval: 30s", "interval: 1s"))
    targets = [
        {"targets": [f"127.0.0.1:{port}"], "labels": labels}
        for port, labels in ((admin_port, POD), (suspender_port, SUSPENDER))
    ]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "router", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [found("prometheus"), f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={folder / 'data'}"]
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)
        try:
            url = f"http://127.0.0.1:{port}"
            await fronts.wait_until_ready(f"{url}/-/ready", process, log)
            yield url
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.wait(), 20)


async def call(port: int, **headers: str) -> int:
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"http://127.0.0.1:{port}/", headers=headers) as response,
    ):
        await response.read()
        return response.status


async def ask(url: str, query: str):
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"{url}/api/v1/query", params={"query": query}) as response,
    ):
        return json.loads(await response.text())


@contextlib.asynccontextmanager
async def suspender():
    """Serves what a suspender counts; yields its port."""
    sockets = bind(Address("127.0.0.1", 0), setting="--metrics-bind")
    exposition = SuspenderMetrics().exposition
    try:
        async with own_port(sockets, exposition=exposition, is_alive=lambda: True):
            yield sockets[0].getsockname()[1]
    finally:
        close_all(sockets)


@pytest.fixture
async def board(tmp_path):
    """Traffic of a few seconds through the real router; yields Prometheus' address."""
    async with (
        fronts.behind() as sandbox,
        fronts.router(sandbox.port, tmp_path) as router,
        suspender() as suspender_port,
        prometheus(router.admin_port, suspender_port, tmp_path) as url,
    ):
        async with asyncio.timeout(60):
            for _ in range(TRAFFIC_S * 4):
                assert await call(router.port, **{"X-Sandbox-ID": "box"}) == 200
                assert await call(router.port, **{"X-Sandbox-ID": "nobody"}) == 404
                await asyncio.sleep(0.25)
        yield url


def as_sent(text: str) -> str:
    """Returns the query as Grafana would send it for this router."""
    values = {"namespace": POD["namespace"], "pod": ".*", "sandbox_namespace": ".*"}
    text = text.replace("$__rate_interval", "10s")
    for name, value in values.items():
        text = text.replace(f'"${name}"', f'"{value}"')
    return text


async def test_every_panel_has_something_to_show(board):
    silent = []
    for query in queries.dashboard_queries():
        answer = await ask(board, as_sent(query.text))
        assert answer["status"] == "success", answer
        is_excused = EMPTY_WITHOUT_TROUBLE.search(query.text) or any(
            name in query.text for name in (*NOT_IN_A_SHORT_RUN, *NOT_WITHOUT_TLS)
        )
        if not answer["data"]["result"] and not is_excused:
            silent.append(query.place)

    errors = await ask(board, "sum by (code) (sandbox_router_router_errors_total) > 0")
    alerts = await ask(board, 'ALERTS{alertstate="firing"}')

    assert silent == []
    assert [row["metric"]["code"] for row in errors["data"]["result"]] == ["sandbox_not_found"]
    assert alerts["data"]["result"] == []
